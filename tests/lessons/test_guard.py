"""The guard: teachers that leak, judges that talk nonsense, and what passes."""

import asyncio
from typing import Any

import pytest

from tutelage import data
from tutelage.lessons import Episode, Plan, feedback
from tutelage.lessons import prompts_feedback as prompts
from tutelage.lessons.dialogue import Dialogue
from tutelage.lessons.feedback import trainable
from tutelage.lessons.guard import Guard
from tutelage.lessons.leak import gives_away, reveals
from tutelage.lessons.teachers import Tutor
from tutelage.problem import Problem
from tutelage.verify import check

PROBLEM = Problem("What is 17 * 6?", "17 * 6 = 102", "102", kind="number")
PLAN = Plan(max_turns=3)


def held(scripted: Any, hints: Any, judge: Any = None) -> tuple[Episode, Any, Any]:
    student, teacher = scripted(lambda *_: "<solution>7</solution>"), scripted(hints)
    inspector = judge and scripted(judge)
    tutor = Tutor(teacher, PLAN, Guard(PLAN, inspector))
    return asyncio.run(feedback(PROBLEM, student, tutor, PLAN)), teacher, inspector


def test_a_teacher_that_always_leaks_is_replaced_and_its_dialogue_never_trained_on(scripted: Any) -> None:
    episode, teacher, _ = held(scripted, lambda *_: "It is one hundred and two.")
    assert [turn.sample.text for turn in episode.turns if turn.act == "hint"] == [prompts.GENERIC] * 2
    assert len(teacher.requests) == 2 * 4 and len({seed for *_, seed in teacher.requests}) == 8
    assert (episode.meta["flagged"], episode.meta["regenerations"]) == (2, 6)
    assert episode.meta["rejected"] == {"match": 8}
    assert not episode.leaked and not trainable(episode)


def test_a_second_try_that_leaks_nothing_is_given(scripted: Any) -> None:
    said = iter(["102!", "", "Count in tens.", "Go on."])
    episode, *_ = held(scripted, lambda *_: next(said))
    assert [turn.sample.text for turn in episode.turns if turn.act == "hint"] == ["Count in tens.", "Go on."]
    assert (episode.meta["flagged"], episode.meta["regenerations"]) == (0, 2)
    assert episode.meta["rejected"] == {"match": 1, "empty": 1} and trainable(episode)


def test_a_judge_may_reject_what_matching_cannot_see(scripted: Any) -> None:
    said = iter(["Two more than a hundred.", "Count in tens.", "Go on."])
    episode, _, judge = held(
        scripted,
        lambda *_: next(said),
        lambda messages, _: "REJECT: that is it" if "hundred" in messages[-1]["content"] else "OK",
    )
    assert episode.meta["rejected"] == {"judge": 1} and len(judge.requests) == 3


def test_a_judge_that_talks_nonsense_is_asked_twice_and_lets_nothing_pass(scripted: Any) -> None:
    episode, _, judge = held(scripted, lambda *_: "Count in tens.", lambda *_: "I like hints!")
    assert episode.meta["rejected"] == {"unreadable": 8} and episode.meta["flagged"] == 2
    assert len(judge.requests) == 16 and len({seed for *_, seed in judge.requests}) == 16


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("OK", True),
        ("  **OK**, it only guides", True),
        ("REJECT: says it", False),
        ("<think>REJECT?</think>\nOK", True),
        ("ok then", None),
        ("OKAY", None),
        ("I would REJECT this", None),
        ("OK, but REJECT if it must hide the tens", None),
        ("OK or REJECT?", None),
        ("REJECT: it is not OK", None),
        ("OK. OK.", True),
        ("", None),
    ],
)
def test_a_judges_reply_is_read_strictly(reply: str, verdict: bool | None) -> None:
    assert prompts.accepted(reply) is verdict


@pytest.mark.parametrize(
    ("hint", "attempt", "given"),
    [
        ("It is 102.", "7", True),
        ("It is 102.0", "7", True),
        ("Why did you drop the 102 of your second line?", "17 * 6 = 102, minus 6 is <solution>96</solution>", False),
        ("Start from 17.", "7", False),
        ("It is 1020 / 10", "7", False),
    ],
)
def test_values_of_the_problem_and_of_the_attempts_may_be_spoken_about(hint: str, attempt: str, given: bool) -> None:
    assert reveals(hint, PROBLEM, [attempt]) is given


def test_programs_are_guarded_by_their_bodies() -> None:
    harmless = ["1 of 3 tests passed; test 2: the result is wrong", "What does your function return for an empty list?"]
    for problem in data.load("humaneval").problems:
        tried = ["```python\nreturn None\n```"]
        body = problem.answer.removeprefix(problem.question)
        assert reveals(f"Try this:\n```python\n{body}\n```", problem, tried), problem.meta["entry"]
        assert not any(reveals(hint, problem, tried) for hint in [*harmless, problem.question])
        assert not reveals(body, problem, [*tried, problem.answer])


@pytest.mark.parametrize(
    ("answer", "hint", "given"),
    [
        (r"\frac{x}{2}", r"The answer is \boxed{x/2}.", True),
        ("x(x+1)", "The answer is x^2 + x.", True),
        (r"2\sqrt{3}", r"\boxed{\sqrt{12}}", True),
        ("x^2+1", "<solution>1+x^2</solution>", True),
        ("x^2+1", "The result is x²+1", True),
        ("3x^2+1", "you get 3x²+1", True),
        ("3x^2+1", r"\boxed{1+3x²}", True),
        ("x^2+1", r"Your answer is not \boxed{x^2}.", False),
        ("x^2+1", "Square x first.", False),
    ],
)
def test_formulas_are_guarded_by_their_values(answer: str, hint: str, given: bool) -> None:
    """In whatever way they are written: a student would be right to say the same."""
    problem = Problem("What is left?", "", answer, kind="math")
    assert asyncio.run(gives_away(hint, problem)) is given
    guard = Guard(Plan())
    assert asyncio.run(guard.objection(hint, problem, Dialogue(problem.public), (1, 0), 0)) == (
        "match" if given else None
    )


def test_another_way_out_of_a_maze_is_a_way_out() -> None:
    """Where two shortest ways differ in their order, the one that is not the reference gives as much away."""
    for problem in data.load("generated", tasks=["shortest_path"], size=60).problems:
        moves = problem.answer.split()
        for place in range(len(moves) - 1):
            other = [*moves[:place], moves[place + 1], moves[place], *moves[place + 2 :]]
            hint = f"<solution>{' '.join(other)}</solution>"
            if other != moves and check(problem, hint).correct:
                assert not reveals(hint, problem) and asyncio.run(gives_away(hint, problem))
                assert not asyncio.run(gives_away(f"<solution>{'up ' * 30}</solution>", problem))
                return
    pytest.fail("no maze has two ways")
