"""Explanations to imitate, from worked data: they teach the form of the explain lesson, and reinforcement the rest."""

import random
import re
from collections import Counter
from collections.abc import Iterable

from tutelage.lessons.explain import unfit
from tutelage.lessons.styles import Style
from tutelage.problem import Problem
from tutelage.training.worked import Row, Unfit, calculation, finer, sorted_out

SPOKEN = {"+": "add {1} to {0}", "-": "take {1} from {0}", "*": "multiply {0} by {1}", "/": "divide {0} by {1}"}
OPENINGS = ("First", "To begin,", "Let me start:")
RESULTS = ("that gives {}", "which makes {}", "and the result is {}")
CLOSINGS = ("Nothing is left to do, so {} it is.", "That was the last step: {}.", "So I arrive at {}.")

_STEP = re.compile(r"(-?\d+) ([-+*/]) (-?\d+) = (-?\d+)")


def rows(problems: Iterable[Problem], style: Style) -> tuple[list[Row], Counter[str]]:
    """An explanation for every problem that comes with one or can be worked out, and why others have none."""
    return sorted_out(problems, lambda problem: row(problem, style))


def row(problem: Problem, style: Style) -> Row:
    """The lesson's own prompt, and all that a teacher is to add to it; its end token is added with the ids."""
    if why := unfit(problem, style):
        raise Unfit(why)
    explanation = problem.reasoning_trace.strip() or spoken(problem)
    if any(mark in explanation for mark in style.marks()):
        raise Unfit("its reasoning_trace holds tags of its own")
    return Row(problem.uid, style.ask(problem), f"{explanation}{style.padding}{style.closing}")


def spoken(problem: Problem) -> str:
    """The steps of a generated calculation in words; the same problem is always put into the same ones."""
    if (steps := calculation(problem)) is None:
        raise Unfit("it has no reasoning_trace, and no steps that could be told")
    done, last = finer(*steps)
    choose = random.Random(problem.uid).choice
    opening, result = choose(OPENINGS), choose(RESULTS)
    told = []
    for place, step in enumerate([*done, f"{last} = {problem.answer}"]):
        match = _STEP.fullmatch(step)
        words = f"{SPOKEN[match[2]].format(match[1], match[3])}, {result.format(match[4])}" if match else step
        told.append(f"{opening if place == 0 else 'Then'} {words}.")
    return " ".join([*told, choose(CLOSINGS).format(problem.answer)])
