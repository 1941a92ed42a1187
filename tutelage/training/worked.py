"""Lessons to imitate, written from worked data: they teach the form, and reinforcement the rest."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tutelage.engines.base import Message
from tutelage.lessons import prompts
from tutelage.lessons.leak import reveals
from tutelage.problem import Problem

MANAGES = 0.75  # a student that is right this often alone is better left alone
APPROACH = "I will work through the problem step by step."  # where no student was asked
NEEDS = "The student has a plan but may lose the thread; the steps will help, the conclusion is left to the student."

# No wording may hold a number, spelled or not: it could be some problem's answer.
FINE = (
    "The student has the right idea and will manage alone.",
    "This is within the student's reach; advice could only distract.",
    "The student knows how to do this and needs no help.",
)
SLIPS = (
    "The student may slip in the calculation.",
    "The plan is vague, so the steps should be small and clear.",
    "The student is likely to make a mistake on the way; small steps will help.",
)
OPENINGS = ("First", "Start with", "Begin:")
# No word of answer tags either: the student's own prompt shows them, and small students copy a second example as it is.
CLOSINGS = ("work out {}", "calculate {} yourself", "find {}")
FINISH = "Go on from here to the final answer."

_STEP = re.compile(r"(.+) = (-?\d+)")
_LONG_SUM = re.compile(r"(-?\d+) ([+-]) (\d{2,})")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Unfit(Exception):
    """No lesson can be made of this problem. The reason quotes nothing from it, so that reasons can be counted."""


@dataclass(frozen=True)
class Row:
    """One lesson to imitate: the prompt of the lesson itself, and the reply to learn."""

    uid: str
    prompt: list[Message]
    completion: str


def rows(
    problems: Iterable[Problem], approaches: Mapping[str, str], baselines: Mapping[str, float]
) -> tuple[list[Row], Counter[str]]:
    """A lesson for every problem, by the student's own probes and accuracies (by uid), and why others have none."""
    return sorted_out(
        problems,
        lambda problem: row(problem, approaches.get(problem.uid, APPROACH), baselines.get(problem.uid, 0.0)),
    )


def sorted_out(problems: Iterable[Problem], make: Callable[[Problem], Row]) -> tuple[list[Row], Counter[str]]:
    """The rows that can be made of problems, and why there are none of the others."""
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    for problem in problems:
        try:
            kept.append(make(problem))
        except Unfit as reason:
            dropped[str(reason)] += 1
    return kept, dropped


def row(problem: Problem, approach: str, accuracy: float) -> Row:
    if "teacher_teaching" in problem.meta:
        approach, diagnosis, teaching = (
            str(problem.meta.get(name, "")).strip()
            for name in ("student_approach", "teacher_diagnosis", "teacher_teaching")
        )
    else:
        diagnosis, teaching = lesson(problem, accuracy)
    completion = f"<thinking>{diagnosis}</thinking>\n<teaching>{teaching}</teaching>"
    if prompts.teaching_in(completion) != (teaching or None, True):
        raise Unfit("the worked text holds tags of its own")
    if reveals(teaching, problem):
        raise Unfit("the teaching states the answer")
    return Row(problem.uid, prompts.teach(problem.public, approach), completion)


def lesson(problem: Problem, accuracy: float) -> tuple[str, str]:
    """Diagnosis and teaching; the same problem is always put into the same words."""
    choose = random.Random(problem.uid).choice
    if accuracy >= MANAGES:
        return choose(FINE), ""
    if not problem.reasoning_trace and (steps := calculation(problem)):
        opening, closing = choose(OPENINGS), choose(CLOSINGS)
        # Smaller steps help more, but may happen to show the answer: 83 - 40 on the way to 83 - 43.
        for done, last in (finer(*steps), steps):
            teaching = spoken(done, last, opening, closing)
            if not reveals(teaching, problem):
                return choose(SLIPS), teaching
        raise Unfit("a step before the last gives the answer")
    worked = unfinished(problem, problem.reasoning_trace or problem.solution)
    if not worked:
        raise Unfit("no steps before the answer")
    return NEEDS, f"{worked}\n{FINISH}"


def calculation(problem: Problem) -> tuple[list[str], str] | None:
    """The steps of a generated calculation, and the last one without its result."""
    *steps, conclusion = problem.solution.splitlines() or [""]
    matches = [_STEP.fullmatch(step) for step in steps]
    if not matches or None in matches or not conclusion.startswith("The answer is"):
        return None
    return steps[:-1], steps[-1].rpartition(" = ")[0]


def finer(done: list[str], last: str) -> tuple[list[str], str]:
    """A last sum of long numbers in two: tens, then ones, which is what a small student can do."""
    match = _LONG_SUM.fullmatch(last)
    if match is None or match[3].endswith("0"):
        return done, last
    number, sign, tens, ones = int(match[1]), match[2], int(match[3][:-1] + "0"), match[3][-1]
    middle = number + tens if sign == "+" else number - tens
    return [*done, f"{number} {sign} {tens} = {middle}"], f"{middle} {sign} {ones}"


def spoken(done: list[str], last: str, opening: str, closing: str) -> str:
    steps = [f"{opening if place == 0 else 'Then'} {step}." for place, step in enumerate(done)]
    end = closing.format(last)
    return " ".join([*steps, f"{'Then ' + end if done else end[0].upper() + end[1:]}."])


def unfinished(problem: Problem, worked: str) -> str:
    """A worked text up to where it first states the answer: what follows only concludes or checks it."""
    ends = [match.start() for match in _SENTENCE.finditer(worked)] + [len(worked)]
    start = cut = 0
    for end in ends:
        if reveals(worked[start:end], problem):
            break
        start = cut = end
    return worked[:cut].strip()
