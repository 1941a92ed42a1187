"""A number as people write it, with its unit: exact, and None for anything that is more than one number."""

import re
from dataclasses import dataclass
from fractions import Fraction

# Currency is a unit that is written first. Units are told apart, never converted into each other.
UNITS = {
    alias: aliases.split()[0]
    for aliases in (
        "percent % pct percentage", "dollar $ usd buck", "euro € eur", "£ gbp", "yen ¥ jpy", "rupee ₹ inr",
        "cent ¢", "km kilometer kilometre", "m meter metre", "cm centimeter centimetre",
        "mm millimeter millimetre", "mile mi", "yard yd", "foot ft feet", "inch in", "kg kilogram", "g gram",
        "mg milligram", "lb pound", "oz ounce", "l liter litre", "ml milliliter millilitre", "hour h hr",
        "minute min", "second s sec", "ms millisecond", "mph", "kmh", "degree ° deg", "hz hertz",
    )
    for alias in aliases.split()
}  # fmt: skip
SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1_000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
# Any word can be what is counted, except those that make another number: "5 factorial" is not 5 of something.
COUNTED = re.compile(
    r"(?!(?:and|plus|minus|times|over|mod|modulo|squared|cubed|factorial|half|sqrt|log|exp|sin|cos|tan)$)"
    r"[^\W\d_]{3,}|an?|of|by"
)

MAX_CHARS = 1_000  # Python refuses to read integers of more than 4,300 digits

NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)"
QUANTITY = re.compile(
    rf"(?P<sign>[-+]?)\s*(?P<currency>[$€£¥₹]?)\s*(?P<inner>[-+]?)\s*"
    rf"(?:(?:(?P<whole>\d+)\s+)?(?P<num>{NUMBER})\s*/\s*(?P<den>{NUMBER})|(?P<plain>{NUMBER}(?:[eE][-+]?\d{{1,3}})?))"
    r"(?P<space>\s*)(?P<unit>.*)",
    re.S,
)
BASE = re.compile(r"_\s*\{?\s*(\d+)\s*\}?")
FRAC = re.compile(
    rf"\\frac\s*(?:\{{\s*(?P<n>-?{NUMBER})\s*\}}|(?P<n1>\d))\s*(?:\{{\s*(?P<d>{NUMBER})\s*\}}|(?P<d1>\d))(?!\s*[\d.])"
)


@dataclass(frozen=True)
class Quantity:
    value: Fraction
    unit: str = ""


def parse(text: str) -> Quantity | None:
    """`text` (already tidied) as one number with at most one unit: 1,080 · $3.50 · 3 1/2 km · 12 apples."""
    text = FRAC.sub(lambda f: f" {f['n'] or f['n1']}/{f['d'] or f['d1']}", text).strip()
    found = QUANTITY.fullmatch(text) if len(text) <= MAX_CHARS else None
    if not found or (found["sign"] and found["inner"]):
        return None
    if found["plain"]:
        value = _exact(found["plain"])
    elif _exact(found["den"]):
        value = _exact(found["whole"] or "0") + _exact(found["num"]) / _exact(found["den"])
    else:
        return None
    scale, unit = _scaled(found["unit"])
    name = parse_unit(unit, attached=bool(unit) and scale == 1 and not found["space"])
    if name is None:
        return None
    currency = UNITS.get(found["currency"], "")
    negative = "-" in (found["sign"], found["inner"])
    return Quantity((-value if negative else value) * scale, f"{currency} {name}".strip())


def _exact(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").rstrip("."))


def _scaled(unit: str) -> tuple[int, str]:
    word, _, rest = unit.partition(" ")
    scale = SCALES.get(word.casefold(), 1)
    return scale, unit if scale == 1 else rest


def parse_unit(text: str, attached: bool = False) -> str | None:
    """One spelling for a unit; None where the text is a variable, a second number or a condition."""
    if base := BASE.fullmatch(text):
        return f"base {base[1]}"
    text = text.casefold().replace("²", "^2").replace("³", "^3").replace("per cent", "percent")
    text = re.sub(r"\^\{([23])\}", r"^\1", re.sub(r"(?<=[^\W\d_])-(?=[^\W\d_])", " ", text))
    text = re.sub(r"\bcubic\s+(\w+)", r"\1^3", re.sub(r"\b(?:square|sq\.?)\s+(\w+)", r"\1^2", text))
    names: list[str] = []
    for word in re.sub(r"\s*/\s*", " per ", text).split():
        stem, caret, power = word.rstrip(".,;").partition("^")
        singular = re.sub(r"(?<=[xzhs])es$|(?<=[^s])s$", "", stem)
        name = UNITS.get(stem) or UNITS.get(singular)
        if (name is None and not COUNTED.fullmatch(stem)) or (caret and power not in ("2", "3")):
            return None
        # "5m" and "5x" are products to a mathematician; "5km" and "5%" are not.
        if attached and not names and (name is None or (len(stem) < 2 and stem.isalpha())):
            return None
        names.append((name or singular) + caret + power)
    # "50% of the cake" and "50%" are one quantity.
    return "percent" if names[:1] == ["percent"] else " ".join(names)


def equal(gold: Quantity, answer: Quantity) -> bool:
    """Exact equality; a unit may be left out or added, not changed.

    A percent sign reads as a unit (50 = 50%), and 0.5 is 50% only where the gold carries the percent sign.
    """
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if gold.unit == "percent" and not answer.unit and answer.value == gold.value / 100:
        return True
    return gold.value == answer.value
