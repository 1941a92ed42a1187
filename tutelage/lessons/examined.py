"""The explain lesson put to the test: is the solution likelier after the explanation, and does the student answer?"""

import asyncio
from dataclasses import replace

from tutelage.engines.base import Engine
from tutelage.errors import PromptTooLong
from tutelage.lessons.adaptive import Plan, attempt
from tutelage.lessons.episode import Episode, Turn
from tutelage.lessons.explain import Outline, assemble, explain, rounded, speaker
from tutelage.problem import Problem


async def examined(
    problem: Problem, teacher: Engine, student: Engine, frozen: Engine, outline: Outline, plan: Plan
) -> Episode:
    """One explanation; `meta` has the solution's log-probs behind no thought at all, to compare with.

    The student then answers with the explanation as it would with any teaching. One that is empty, or too long for
    the student's context, leaves it alone. Where it cannot answer by itself, it is not asked.
    """
    bare = assemble(problem, outline.style, speaker(student), ())
    episode, unaided, alone = await asyncio.gather(
        explain(problem, teacher, student, outline),
        frozen.score(bare.prompt, bare.completion, outline.unbias_student_log_probs_temp or 1.0),
        answers(problem, frozen, plan),
    )
    taught = alone
    if alone and episode.teaching is not None:
        try:
            taught = await attempt(problem, episode.teaching, student, plan, plan.taught_samples)
        except PromptTooLong:
            episode = replace(episode, teaching=None, malformed=True)  # it did not choose to say nothing
    return replace(episode, alone=alone, taught=taught, meta={"unaided": rounded(unaided[bare.solution])})


async def answers(problem: Problem, student: Engine, plan: Plan) -> tuple[Turn, ...]:
    """The student's own answers; none where there is nothing to check them by, or the question overflows its context:
    it may be longer with the words that ask for an answer than behind the solution."""
    if not problem.answer:
        return ()
    try:
        return await attempt(problem, None, student, plan, plan.baseline_samples)
    except PromptTooLong:
        return ()
