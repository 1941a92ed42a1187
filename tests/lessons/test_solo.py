"""The solo lesson: one prompt, several answers, each judged."""

import asyncio
from typing import Any

from tutelage.lessons import Plan, prompts, solo
from tutelage.problem import Problem

PROBLEM = Problem("What is 17 * 6?", "17 * 6 = 102", "102", kind="number")


def pupil(_: Any, index: int) -> str:
    return ("It is <solution>102</solution>", "It is <solution>96</solution>", "I do not know.")[index % 3]


def test_the_student_answers_alone(scripted: Any) -> None:
    student = scripted(pupil)
    episode = asyncio.run(solo(PROBLEM, student, Plan(), 6))
    assert [turn.verdict.outcome for turn in episode.alone if turn.verdict] == [
        *("correct", "incorrect", "unparsed")
    ] * 2
    assert (episode.lesson, episode.uid, episode.turns, episode.taught) == ("solo", PROBLEM.uid, (), ())
    [(messages, sampling, n, _)] = student.requests
    assert (messages, sampling, n) == (prompts.solve(PROBLEM.public), Plan().solving, 6)


def test_the_prompt_is_the_callers_and_the_seed_makes_other_answers(scripted: Any) -> None:
    student = scripted(pupil)
    for plan in (Plan(seed=1), Plan(seed=1), Plan(seed=2)):
        asyncio.run(solo(PROBLEM, student, plan, 1, ask=lambda public: [prompts.user(f"Q: {public.question}")]))
    one, again, other = (seed for *_, seed in student.requests)
    assert one == again != other
    assert student.requests[0][0] == [prompts.user("Q: What is 17 * 6?")]
