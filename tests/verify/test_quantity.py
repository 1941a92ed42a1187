"""Numbers are exact, and units can be left out but not changed."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.verify.compare import tidy
from tutelage.verify.quantity import Quantity, equal, parse

READ = [
    ("42", 42, ""),
    ("-42", -42, ""),
    ("+1,234,567.50", Fraction("1234567.5"), ""),
    (".5", Fraction(1, 2), ""),
    ("5.", 5, ""),
    ("1e3", 1000, ""),
    ("2.5E-2", Fraction(1, 40), ""),
    ("7/2", Fraction(7, 2), ""),
    ("3 1/2", Fraction(7, 2), ""),
    ("3½", Fraction(7, 2), ""),
    ("-3 1/2", Fraction(-7, 2), ""),
    (r"\frac{7}{2}", Fraction(7, 2), ""),
    (r"-\dfrac72", Fraction(-7, 2), ""),
    (r"\frac{-7}{2}", Fraction(-7, 2), ""),
    (r"3\frac{1}{2}", Fraction(7, 2), ""),
    (r"12{,}500", 12500, ""),
    (r"12\,500", 12500, ""),
    ("$1,234.50", Fraction("1234.5"), "dollar"),
    (r"\$5", 5, "dollar"),
    ("-$5", -5, "dollar"),
    ("5 €", 5, "euro"),
    ("5 dollars", 5, "dollar"),
    ("$5 million", 5_000_000, "dollar"),
    ("2 dozen eggs", 24, "egg"),
    ("50%", 50, "percent"),
    (r"50\%", 50, "percent"),
    ("50 per cent", 50, "percent"),
    ("50% of the cake", 50, "percent"),
    ("12 apples", 12, "apple"),
    ("12 boxes.", 12, "box"),
    ("3 cups of flour", 3, "cup of flour"),
    ("5 km", 5, "km"),
    ("5km", 5, "km"),
    (r"5\text{ kilometers}", 5, "km"),
    ("60 km/h", 60, "km per hour"),
    ("60 kilometers per hour", 60, "km per hour"),
    ("9 m^2", 9, "m^2"),
    ("9 square meters", 9, "m^2"),
    (r"30^\circ", 30, "degree"),
    ("101_2", 101, "base 2"),
]


@pytest.mark.parametrize(("text", "value", "unit"), READ)
def test_reads(text, value, unit):
    assert parse(tidy(text)) == Quantity(Fraction(value), unit)


NOT_ONE_NUMBER = (
    "|x|5x|5m|5 x|5 x^2|x+1|1,2|1,2345|12:30|5 6|1.2.3|--5|-$-5|1/0|1/2/3|5 or 6|5 or more|5 and 6|5!"
    r"|5 factorial|5 squared|2\pi|5\sqrt{2}|\frac{1}{2}5|\frac{1}{2}m|1e9999|5 feet 10 inches|(1, 2)|twelve"
)


@pytest.mark.parametrize("text", [*NOT_ONE_NUMBER.split("|"), "9" * 5000])
def test_does_not_read_more_than_one_number(text):
    assert parse(tidy(text)) is None


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("12", "12 apples", True),
        ("12 apples", "12", True),
        ("5 km", "5 m", False),
        ("5 km", "5 kilometres", True),
        ("$5", "5 euros", False),
        ("$5", "5", True),
        ("9 m^2", "9 m", False),
        ("50%", "0.5", True),
        ("50%", "50", True),
        ("50", "50%", True),
        ("0.5", "50%", False),
        ("50%", "0.5%", False),
        ("101_2", "101_3", False),
        ("5 million", "5", False),
    ],
)
def test_units(gold, answer, same):
    assert equal(parse(tidy(gold)), parse(tidy(answer))) is same


@given(st.integers())
def test_thousands_commas_change_nothing(number):
    assert parse(f"{number:,}") == parse(str(number)) == Quantity(Fraction(number))


@given(st.fractions(), st.fractions())
def test_fractions_are_equal_exactly_when_they_are(one, other):
    assert equal(parse(str(one)), parse(str(other))) is (one == other)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=6))
def test_decimals_are_exact(number):
    assert parse(f"{number:f}").value == Fraction(number)


@given(st.text())
def test_is_total(text):
    parse(text)
