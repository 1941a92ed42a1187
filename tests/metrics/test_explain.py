"""What explanations show: means over those that have the number, by hand."""

import pytest

from tutelage.engines import Sample
from tutelage.lessons import Episode, Scores, Turn
from tutelage.metrics import measure
from tutelage.problem import Verdict


def lesson(uid: str, scores: Scores, **more: object) -> Episode:
    said = Turn("teacher", "explain", Sample("words", "stop", 3))
    return Episode("explain", uid, "?", "4", (said,), teaching="words", teaching_tokens=2, scores=scores, **more)


def answers(*right: bool) -> tuple[Turn, ...]:
    return tuple(
        Turn("student", "alone", Sample("4", "stop", 1), Verdict("correct" if one else "incorrect")) for one in right
    )


def test_means_over_what_is_defined() -> None:
    whole = Scores("closed", (-1.0, -3.0), (-1.0, -2.0), (-0.5, -0.5), restated=0.5)
    shows = measure(
        [
            lesson("a", whole, alone=answers(True, False), taught=answers(True, True)),
            lesson("b", Scores("missing", unscored="too long", teacher=None), malformed=True, leaked=True),
            lesson("c", Scores("empty", (-4.0,))),
        ]
    )
    found = {name: estimate.value for name, estimate in shows.items()}
    assert found == pytest.approx({
        "solution_logprob": -3, "thought_logprob": -1.5, "kl": 1, "restated": 0.5 / 3, "answer_stated": 1 / 3,
        "malformed_rate": 1 / 3, "unscored": 1 / 3, "teaching_tokens": 2, "baseline_accuracy": 0.5,
        "taught_accuracy": 1, "apg": 0.5,
    })  # fmt: skip


def test_without_answers_accuracy_is_undefined() -> None:
    shows = measure([lesson("a", Scores("closed", (-1.0,)))])
    assert shows["apg"].value is shows["taught_accuracy"].value is shows["kl"].value is None


def test_a_lesson_without_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="has no scores"):
        measure([Episode("explain", "a", "?", "4")])
