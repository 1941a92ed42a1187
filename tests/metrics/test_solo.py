"""avg@k, pass@k and maj@k against numbers worked out by hand, a count of all draws, and laws that must hold."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.engines.base import Sample
from tutelage.lessons import Episode, Turn
from tutelage.metrics import TABLES, Estimate, described, measure
from tutelage.metrics.solo import agreeing, doublings, majority, passed
from tutelage.problem import Verdict


def turn(said: str, gold: str, tokens: int = 10, seconds: float = 1.0) -> Turn:
    """An answer that is right if it is spelled like the gold one; ? is unparsed, and a ! behind means cut off."""
    finish, said = ("length", said[:-1]) if said.endswith("!") else ("stop", said)
    verdict = Verdict("unparsed") if said == "?" else Verdict("correct" if said == gold else "incorrect", said)
    return Turn("student", "alone", Sample("", finish, tokens, seconds=seconds), verdict)  # type: ignore[arg-type]


def lesson(uid: str, gold: str, *answers: str, **numbers: float) -> Episode:
    return Episode("solo", uid, "", gold, alone=tuple(turn(said, gold, **numbers) for said in answers))  # type: ignore[arg-type]


#                          right  pass@1  pass@2           pass@4  majority
TABLE = [
    lesson("a", "7", "7", "7", "3", "5"),  #  2   1/2     1 - 1/6 = 5/6    1       7: 2 votes against 1 and 1
    lesson("b", "7", "7", "4", "4.0", "?!"),  #  1   1/4     1/2              1       4 and 4.0 agree: 2 against 1
    lesson("c", "7", "7", "7", "2", "2"),  #  2   1/2     5/6              1       a draw of two: 1/2
    lesson("d", "7", "?", "?!", "9!", "9"),  #  0   0       0                0       0
]
BY_HAND = {
    "avg@4": 5 / 16,
    "pass@1": 5 / 16,
    "pass@2": (5 / 6 + 1 / 2 + 5 / 6 + 0) / 4,
    "pass@4": 3 / 4,
    "maj@4": (1 + 0 + 1 / 2 + 0) / 4,
    "unparsed_alone": 3 / 16,
    "completion_rate_alone": 13 / 16,
    "student_tokens_alone": 10,
    "generation_seconds_alone": 1,
}


def test_the_table_worked_out_by_hand() -> None:
    found = measure(TABLE, resamples=200)
    assert {name: estimate.value for name, estimate in found.items()} == pytest.approx(BY_HAND)
    for name in BY_HAND:
        metric = described(name)
        assert metric and metric.label and "{" not in metric.label + metric.about
    assert described("avg@16") and described("apg") and described("reward") is None


def test_one_answer_is_its_own_average_and_majority() -> None:
    found = measure([lesson("a", "7", "7"), lesson("b", "7", "4")], resamples=0)
    assert {found[name].value for name in ("avg@1", "pass@1", "maj@1")} == {0.5}
    assert list(found)[:3] == ["avg@1", "pass@1", "maj@1"]


@pytest.mark.parametrize(("n", "ks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (12, [1, 2, 4, 8, 12])])
def test_doublings(n: int, ks: list[int]) -> None:
    assert doublings(n) == ks


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_right_answer(right: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(right)))
    draws = list(combinations(right, k))
    assert passed(len(right), sum(right), k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(
    ("answers", "gold", "expected"),
    [
        (["7", "?", "?", "?"], "7", 1),  # what was not said has no vote
        (["?", "?"], "7", 0),
        (["7", "1", "2", "3"], "7", 1 / 4),
        (["7", "7", "1", "1", "2", "2", "3"], "7", 1 / 3),
        (["7", "1/2", "0.5", "\\frac{1}{2}"], "7", 0),
        (["7", "12 pens", "12", "$12$"], "7", 0),
        (["A", "A", "B", "(B)", "B. Paris"], "A", 0),  # letters of choices
        (["A", "A", "(C)", "B"], "A", 1),
    ],
)
def test_majorities(answers: list[str], gold: str, expected: float) -> None:
    assert majority(lesson("a", gold, *answers)) == pytest.approx(expected)


@given(st.lists(st.sampled_from("1 1.0 2 two x X".split()), max_size=8))
def test_votes_are_all_counted(answers: Sequence[str]) -> None:
    votes = agreeing(answers)
    assert sum(votes) == len(answers) and all(votes)


ANSWERS = st.lists(st.sampled_from(["7", "4", "5", "?", "?!", "4!"]), min_size=4, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(ANSWERS, min_size=1, max_size=8), st.randoms())
def test_laws(problems: list[list[str]], random: object) -> None:
    episodes = [lesson(str(uid), "7", *answers) for uid, answers in enumerate(problems)]
    found = measure(episodes, resamples=500)
    value = {name: estimate.value or 0.0 for name, estimate in found.items()}
    assert value["avg@4"] == pytest.approx(value["pass@1"])
    assert value["pass@1"] <= value["pass@2"] + 1e-9 <= value["pass@4"] + 2e-9
    assert value["maj@4"] <= value["pass@4"] + 1e-9
    for estimate in found.values():
        assert estimate.low is not None and estimate.value is not None and estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high
    shuffled = list(episodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert measure(shuffled, resamples=500) == found


def test_whole_problems_are_drawn() -> None:
    # every problem is right 2 times of 4: answers differ, problems do not, so nothing is left to chance
    alike = measure([lesson(str(uid), "7", "7", "4", "7", "5") for uid in range(20)], resamples=300)
    assert alike["avg@4"] == Estimate(0.5, 0.5, 0.5)
    # as many right answers in whole problems: the interval is that of 20 coins, about ±22 points
    whole = measure([lesson(str(uid), "7", *("7" if uid % 2 else "4") * 4) for uid in range(20)])["avg@4"]
    assert whole.value == 0.5 and whole.low is not None and whole.high is not None
    assert 0.35 < whole.high - whole.low <= 0.5


def test_what_cannot_be_measured_together_says_so() -> None:
    with pytest.raises(ValueError, match="measure them apart"):
        measure([lesson("a", "7", "7"), lesson("b", "7", "7", "7")])
    adaptive = Episode("adaptive", "b", "", "7", alone=(turn("7", "7"),), taught=(turn("7", "7"),))
    with pytest.raises(ValueError, match="measure them apart"):
        measure([lesson("a", "7", "7"), adaptive])
    with pytest.raises(ValueError, match="lesson q7 has no attempts alone"):
        measure([lesson("q7", "7")])


def test_a_name_means_the_same_in_every_table() -> None:
    names = ["avg@4", "pass@2", "maj@4"]
    tables = [table.metrics(names) for table in TABLES.values()]
    for one in tables:
        for other in tables:
            assert all(one[name].label == other[name].label for name in one.keys() & other.keys())
