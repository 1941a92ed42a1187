"""Credit in dialogues by hand and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.engines import Sample
from tutelage.lessons import Episode, Turn
from tutelage.problem import Verdict
from tutelage.rewards.feedback import advantages, returns


def dialogue(marks: str, score: float = 0.0, flagged: int = 0, leaked: bool = False, most: int = 0) -> Episode:
    """`marks`: + correct, - incorrect, ? unparsed; `score` is the last attempt's, if it is not correct;
    `most` is max_turns, where the record has it."""
    turns: list[Turn] = []
    for place, mark in enumerate(marks, start=1):
        outcome = {"+": "correct", "-": "incorrect", "?": "unparsed"}[mark]
        partly = score if place == len(marks) else 0.0
        verdict = Verdict(outcome, score=1.0 if mark == "+" else partly)  # type: ignore[arg-type]
        turns.append(Turn("student", "attempt", Sample("", "stop", 1), verdict))
        turns.append(Turn("teacher", "hint", Sample("", "stop", 0)))
    meta = {"flagged": flagged} | ({"max_turns": most} if most else {})
    return Episode("feedback", "u", "q", "a", tuple(turns[:-1]), leaked=leaked, meta=meta)


@pytest.mark.parametrize(
    ("marks", "score", "expected"),
    [
        ("+", 0.0, [1.0]),
        ("-+", 0.0, [0.7, 1.0]),
        ("-?+", 0.0, [0.49, 0.7, 1.0]),
        ("---", 0.0, [0.0, 0.0, 0.0]),
        ("--", 0.5, [0.35, 0.5]),  # half of the tests pass at the end
        ("-+", 0.5, [0.7, 1.0]),
        ("-?", 0.0, [0.0, 0.0]),
    ],
)
def test_returns(marks: str, score: float, expected: list[float]) -> None:
    assert returns(dialogue(marks, score)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("-----", [0.12005, 0.1715, 0.245, 0.35, 0.5]),  # all five turns, half of the tests pass at the end
        ("-", [0.12005]),  # as much, where the context was full after the first
        ("--", [0.12005, 0.1715]),
        ("----+", [0.2401, 0.343, 0.49, 0.7, 1.0]),  # to solve it, however late, is worth more
        ("-+", [0.7, 1.0]),
    ],
)
def test_a_full_context_does_not_pay(marks: str, expected: list[float]) -> None:
    assert returns(dialogue(marks, 0.5, most=5)) == pytest.approx(expected)


@given(st.integers(1, 5), st.integers(1, 5), st.floats(0, 0.99), st.floats(0, 1))
def test_when_an_unsolved_dialogue_ends_makes_no_difference(short: int, long: int, score: float, gamma: float) -> None:
    ends = [returns(dialogue("-" * turns, score, most=5), gamma)[0] for turns in (short, long)]
    assert ends[0] == ends[1] <= returns(dialogue("----+", most=5), gamma)[0]


def test_partial_credit_can_be_weighed_down_or_left_out() -> None:
    assert returns(dialogue("--", 0.5), partial=0.5) == pytest.approx([0.175, 0.25])
    assert returns(dialogue("--", 0.5), partial=0.0) == [0.0, 0.0]
    assert returns(dialogue("-+", 0.5), partial=0.0) == pytest.approx([0.7, 1.0])


def test_advantages_worked_out_by_hand() -> None:
    group = [dialogue("+"), dialogue("-+"), dialogue("---"), dialogue("--+")]
    # returns: [1], [.7, 1], [0, 0, 0], [.49, .7, 1]; means over those alive: 2.19/4, 1.7/3, 1/2
    assert [pytest.approx(each) for each in advantages(group)] == [
        [1 - 0.5475],
        [0.7 - 0.5475, 1 - 1.7 / 3],
        [-0.5475, -1.7 / 3, -0.5],
        [0.49 - 0.5475, 0.7 - 1.7 / 3, 0.5],
    ]
    assert [pytest.approx(each) for each in advantages(group, how="trajectory")] == [
        [0.4525],
        [0.1525] * 2,
        [-0.5475] * 3,
        [-0.0575] * 3,
    ]


def test_nothing_is_learned_from_a_dialogue_that_gave_the_answer_away() -> None:
    clean = [dialogue("-+"), dialogue("--")]
    group = [clean[0], dialogue("-+", leaked=True), clean[1], dialogue("-+", flagged=1)]
    first, leaked, second, flagged = advantages(group)
    assert leaked == flagged == [0.0, 0.0] and [first, second] == advantages(clean)
    assert advantages([dialogue("+", leaked=True)]) == [[0.0]]


marks = st.builds(lambda wrong, last: wrong + last, st.text("-?", max_size=4), st.sampled_from("+-?"))
groups = st.lists(st.builds(dialogue, marks, st.floats(0, 0.99), most=st.just(5)), min_size=1, max_size=8)
gammas = st.floats(0.1, 1)


@given(groups, gammas)
def test_advantages_of_those_alive_add_up_to_nothing(group: list[Episode], gamma: float) -> None:
    found = advantages(group, gamma)
    for turn in range(max(map(len, found))):
        assert sum(each[turn] for each in found if turn < len(each)) == pytest.approx(0, abs=1e-9)
    assert sum(each[0] for each in advantages(group, gamma, "trajectory")) == pytest.approx(0, abs=1e-9)


@given(marks, st.integers(1, 8), gammas, st.sampled_from(["turn", "trajectory"]))
def test_a_group_of_equals_teaches_nothing(one: str, size: int, gamma: float, how: str) -> None:
    for each in advantages([dialogue(one)] * size, gamma, how):  # type: ignore[arg-type]
        assert each == pytest.approx([0.0] * len(one), abs=1e-12)


@given(st.lists(st.sampled_from("+-?"), min_size=1, max_size=8), gammas, st.sampled_from(["turn", "trajectory"]))
def test_one_turn_is_the_plain_group_baseline(group: list[str], gamma: float, how: str) -> None:
    rewards = [float(mark == "+") for mark in group]
    mean = sum(rewards) / len(rewards)
    found = advantages([dialogue(mark) for mark in group], gamma, how)  # type: ignore[arg-type]
    assert found == [[pytest.approx(reward - mean)] for reward in rewards]


@given(groups, gammas)
def test_solved_sooner_is_worth_more_and_partly_right_less_than_solved(group: list[Episode], gamma: float) -> None:
    for episode in group:
        found = returns(episode, gamma)
        assert all(0 <= a <= b <= 1 for a, b in zip(found, [*found[1:], 1.0], strict=True))
