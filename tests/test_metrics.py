"""The metrics against numbers worked out by hand, laws that must hold, and a slow bootstrap."""

import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.engines.base import Sample
from tutelage.lessons.episode import Act, Episode, Turn
from tutelage.metrics import METRICS, Estimate, bootstrap, measure, to_dict
from tutelage.problem import Outcome, Verdict

OUTCOMES: dict[str, Outcome] = {"+": "correct", "-": "incorrect", "?": "unparsed"}


def attempt(act: Act, mark: str, tokens: int = 10, seconds: float = 1.0) -> Turn:
    """`mark` is + correct, - incorrect or ? unparsed, with a ! behind it where the token limit cut it off."""
    sample = Sample("", "length" if mark.endswith("!") else "stop", tokens, seconds=seconds)
    return Turn("student", act, sample, Verdict(OUTCOMES[mark[0]]))


def lesson(uid: str, alone: Sequence[Any], taught: Sequence[Any] | None, tokens: int = 100, **more: Any) -> Episode:
    """Attempts are marks, or (mark, tokens, seconds); no `taught` means that the teacher abstained."""
    before = tuple(attempt("alone", *each) for each in alone)
    if taught is None:
        return Episode("adaptive", uid, "", "", alone=before, taught=before, **more)
    after = tuple(attempt("taught", *each) for each in taught)
    return Episode("adaptive", uid, "", "", alone=before, taught=after, teaching="hm", teaching_tokens=tokens, **more)


def values(episodes: Sequence[Episode]) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in measure(episodes, resamples=0).items()}


#             alone: (mark, tokens, seconds)           taught                                       b     t
TABLE = [
    lesson("a", [("+", 10, 1), ("-!", 30, 3)], [("+", 8, 0.5), ("+", 12, 1.5)], 100),  #           1/2    1
    lesson("b", [("+", 20, 2)], None),  #                                                            1     1
    lesson("c", [("+", 10, 1), ("+", 10, 1)], [("+", 10, 1), ("?!", 50, 4)], 200, malformed=True),  # 1   1/2
    lesson("d", [("-!", 40, 4), ("?!", 40, 4)], [("+", 20, 2)], 100, leaked=True),  #                0     1
]
BY_HAND = {
    "baseline_accuracy": 0.625,  # (1/2 + 1 + 1 + 0) / 4
    "taught_accuracy": 0.875,  # (1 + 1 + 1/2 + 1) / 4
    "apg": 0.25,  # (1/2 + 0 - 1/2 + 1) / 4
    "ndr": 0.75,  # a, b, d
    "degradation_rate": 0.25,  # c
    "improvement_rate": 0.5,  # a, d
    "degradation_unparsed": 1.0,  # c is the only degraded lesson and has a ?
    "lr": 1 / 3,  # gains of 1 in all, over the 3 lessons that taught
    "tes": 0.25 * (5 / 6) / 0.1,  # APG x completion / (100 tokens / 1000)
    "completion_rate_alone": 4 / 7,  # 1 of 2, 1 of 1, 2 of 2, 0 of 2
    "completion_rate": 5 / 6,  # 2 of 2, 1 of 1, 1 of 2, 1 of 1
    "teaching_tokens": 100,  # (100 + 0 + 200 + 100) / 4
    "student_tokens_alone": 160 / 7,  # 10 + 30 + 20 + 10 + 10 + 40 + 40
    "student_tokens": 120 / 6,  # 8 + 12 + 20 + 10 + 50 + 20
    "abstention_rate": 0.25,  # b
    "malformed_rate": 0.25,  # c
    "leak_rate": 1 / 3,  # d, of a, c and d
    "unparsed_alone": 1 / 7,
    "unparsed_taught": 1 / 6,
    "generation_seconds_alone": 16 / 7,  # 1 + 3 + 2 + 1 + 1 + 4 + 4
    "generation_seconds": 11 / 6,  # 0.5 + 1.5 + 2 + 1 + 4 + 2
}


def test_the_table_worked_out_by_hand() -> None:
    assert values(TABLE) == pytest.approx(BY_HAND)


def test_every_metric_is_described_and_in_the_table() -> None:
    assert list(METRICS) == list(BY_HAND)
    assert all(metric.label and metric.about for metric in METRICS.values())


def test_a_parse_failure_is_not_mistaken_for_a_wrong_answer() -> None:
    parsed = [lesson("a", "+", "-"), lesson("b", "+", "-"), lesson("c", "-", "?"), lesson("d", "+", "+")]
    assert values(parsed)["degradation_unparsed"] == 0  # c is unparsed but was wrong before
    unparsed = [lesson("a", "+", "-"), lesson("b", "+", "?"), lesson("c", "-", "?"), lesson("d", "+", "+")]
    assert values(unparsed)["degradation_unparsed"] == 0.5  # b, of a and b
    assert values(unparsed)["degradation_rate"] == values(parsed)["degradation_rate"] == 0.5


def test_equal_shares_of_unequal_samples_are_no_degradation() -> None:
    shares = [lesson("a", "+--", "+--+--"), lesson("b", "++-++-++-", "-++")]
    assert values(shares)["ndr"] == 1 and values(shares)["improvement_rate"] == 0


def test_what_nobody_did_is_undefined() -> None:
    nobody_taught = measure([lesson("a", "+", None), lesson("b", "-", None)])
    for name in ("lr", "tes", "leak_rate", "degradation_unparsed"):
        assert nobody_taught[name] == Estimate(None, None, None)
    json.dumps(to_dict(nobody_taught), allow_nan=False)


def test_resamples_in_which_a_metric_is_undefined_are_left_out() -> None:
    # of 3 lessons 1 taught: (2/3)^3 = 30% of the resamples hold no teaching at all
    one = measure([lesson("a", "+", None), lesson("b", "+", None), lesson("c", "-", "+", leaked=True)])
    assert one["leak_rate"] == Estimate(1, 1, 1) and one["lr"] == Estimate(1, 1, 1)
    assert one["abstention_rate"].low == 0 and one["abstention_rate"].high == 1


def test_a_leak_that_reached_nobody_is_no_leak() -> None:
    assert values([lesson("a", "+", None, leaked=True), lesson("b", "+", "+")])["leak_rate"] == 0


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        ([], "no lessons to measure"),
        ([lesson("q7", "", "+")], "lesson q7 has no attempts alone"),
        ([lesson("q7", "+", "")], "lesson q7 has no attempts taught"),
        (
            [replace(TABLE[0], taught=(Turn("student", "taught", Sample("", "stop", 1)),))],
            "without a verdict taught",
        ),
    ],
)
def test_what_cannot_be_measured_says_why(episodes: list[Episode], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        measure(episodes)


MARKS = st.sampled_from(["+", "-", "?", "+!", "-!", "?!"])
ATTEMPTS = st.lists(st.tuples(MARKS, st.integers(0, 500), st.floats(0, 9)), min_size=1, max_size=4)
LESSONS = st.builds(
    lesson,
    uid=st.sampled_from("abcdefgh"),  # few, so that many lessons share one
    alone=ATTEMPTS,
    taught=st.none() | ATTEMPTS,
    tokens=st.integers(0, 300),
    leaked=st.booleans(),
    malformed=st.booleans(),
)
SETS = st.lists(LESSONS, min_size=1, max_size=12)
check = settings(deadline=None, max_examples=60)


@check
@given(SETS)
def test_laws(episodes: list[Episode]) -> None:
    found = values(episodes)
    value = {name: 0.0 if number is None else number for name, number in found.items()}
    assert value["ndr"] + value["degradation_rate"] == pytest.approx(1)
    assert value["improvement_rate"] <= value["ndr"] + 1e-9
    assert value["apg"] == pytest.approx(value["taught_accuracy"] - value["baseline_accuracy"])
    assert -1 <= value["apg"] <= 1
    assert all(0 <= value[name] <= 1 for name, metric in METRICS.items() if metric.unit == "percent")
    assert (found["lr"] is None) == all(episode.abstained for episode in episodes)


@check
@given(st.lists(LESSONS.filter(lambda episode: episode.abstained), min_size=1, max_size=12))
def test_abstaining_always_changes_nothing(episodes: list[Episode]) -> None:
    found = measure(episodes, resamples=50)
    assert found["apg"] == Estimate(0, 0, 0) and found["ndr"] == Estimate(1, 1, 1)
    assert found["completion_rate"] == found["completion_rate_alone"]
    assert found["student_tokens"] == found["student_tokens_alone"]


@check
@given(st.data())
def test_the_order_of_the_lessons_does_not_matter(data: st.DataObject) -> None:
    episodes = data.draw(SETS)
    shuffled = data.draw(st.permutations(episodes))
    assert measure(shuffled, resamples=50) == measure(iter(episodes), resamples=50)


@check
@given(SETS)
def test_the_interval_holds_the_value_of_every_mean(episodes: list[Episode]) -> None:
    found = measure(episodes, resamples=500)
    for name in ("baseline_accuracy", "taught_accuracy", "apg", "ndr", "teaching_tokens", "abstention_rate"):
        value, low, high = found[name].value, found[name].low, found[name].high
        assert value is not None and low is not None and high is not None
        assert low <= value <= high


@check
@given(LESSONS, st.integers(1, 30))
def test_lessons_that_are_all_alike_have_no_width(episode: Episode, n: int) -> None:
    for estimate in measure([replace(episode, uid=str(i)) for i in range(n)], resamples=50).values():
        assert estimate.low == estimate.value == estimate.high


def simulated(n: int, rng: np.random.Generator, attempts: int = 4) -> list[Episode]:
    """True baseline 0.4 and taught 0.6; 30% abstain; 100 to 300 teaching tokens; 90% of taught complete."""

    def marks(p: float) -> list[tuple[str]]:
        return [("+" if right else "-",) for right in rng.random(attempts) < p]

    episodes = []
    for i in range(n):
        taught = None if rng.random() < 0.3 else [(m + "!" * (rng.random() < 0.1),) for (m,) in marks(0.6)]
        episodes.append(lesson(str(i), marks(0.4), taught, int(rng.integers(100, 301))))
    return episodes


def test_widths_shrink_with_more_lessons() -> None:
    rng = np.random.default_rng(3)
    small, large = (measure(simulated(n, rng), resamples=400) for n in (40, 640))
    for name in ("baseline_accuracy", "taught_accuracy", "apg", "ndr", "lr", "tes", "completion_rate"):
        a, b = small[name], large[name]
        assert a.high is not None and a.low is not None and b.high is not None and b.low is not None
        assert 0 < (b.high - b.low) < 0.5 * (a.high - a.low)  # 16 times the lessons: a quarter of the width


def test_the_95_percent_interval_holds_the_truth_95_percent_of_the_time() -> None:
    # per lesson: gain 0.7 x 0.2, teaching tokens 0.7 x 200, completion 0.7 x 0.9 + 0.3
    truth = {
        "apg": 0.14,
        "lr": 0.2,
        "baseline_accuracy": 0.4,
        "tes": 0.14 * 0.93 / 0.14,
        "abstention_rate": 0.3,
    }
    rng, sets, inside = np.random.default_rng(11), 400, dict.fromkeys(truth, 0)
    for _ in range(sets):
        found = measure(simulated(80, rng, attempts=2), resamples=400)
        for name, true in truth.items():
            low, high = found[name].low, found[name].high
            assert low is not None and high is not None
            inside[name] += low <= true <= high
    for name, count in inside.items():  # 400 sets have a standard error of 1.1 points
        assert 0.91 <= count / sets <= 0.98, name


def test_the_bootstrap_is_paired() -> None:
    # the gain is 1/4 in every lesson, however they differ: only unpaired draws would give it width
    rng = np.random.default_rng(5)
    rights = rng.integers(0, 4, size=50)
    paired = [lesson(str(i), "+" * k + "-" * (4 - k), "+" * (k + 1) + "-" * (3 - k)) for i, k in enumerate(rights)]
    found = measure(paired)
    assert found["apg"] == Estimate(0.25, 0.25, 0.25)
    assert found["baseline_accuracy"].low != found["baseline_accuracy"].high


def test_it_is_the_plain_bootstrap_only_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "CELLS", 100)  # seven resamples at a time, the last ones fewer
    episodes = sorted(simulated(14, np.random.default_rng(2)), key=lambda episode: episode.uid)
    drawn = np.random.default_rng(9).integers(14, size=(40, 14))
    plain = [values([episodes[i] for i in row]) for row in drawn]
    for name, estimate in measure(episodes, resamples=40, seed=9, confidence=0.8).items():
        defined = [number for each in plain if (number := each[name]) is not None]
        if defined:
            assert [estimate.low, estimate.high] == pytest.approx(list(np.quantile(defined, [0.1, 0.9])))
        else:
            assert estimate.value is None


def test_the_seed_decides_the_interval_and_never_the_value() -> None:
    episodes = simulated(30, np.random.default_rng(1))
    one, again, other = measure(episodes, seed=1), measure(episodes, seed=1), measure(episodes, seed=2)
    assert one == again != other
    assert {k: v.value for k, v in one.items()} == {k: v.value for k, v in other.items()}


def test_json_holds_everything() -> None:
    data = json.loads(json.dumps(to_dict(measure(TABLE)), allow_nan=False))
    assert data["apg"].keys() == {"value", "low", "high"} and data.keys() == METRICS.keys()


def test_ten_thousand_lessons_fit_in_memory() -> None:
    columns = np.random.default_rng(0).random((10_000, 25))
    tracemalloc.start()
    sums = np.concatenate(list(bootstrap.resampled(columns, 2000, 0)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sums.shape == (2000, 25) and peak < 200e6
