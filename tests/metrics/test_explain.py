"""Explanations against numbers worked out by hand, with and without answers of the student."""

from dataclasses import replace
from typing import Any

import pytest

from tutelage.engines.base import Sample
from tutelage.lessons import Episode, Scores, Turn
from tutelage.metrics import METRICS, described, measure
from tutelage.metrics.explain import opening
from tutelage.problem import Verdict


def turn(right: bool) -> Turn:
    return Turn("student", "alone", Sample("", "stop", 10), Verdict("correct" if right else "incorrect", "1"))


def lesson(uid: str, scores: Scores, unaided: tuple[float, ...], alone: str, taught: str, **more: Any) -> Episode:
    """Answers are marks: + right, - wrong."""
    before, after = (tuple(turn(mark == "+") for mark in marks) for marks in (alone, taught))
    told: dict[str, object] = {"teaching": "hm", "teaching_tokens": 100, **more}
    return Episode(
        "explain", uid, "", "1", alone=before, taught=after, scores=scores, meta={"unaided": unaided}, **told
    )  # type: ignore[arg-type]


# form, the student's log-probs of solution and thought, the teacher's, restated
A = Scores("closed", (-1.0, -3.0), (-2.0, -2.0), (-1.0, -0.5), 0.5)  # mean -2, KL mean of 1 and 1.5
B = Scores("trailing", (-0.5,), (-1.0,), (-1.0,), 0.0)  # mean -0.5, KL 0
C = Scores("closed", (-3.5,), (-1.0,), None, 1.0)  # mean -3.5, nothing to compare with
TABLE = [
    lesson("a", A, (-4.0, -4.0), "+-", "++"),  # gains 2
    lesson("b", B, (-1.0,), "--", "+-", malformed=True, teaching="Look.\nSo it is 1."),  # gains 0.5
    lesson("c", C, (-3.0,), "++", "+-", leaked=True, teaching="Answer: 1. Why?"),  # loses 0.5
    lesson("d", Scores("closed", (-9.0,), unscored="too long"), (-9.0,), "-", "-", teaching=None, teaching_tokens=300),
]
BY_HAND = {
    "solution_logprob": -3.75,  # (-2 - 0.5 - 3.5 - 9) / 4: d could not be shown
    "solution_logprob_alone": -4.25,  # (-4 - 1 - 3 - 9) / 4
    "solution_gain": 0.5,  # (2 + 0.5 - 0.5 + 0) / 4
    "explanation_kl": 0.625,  # (1.25 + 0) / 2
    "restated": 0.375,  # (0.5 + 0 + 1 + 0) / 4
    "answer_first": 0.25,  # c
    "unscored_rate": 0.25,
    "teaching_tokens": 150,
    "malformed_rate": 0.25,
    "leak_rate": 1 / 3,
}
ANSWERED = {"baseline_accuracy": 0.375, "taught_accuracy": 0.5, "apg": 0.125, "ndr": 0.75}


def values(episodes: list[Episode]) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in measure(episodes, resamples=0).items()}


def test_the_table_worked_out_by_hand() -> None:
    found = values(TABLE)
    assert {name: found[name] for name in BY_HAND | ANSWERED} == pytest.approx(BY_HAND | ANSWERED)
    assert METRICS.keys() < found.keys()
    assert all(described(name) for name in found)


def test_explanations_that_nobody_was_asked_about() -> None:
    found = values([replace(episode, alone=(), taught=(), meta={}) for episode in TABLE])
    without = {"solution_logprob_alone", "solution_gain"}
    assert found == pytest.approx({name: value for name, value in BY_HAND.items() if name not in without})
    with pytest.raises(ValueError, match="lesson q7 has no scores"):
        measure([Episode("explain", "q7", "", "")])


def test_a_metric_is_of_all_lessons_that_have_it() -> None:
    """Two more lessons without an answer: what all have is of six, answers and what gives them away are of four."""
    bare = replace(lesson("e", B, (-2.5,), "", "", malformed=True), answer="")
    mixed = [*TABLE, bare, replace(bare, uid="f")]
    found = values(mixed)
    assert found == values(mixed[::-1]) and list(found) == list(values(TABLE))
    of_six = {
        "solution_logprob": -16 / 6,  # 2 x -0.5 to the -15 of four
        "solution_logprob_alone": -22 / 6,
        "solution_gain": 1.0,  # 2 x 2 to the 2 of four
        "explanation_kl": 1.25 / 4,
        "restated": 1.5 / 6,
        "malformed_rate": 0.5,
        "unscored_rate": 1 / 6,
        "teaching_tokens": 800 / 6,
    }
    of_four = {"answer_first": 0.25, "leak_rate": 1 / 3, **ANSWERED}
    assert {name: found[name] for name in of_six | of_four} == pytest.approx(of_six | of_four)
    asked_of_nobody = [replace(episode, alone=(), taught=(), meta={}) for episode in mixed]  # as they are in training
    assert values(asked_of_nobody)["leak_rate"] == pytest.approx(1 / 3)
    assert not {"leak_rate", "answer_first"} & values([bare]).keys()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It is 72. Why?", "It is 72."),
        ("Answer:\n72\nand so on", "Answer: 72"),
        ("**Answer:**\n\n72", "Answer: 72"),
        ("1. The answer is 72. Next.", "The answer is 72."),
        ("Mr. Smith has 3. So has Mrs. Smith.", "Mr. Smith has 3."),
        ("-5 is it\nbecause", "-5 is it"),
        ("", ""),
    ],
)
def test_how_an_explanation_begins(text: str, first: str) -> None:
    assert opening(text) == first
