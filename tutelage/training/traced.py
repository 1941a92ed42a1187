"""Traces to imitate: a student learns to think as an explanation does, and then to write the solution."""

from collections import Counter
from collections.abc import Iterable

from tutelage.lessons.styles import Style
from tutelage.problem import Problem
from tutelage.training.worked import Row, Unfit, calculation, sorted_out


def rows(problems: Iterable[Problem], style: Style) -> tuple[list[Row], Counter[str]]:
    """A reply for every problem that has a trace, and why others have none."""
    return sorted_out(problems, lambda problem: row(problem, style))


def row(problem: Problem, style: Style) -> Row:
    thought, solution = problem.reasoning_trace.strip(), problem.solution.strip()
    if not thought and "task" in problem.meta and calculation(problem):
        # generated: its steps are the thought, and its last line concludes
        thought, _, solution = solution.rpartition("\n")
    if not solution:
        raise Unfit("no solution")
    if not thought:
        raise Unfit("no explanation or reasoning trace")
    if any(mark in thought or mark in solution for mark in style.marks()):
        raise Unfit("the trace holds tags of its own")
    return Row(problem.uid, style.pose(problem.public), style.reply(thought, solution))
