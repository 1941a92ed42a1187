"""The solo lesson (RLVR): the student answers alone, several times."""

from collections.abc import Callable

from tutelage.engines.base import Engine, Message
from tutelage.lessons import prompts
from tutelage.lessons.adaptive import Plan, answered, seed
from tutelage.lessons.episode import Episode
from tutelage.problem import Problem, Public

Ask = Callable[[Public], list[Message]]  # how a student is asked


async def solo(
    problem: Problem, student: Engine, plan: Plan, samples: int, ask: Ask = prompts.solve, copy: int = 0
) -> Episode:
    """A student's answers to one problem. Another seed gives other answers, for it is these that are measured."""
    own = seed(plan, problem, "solo", copy)
    answers = await answered(problem, ask(problem.public), "alone", student, plan.solving, samples, own)
    return Episode("solo", problem.uid, problem.question, problem.answer, alone=answers)
