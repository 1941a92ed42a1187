"""A question's identity: what spelling may change without making it another one, and what may not."""

import pytest

from tutelage.problem import Problem, canonical


def uid(question: str) -> str:
    return Problem(question, "", "").uid


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 5²?", "What is 52?"),
        ("What is 10⁻³?", "What is 10-3?"),
        ("What is 101₂?", "What is 1012?"),
        ("Is it 2ⁿ?", "Is it 2n?"),
        ("What is x² for x = 3?", "What is x2 for x = 3?"),
        ("What is (1+2)²?", "What is (1+2)2?"),
        ("Solve 2x² = 8", "Solve 2x2 = 8"),
        ("Is it πr² or a²b²?", "Is it πr2 or a2b2?"),
    ],
)
def test_raised_and_lowered_digits_are_no_longer_number(one: str, other: str) -> None:
    assert uid(one) != uid(other)


def test_what_is_the_same_question() -> None:
    assert uid("What is 5¹²?") == uid("what  is ５^12?")
    assert canonical("H₂O in cm³") == "h2o in cm3"


@pytest.mark.parametrize(
    ("question", "known"),
    [
        ("What is 17 * 6?", "d37f9b6b6edc3821"),
        ("Fläche in cm² von  ＡＢＣ?", "c01836b90ffc263e"),
        ("Water is H₂O, half is ½.", "688a189b5ad17095"),
    ],
)
def test_a_uid_never_changes(question: str, known: str) -> None:
    """Splits and remembered samples are found by it."""
    assert uid(question) == known
