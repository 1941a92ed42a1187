"""What is said in a dialogue with feedback: to the student after a wrong answer, to its teacher, to the judge."""

import re
from collections.abc import Sequence

from tutelage.engines.base import Message
from tutelage.lessons.prompts import assistant, ending, spoken, system, user
from tutelage.problem import Problem, Public

GENERIC = "Read the problem once more and check every step of your work against it."
HINT = (
    "You are a teacher. You see a problem, its solution and a student's wrong answer. "
    "In one or two short sentences, help the student to see where the mistake is and what to try next. "
    "The student sees your words and nothing else of yours. Never state the final answer."
)
CRITIQUE = (
    "You check a student's work. The answer is known to be wrong. "
    "In one or two short sentences, say where the mistake may be and what to try next."
)
INSPECT = (
    "You check a teacher's hints. A hint may guide, but it must leave the answer to the student. "
    "Reply with one line: OK if it does, or REJECT: and a short reason if it states the answer or all but states it."
)
PENS = "A box holds 4 pens. How many pens are in 3 boxes?"
ADDED = "3 + 4 = 7\n<solution>7</solution>"


def again(hint: str, kind: str = "math") -> str:
    """What the student is told after a wrong answer; without a hint, only that it was wrong."""
    help = f"Hint: {hint}\n\n" if hint else ""
    return f"That is not correct.\n\n{help}Please try again. {ending(kind)}"


def unread(kind: str = "math") -> str:
    """What the student is told when no answer was found."""
    what = "program" if kind == "code" else "final answer"
    return f"No {what} was found in your reply. Solve the problem again in a few short steps. {ending(kind)}"


def hint(problem: Problem, attempt: str, earlier: Sequence[str] = ()) -> list[Message]:
    """The teacher sees everything: the worked solution, the answer, and what it said before."""
    return [
        system(HINT),
        user(_case(PENS, ADDED, (), _secret("Each of the 3 boxes holds 4 pens: 3 * 4 = 12.", "12"))),
        assistant("You added boxes and pens. Every box holds the same number of pens, so count them box by box."),
        user(_case(problem.question, attempt, earlier, _secret(problem.solution, problem.answer))),
    ]


def critique(problem: Public, attempt: str, earlier: Sequence[str] = ()) -> list[Message]:
    """The student looks at its own work, and knows no more than before."""
    return [
        system(CRITIQUE),
        user(_case(PENS, ADDED, ())),
        assistant("You added boxes and pens. Every box holds the same number of pens, so count them box by box."),
        user(_case(problem.question, attempt, earlier)),
    ]


def inspect(problem: Problem, hint: str) -> list[Message]:
    """The judge sees the answer and the hint."""
    return [
        system(INSPECT),
        user(_hinted(PENS, "12", "Count the pens box by box.")),
        assistant("OK"),
        user(_hinted(PENS, "12", "Multiply, and you get a dozen.")),
        assistant("REJECT: a dozen is the answer."),
        user(_hinted(problem.question, problem.answer, hint)),
    ]


def hint_in(reply: str) -> str:
    """The part of a teacher's reply that reaches the student."""
    return spoken(reply).strip()


def accepted(reply: str) -> bool | None:
    """What the judge decided; None where it kept to no form, or said the one and the other."""
    said = spoken(reply)
    first, words = re.match(r"\W*(OK|REJECT)\b", said), set(re.findall(r"\b(?:OK|REJECT)\b", said))
    return None if first is None or len(words) > 1 else first[1] == "OK"


def _case(question: str, attempt: str, earlier: Sequence[str], secret: str = "") -> str:
    given = "".join(f"\nHint given before: {text}" for text in earlier if text)
    written = hint_in(attempt) or attempt.strip()  # a thought that never ended is better than nothing
    return f"Problem:\n{question}\n\n{secret}Student's answer:\n{written}\n{given}\nYour hint:"


def _secret(solution: str, answer: str) -> str:
    """A solution that is nothing but the answer need not be said twice."""
    worked = f"Solution, which the student must not see:\n{solution}\n\n" if solution.strip() != answer.strip() else ""
    return f"{worked}Right answer, which the student must not see: {answer}\n\n"


def _hinted(question: str, answer: str, hint: str) -> str:
    return f"Problem:\n{question}\n\nRight answer: {answer}\n\nHint:\n{hint}"
