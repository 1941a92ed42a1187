"""The leak check, by hand and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.lessons.leak import leaks, numbers

QUESTION = "What is 17 * 6?"


@pytest.mark.parametrize(
    ("teaching", "answer", "leaked"),
    [
        ("So you get 102.", "102", True),
        ("So you get 102.0 in all", "102", True),
        ("That makes one hundred", "102", False),
        ("17 * 6 = 10 * 6 + 7 * 6", "102", False),
        ("It is 1025, not more", "102", False),
        ("It is 0.102", "102", False),
        ("about 12,500 people", "12500", True),
        ("about 12500 people", "12,500", True),
        ("half, that is 0.5", "1/2", True),
        (r"it is \frac{1}{2}", "0.5", True),
        ("the result is -3", "-3", True),
        ("the result is 3", "-3", False),
        ("take 10-3 first", "-3", False),  # a difference, not the number minus three
        ("the result is twelve", "12", True),
        ("forty-two, of course", "42", True),
        ("forty, two", "42", False),
        ("think of PARIS!", "Paris", True),
        ("comparison", "Paris", False),
        ("the capital on the Seine", "Paris", False),
        ("choose (B)", "B", True),
        ("the answer is b", "B", True),
        ("a boat", "B", False),
        ("so x + 1 is left", "x+1", True),
        ("so x+11 is left", "x+1", False),
        ("anything", "", False),
    ],
)
def test_leaks(teaching: str, answer: str, leaked: bool) -> None:
    assert leaks(teaching, answer, (QUESTION,)) is leaked


def test_what_was_known_before_is_no_leak() -> None:
    assert leaks("You said 102: check it.", "102", (QUESTION, "I guess 102")) is False
    assert leaks("Start with the 17.", "17", (QUESTION, "")) is False
    assert leaks("Like Paris", "Paris", ("Is it Paris or Rome?",)) is False


def test_choices_by_text() -> None:
    options = ["red", "green"]
    assert leaks("The answer is green.", "B", ("Which colour?",), options)
    assert not leaks("Is it red or green?", "B", ("Which colour?",), options)


@given(st.integers(-(10**9), 10**9))
def test_any_number_is_found_however_grouped(value: int) -> None:
    assert value in numbers(f"it makes {value} apples")
    assert value in numbers(f"it makes {value:,} apples.")
    assert leaks(f"it makes {value:,}", str(value))


@given(st.text(), st.text(), st.text())
def test_total_on_any_text(teaching: str, answer: str, question: str) -> None:
    assert leaks(teaching, answer, (question,)) in (True, False)
