"""Sums and products of numbers, worked out exactly: enough to see whether `17 * 6 = 102` holds."""

import re
from fractions import Fraction

from tutelage.verify.quantity import FRAC, NUMBER

MAX_CHARS = 200  # longer sums are not worth the recursion
TIMES, OVER = re.compile(r"[×·⋅]|\\(?:times|cdot)(?![A-Za-z])"), re.compile(r"÷|\\div(?![A-Za-z])")
TOKEN = re.compile(rf"{NUMBER}|[-+*/()]|\S")
# Scientific notation, 3 * 10^5, is a number and no sum left undone.
OPEN_SUM = re.compile(r"(?<=[\d)}])\s*[-+*÷]\s*+(?!10\s*\^)(?:\\frac|[-+({$\s])*\.?\d")


def value(text: str) -> Fraction | None:
    """The value of + - * / and parentheses on numbers; None for anything else."""
    text = FRAC.sub(lambda f: f"({f['n'] or f['n1']}/{f['d'] or f['d1']})", text)
    tokens = TOKEN.findall(OVER.sub("/", TIMES.sub("*", text)))[::-1] if len(text) <= MAX_CHARS else []
    try:
        result = _sum(tokens)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None if tokens else result


def unevaluated(text: str) -> bool:
    """Does it leave a sum or a product of numbers to be worked out? Fractions and powers may stay."""
    return bool(OPEN_SUM.search(OVER.sub("÷", TIMES.sub("*", text))))


def _sum(tokens: list[str]) -> Fraction:
    """Reads from the end of `tokens`, which are in reverse, and takes off what it has read."""
    total = _product(tokens)
    while tokens and tokens[-1] in "+-":
        total = total + _product(tokens) if tokens.pop() == "+" else total - _product(tokens)
    return total


def _product(tokens: list[str]) -> Fraction:
    total = _factor(tokens)
    while tokens and tokens[-1] in "*/":
        total = total * _factor(tokens) if tokens.pop() == "*" else total / _factor(tokens)
    return total


def _factor(tokens: list[str]) -> Fraction:
    token = tokens.pop()
    if token in "+-":
        return _factor(tokens) if token == "+" else -_factor(tokens)
    if token != "(":
        return Fraction(token.replace(",", ""))
    inside = _sum(tokens)
    if tokens.pop() != ")":
        raise ValueError("a parenthesis is not closed")
    return inside
