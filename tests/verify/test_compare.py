"""What can be decided without algebra is decided rightly, and the rest is left open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.verify.compare import expression, same_choice, same_math, same_text, same_words, tidy

MATH = [
    ("0.5", r"\frac{1}{2}", True),
    ("12500", "12,500", True),
    ("1,080", "1080", True),
    ("7/2", "2", False),
    ("2", "7/2", False),
    ("0.333", "0.334", False),
    ("1/3", "0.333", False),
    ("3", "-3", False),
    ("-3", "\N{MINUS SIGN}3", True),
    ("$5$", "5", True),
    (r"\(5\)", "$$5$$", True),
    ("5", "x = 5", True),
    ("x = 5", "5", True),
    ("x = 5", "x=6", False),
    ("x = 5", "y = 5", None),
    ("31/2", "3 1/2", False),
    (r"2\pi", "2π", True),
    (r"2\pi", "6.28", None),
    ("1", "x+1", None),
    ("5", "5x", None),
    ("(1,2)", r"\left(1,\, 2\right)", True),
    ("(1,2)", "(2,1)", None),
    (r"\text{Paris}", "paris", True),
    ("east", "seat", False),
    ("all real numbers", r"\mathbb{R}", None),
    (r"10\pi \text{ cm}", r"10\pi\text{ inches}", False),
    (r"10\pi \text{ cm}", r"10\pi", None),
    ("12", "Each gets 12 apples", None),
    ("102", "17 * 6", None),
    ("102", "17 * 6 = 102", True),
    ("102", r"$17 \times 6 = 102$", True),
    ("102 pens", "17 * 6 pens = 102 pens", True),
    ("102", "x = 17 * 6 = 102", True),
    ("y = 102", "x = 17 * 6 = 102", None),
    ("102", "103 = 102", False),
    ("102", "x = 103 = 102", False),
    ("102", "17 * 6 = 103", False),
    ("102", "102 = 17 * 6", None),
    ("3.33", "10 / 3 = 3.33", True),
    ("3", "10 / 3 = 3", False),
    ("1000 m", "1 km = 1000 m", True),
    ("102", "103 = 102 pens", False),
    ("0.5", "50% = 0.5", True),
    ("10", "2x = 10", None),
    ("10:30 AM", "10:30 am", True),
    ("10:30 AM", "10:30 a.m.", True),
    ("10:30 AM", "10:30 PM", None),
    ("", "", None),
    ("5", "", None),
]


@pytest.mark.parametrize(("gold", "answer", "same"), MATH)
def test_math(gold, answer, same):
    assert same_math(gold, answer) is same


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (r"2\sqrt{3}\text{ square units}", r"2\sqrt{3}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\operatorname{arctan}(2)", r"\arctan (2)"),
        ("x = 1 or x = 2", "x = 1 or x = 2"),
        ("Each gets 12 apples", None),
        ("no solution", None),
        (r"\text{Paris}", None),
    ],
)
def test_expression_leaves_no_words_to_multiply(text, left):
    assert expression(text) == left


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("paris", "Paris.", True),
        ("Paris", "“Paris”", True),
        ("Eiffel Tower", "the Eiffel tower!", True),
        ("A cat", "cat", True),
        ("vitamin", "vitamin A", False),
        ("a b", "b", False),
        ("3", "-3", False),
        ("5", ".5", False),
        ("15", "1.5", False),
        ("?", "!", False),
        ("the", "a", False),
        ("it's", "its", False),
        ("52", "5²", False),
        ("H2O", "H₂O", True),
    ],
)
def test_text(gold, answer, same):
    assert same_text(gold, answer) is same
    assert same_text(answer, gold) is same


def test_words_may_be_numbers():
    assert same_words("12,500", "12500.0")


OPTIONS = ["Lyon", "Paris", "A. Lincoln", "12"]


@pytest.mark.parametrize(
    ("gold", "answer", "choices", "same"),
    [
        ("B", "(B)", (), True),
        ("B", "b.", (), True),
        ("B", r"\text{(B)}", (), True),
        ("B", "B) Paris", (), True),
        ("B", "Option B", (), True),
        ("B", "B because it is", (), True),
        ("(B)", "C", (), False),
        ("B", "Paris", (), None),
        ("B", "A cat", (), None),
        ("Paris", "paris", (), True),
        ("Paris", "Lyon", (), False),
        ("Paris", "B", (), None),
        ("B", "Paris.", OPTIONS, True),
        ("Paris", "B", OPTIONS, True),
        ("B", "Lyon", OPTIONS, False),
        ("B", "Rome", OPTIONS, None),
        ("C", "A. Lincoln", OPTIONS, True),
        ("D", "$12.0$", OPTIONS, True),
    ],
)
def test_choice(gold, answer, choices, same):
    assert same_choice(gold, answer, choices) is same


@given(st.text())
def test_comparisons_are_total_and_reflexive(text):
    expression(text)
    assert same_text(text, text)
    assert same_math(text, text) is (True if tidy(text) else None)
    same_choice(text, text, [text])


@given(st.integers(), st.integers())
def test_two_integers_are_equal_only_if_they_are(one, other):
    assert same_math(f"{one:,}", f"${other}$") is (one == other)
    assert same_words(str(one), str(other)) is (one == other)
