"""What dialogues show, against numbers worked out by hand and laws that must hold."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.engines import Sample
from tutelage.lessons import Episode, Turn
from tutelage.metrics import Estimate, to_dict
from tutelage.metrics.turns import METRICS, SPECIFIC, Totals, measure, metrics, same, specific, totals
from tutelage.problem import Outcome, Verdict

OUTCOMES: dict[str, Outcome] = {"+": "correct", "-": "incorrect", "?": "unparsed"}


def dialogue(uid: str, *said: str, hint: int = 0, leaked: bool = False, **meta: int) -> Episode:
    """Attempts are a mark, the answer, and a ! where the limit cut them off: `-7` is a wrong 7. Each has 10 tokens."""
    turns: list[Turn] = []
    for text in said:
        finish = "length" if text.endswith("!") else "stop"
        verdict = Verdict(OUTCOMES[text[0]], text[1:].rstrip("!") or None)
        turns.append(Turn("student", "attempt", Sample("", finish, 10), verdict))  # type: ignore[arg-type]
        turns.append(Turn("teacher", "hint", Sample("", "stop", 0 if text[0] == "?" else hint)))
    known = {"flagged": 0, "regenerations": 0, "overflow": False} | meta
    return Episode("feedback", uid, "", "", tuple(turns[:-1]), leaked=leaked, meta=known)


TAUGHT = [
    dialogue("a", "+5"),
    dialogue("a", "-4", "+5", hint=6),
    dialogue("b", "-4", "-4.0", "-3", hint=9, regenerations=3),
    dialogue("b", "?", "-4", "?!", hint=3, flagged=1, leaked=True, overflow=1),
]
BY_HAND = {
    "acc@1": 1 / 4,
    "acc@2": 2 / 4,
    "acc@3": 2 / 4,
    "gain": 1 / 4,
    "csr": 1 / 4,  # wrong and tried again: a2, b1 twice, b2; corrected: a2
    "plasticity": 2 / 3,  # an answer followed: a2 other, b1 the same (4.0) and other; b2's is unparsed
    "turns": 9 / 4,
    "unparsed": 2 / 9,
    "truncated": 1 / 9,
    "attempt_tokens": 10,
    "hint_tokens": (6 + 9 + 9 + 3) / 4,  # what follows an unparsed reply is no hint
    "leaked": 1 / 4,
    "flagged": 1 / 4,
    "regenerations": 3 / 4,
    "overflow": 1 / 4,
    "refused": 0,
}


def values(found: dict[str, Estimate]) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in found.items()}


def test_the_table_worked_out_by_hand() -> None:
    assert values(measure(totals(TAUGHT, 3), 3)) == pytest.approx(BY_HAND)
    assert list(metrics(3)) == list(BY_HAND) and all(metric.label and metric.about for metric in METRICS.values())


def test_what_is_left_when_a_control_is_subtracted() -> None:
    control = [dialogue("a", "-4", "-4", "+5"), dialogue("b", "-4", "-3", "-4"), dialogue("c", "+1")]
    found = specific(totals(TAUGHT, 3), totals(control, 3), 3)
    # control on a and b: acc@3 1/2, gain 1/2, csr 1/4, plasticity 3/4; c has no partner
    assert values(found) == pytest.approx({"acc@3": 0.0, "gain": -1 / 4, "csr": 0.0, "plasticity": 2 / 3 - 3 / 4})
    assert specific(totals(TAUGHT, 3), {}, 3)["gain"] == Estimate(None, None, None)


def test_what_never_happened_is_undefined() -> None:
    found = measure(totals([dialogue("a", "+5"), dialogue("b", "+5")], 2), 2)
    for name in ("csr", "plasticity", "hint_tokens", "regenerations"):
        assert found[name] == Estimate(None, None, None)
    assert found["acc@2"] == Estimate(1, 1, 1) and found["gain"] == Estimate(0, 0, 0)
    json.dumps(to_dict(found), allow_nan=False)
    with pytest.raises(ValueError, match="no dialogues to measure"):
        measure({}, 2)


def test_intervals_are_over_problems_and_not_over_dialogues() -> None:
    # ten dialogues on each of two problems, one always solved: the only resamples are 0, 1/2 and 1
    repeated = [dialogue("a", "+1")] * 10 + [dialogue("b", "-2")] * 10
    assert measure(totals(repeated, 1), 1)["acc@1"] == Estimate(0.5, 0.0, 1.0)


def test_pairs_are_drawn_together() -> None:
    """Noise that both sides share cancels: each problem has the same difference, so the interval has no width."""
    taught = [dialogue(str(n), *(["+5"] if n % 2 else ["-4", "+5"])) for n in range(20)]
    control = [dialogue(str(n), *(["+5"] if n % 2 else ["-4", "-4"])) for n in range(20)]
    same_difference = specific(totals(taught, 2), totals(taught, 2), 2)
    assert all(found == Estimate(0, 0, 0) for found in same_difference.values())
    gain = specific(totals(taught, 2), totals(control, 2), 2)["gain"]
    assert gain.value == 0.5 and gain.low is not None and gain.low > 0


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("12", "12.0", True),
        ("Paris", "paris.", True),
        ("a  b", "a b", True),
        ("12", "13", False),
        ("x" * 300, "X" * 300, False),
    ],
)
def test_the_same_answer_in_other_words(one: str, other: str, equal: bool) -> None:
    assert same(one, other) is equal


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [("(A)", "A", True), ("A) Rome", "A", True), ("rome", "A", True), ("A", "B", False), ("Oslo", "A", False)],
)
def test_the_same_choice_by_its_letter_or_its_words(one: str, other: str, equal: bool) -> None:
    assert same(one, other, ["Rome", "Paris"]) is equal
    asked = dialogue("a", f"-{one}", f"-{other}")
    asked.meta["choices"] = ["Rome", "Paris"]
    assert measure(totals([asked], 2), 2, resamples=100)["plasticity"].value == (not equal)


attempts = st.builds(
    lambda wrong, last: [*wrong, last],
    st.lists(st.sampled_from(["-1", "-2", "?", "-1!"]), max_size=3),
    st.sampled_from(["+9", "-1", "?!"]),
)
sets = st.lists(
    st.builds(lambda uid, said: dialogue(uid, *said), st.sampled_from("abc"), attempts), min_size=1, max_size=9
)


@settings(max_examples=50, deadline=None)
@given(sets)
def test_laws(episodes: list[Episode]) -> None:
    found = measure(totals(episodes, 4), 4, resamples=50)
    accuracy = [found[f"acc@{turn}"].value or 0.0 for turn in range(1, 5)]
    assert accuracy == sorted(accuracy) and found["gain"].value == pytest.approx(accuracy[-1] - accuracy[0])
    assert all(e.value is None or e.low is None or e.low <= e.high for e in found.values())  # type: ignore[operator]
    assert measure(totals(episodes[::-1], 4), 4, resamples=50) == found
    csr, plasticity = found["csr"].value, found["plasticity"].value
    assert csr is None or plasticity is None or csr <= plasticity + 1e-12  # a right answer is another answer
    mine: Totals = totals(episodes, 4)
    for name, estimate in specific(mine, mine, 4, resamples=50).items():
        assert estimate.value in (0, None) and (estimate.value is None) == (found[name].value is None)
        assert name == "acc@4" or name in SPECIFIC
