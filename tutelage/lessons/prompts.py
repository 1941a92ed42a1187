"""What is said to whom: the one place where prompts are written, for training, evaluation and serving alike.

Each prompt shows one exchange in the wanted form: a small model keeps to tags it has seen used,
and a large one loses nothing by it.
"""

import re

from tutelage.engines.base import Message
from tutelage.problem import Public
from tutelage.tags import Tags

SOLVE = (
    "You are a careful student. Solve the problem in a few short steps. "
    "Finish with one line that holds only the final answer: <solution>the final answer</solution>"
)
CODE = "You are a careful programmer. Write the whole function that is asked for, and nothing that is not."
DOUBLE = 'def double(x):\n    """Twice the number x."""\n'
PROBE = (
    "You are a student. In one or two short sentences, outline how you would approach the problem. "
    "Do not solve it and do not give an answer."
)
TEACH = (
    "You are a teacher. You see a problem and how a student means to approach it. "
    "First diagnose, inside <thinking> tags, what the student understands and what could go wrong. "
    "Then write, inside <teaching> tags, only the help this student needs: step-by-step guidance for a weak "
    "student, a short hint for a good one, and nothing at all (empty <teaching></teaching> tags) for one who "
    "will manage alone. The student reads the teaching only. Never state the final answer."
)

EXPLAIN = (
    "You are a teacher. You are given a problem and then its solution, between {solution}. Explain how one gets there, "
    "between {explanation}: think aloud as a student would who does not know the solution yet, say why each step is "
    "taken, check what may go wrong, and let the solution follow from it instead of repeating it."
)
STUDY = (
    "You are a careful student. First think the problem through step by step, between {thought}. "
    "Then write the worked solution and its final answer, between {solution}."
)


def explain(tags: Tags, explanation: str) -> str:
    """The system prompt of a teacher that sees the solution."""
    return EXPLAIN.format(solution=pair(tags, tags.solution), explanation=pair(tags, explanation))


def study(tags: Tags) -> str:
    """The system prompt of a student that thinks before it solves."""
    return STUDY.format(thought=pair(tags, tags.thought), solution=pair(tags, tags.solution))


def pair(tags: Tags, name: str) -> str:
    return f"{tags.opening(name)} and {tags.closing(name)}"


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def ending(kind: str) -> str:
    """How an answer of this kind is to end, so that it can be found."""
    if kind == "code":
        return "Write the whole function in one block that begins with ```python and ends with ```."
    return "End with <solution>the final answer</solution>."


def helped(question: str, teaching: str | None, kind: str = "math") -> str:
    advice = "" if teaching is None else f"A teacher's advice:\n{teaching}\n\n"
    return f"{question}\n\n{advice}{ending(kind)}"


def solve(problem: Public, teaching: str | None = None) -> list[Message]:
    """The student answers, with or without help; nothing else differs between the two."""
    about, question = SOLVE, "A box holds 4 pens. How many pens are in 3 boxes?"
    answer = "3 * 4 = 12\n<solution>12</solution>"
    if problem.kind == "code":
        about, question, answer = CODE, DOUBLE, f"```python\n{DOUBLE}    return 2 * x\n```"
    return [
        system(problem.system or about),
        user(helped(question, None, problem.kind)),
        assistant(answer),
        user(helped(problem.question, teaching, problem.kind)),
    ]


def probe(problem: Public) -> list[Message]:
    """The student outlines its approach without solving."""
    return [
        system(PROBE),
        user("A box holds 4 pens. How many pens are in 3 boxes?"),
        assistant("I multiply the number of boxes by the number of pens in one box."),
        user(problem.question),
    ]


def teach(problem: Public, approach: str) -> list[Message]:
    """The teacher diagnoses and teaches; it sees what the student sees, and the student's approach."""
    return [
        system(TEACH),
        user(case("A box holds 4 pens. How many pens are in 3 boxes?", "I add the two numbers.")),
        assistant(
            "<thinking>The student adds, but equal groups call for multiplication.</thinking>\n"
            "<teaching>Each box holds the same number of pens, so do not add 3 and 4. "
            "Write 4 once for every box and add those up, or multiply.</teaching>"
        ),
        user(case(problem.question, approach)),
    ]


def case(question: str, approach: str) -> str:
    return f"Problem:\n{question}\n\nStudent's approach:\n{approach}"


def spoken(reply: str) -> str:
    """A reply without what a reasoning model thinks to itself before it speaks."""
    said: list[str] = []
    inside = False
    for part in re.split(r"(</?think>)", reply):
        if part == "</think>" and not inside:
            said.clear()  # the opening tag was in the prompt, as some chat templates have it
        elif part not in ("<think>", "</think>") and not inside:
            said.append(part)
        inside = part == "<think>" or (inside and part != "</think>")
    return "".join(said)


def teaching_in(reply: str) -> tuple[str | None, bool]:
    """The part of a teacher's reply that reaches the student, and whether the reply was well formed.

    Nothing outside <teaching> ever reaches the student. Empty tags are abstention; no tags at all
    also leave the student alone, but are malformed. An unclosed tag counts as teaching to the end.
    """
    reply = spoken(reply)
    whole = re.fullmatch(r"\s*<thinking>.*?</thinking>\s*<teaching>(.*?)</teaching>\s*", reply, flags=re.DOTALL)
    if whole and not re.search(r"</?(thinking|teaching)>", whole[1]):
        return whole[1].strip() or None, True
    aloud = re.sub(r"<thinking>.*?</thinking>", "", reply, flags=re.DOTALL)
    match = re.search(r"<teaching>(.*?)(</teaching>|</?thinking>|$)", aloud, flags=re.DOTALL)
    return (match[1].replace("<teaching>", "").strip() or None if match else None), False
