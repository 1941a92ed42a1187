"""An explanation put to the test: compared with no thought at all, and told to a student that answers."""

import asyncio
from dataclasses import replace

import pytest
from pieces import Pieces, Reader

from tutelage.lessons import STYLES, Episode, Outline, Plan, prompts
from tutelage.lessons.examined import examined
from tutelage.problem import Problem

PROBLEM = Problem("What is 17 * 6?", "17 * 6 = 102", "102", kind="number")
WORDS = Pieces("\n\n", "explanation>", "solution>", "thought>")
PLAN = Plan(baseline_samples=2, taught_samples=3)


def lesson(said: str, context: int = 4096, problem: Problem = PROBLEM) -> tuple[Episode, Reader]:
    teacher = Reader(said, tokenizer=WORDS)
    student = Reader("<solution>102</solution>", "<solution>96</solution>", tokenizer=WORDS, context=context)
    return asyncio.run(examined(problem, teacher, student, student, Outline(), PLAN)), student


def test_the_student_is_asked_with_and_without_the_explanation() -> None:
    episode, student = lesson("split 17\n\n</explanation>")
    assert [turn.correct for turn in episode.alone] == [True, False]
    assert [turn.correct for turn in episode.taught] == [True, False, True]
    asked = [WORDS.decode(prompt) for prompt, *_ in student.asked]
    assert asked == [
        WORDS.decode(student.render(prompts.solve(PROBLEM.public, teaching))) for teaching in (None, "split 17")
    ]
    marks = STYLES["r1"].bridge()
    for prompt, completion, temperature in student.scored:
        read = WORDS.decode(prompt + completion)
        assert read.endswith(f"{marks}17 * 6 = 102") and temperature == 0.7
        assert ("split 17" in read) or read.endswith(f"<thought>\n\n\n\n{marks}17 * 6 = 102")
    assert episode.scores and len(episode.meta["unaided"]) == len(episode.scores.solution) == len("17 * 6 = 102")


@pytest.mark.parametrize("said", ["</explanation>", "word " * 200 + "</explanation>"])
def test_what_the_student_cannot_read_leaves_it_alone(said: str) -> None:
    bare = len(WORDS.encode("x" * 700))
    episode, student = lesson(said, context=bare)
    assert episode.abstained and episode.taught == episode.alone and len(student.asked) == 1
    assert episode.scores and bool(episode.scores.unscored) == ("word" in said)


def test_where_the_student_cannot_answer_the_solution_is_still_weighed() -> None:
    asked = len(Reader(tokenizer=WORDS).render(prompts.solve(PROBLEM.public)))
    for problem, context in ((replace(PROBLEM, answer=""), 4096), (PROBLEM, asked)):
        episode, student = lesson("split\n\n</explanation>", context, problem)
        assert (episode.alone, episode.taught, episode.teaching, student.asked) == ((), (), "split", [])
        assert episode.scores and episode.scores.solution and episode.meta["unaided"]
