"""Sums are worked out exactly, and what is left undone is told from what is a number."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.verify.arithmetic import unevaluated, value


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("17 * 6", 102),
        (r"17 \times 6 \div 2", 51),
        ("2 + 3 * 4 - 1", 13),
        ("-(2 - 5) / 6", Fraction(1, 2)),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("1,000 + .5", Fraction("1000.5")),
        (r"2 * \frac{3}{4}", Fraction(3, 2)),
        ("2 * -3", -6),
        *((text, None) for text in ("", "1 / 0", "(1", "1)", "1 2", "2x", "2^3", "1 +", "()", "(" * 5000)),
    ],
)
def test_value(text, result):
    assert value(text) == result


@given(st.recursive(st.integers(0, 99).map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
    lambda parts: f"({' '.join(parts)})"
), max_leaves=15))  # fmt: skip
def test_value_agrees_with_python(text):
    assert value(text) == eval(text)


@given(st.text("0123456789.,+-*/() x\\frac{}×"))
def test_is_total(text):
    value(text)
    unevaluated(text)


@pytest.mark.parametrize(
    "text", ["17 * 6", "17×6", r"17 \cdot 6", "1 - -2", "(1 + 2) - 3", r"2 + \frac{1}{2}", "12 ÷ 4"]
)
def test_a_sum_is_unevaluated(text):
    assert unevaluated(text)


@pytest.mark.parametrize("text", ["-3", "10^2", "10^{-2}", "3/4", r"\frac{3}{4}", r"2\pi", "3 * 10^5", "1e-3", "x + 1"])
def test_a_number_is_not(text):
    assert not unevaluated(text)
