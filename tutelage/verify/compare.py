"""Comparisons that need no algebra: True, False, or None where only the symbolic worker can tell."""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from tutelage.problem import folded
from tutelage.verify import arithmetic, quantity

SAME = str.maketrans(
    {"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{FRACTION SLASH}": "/"}
    | {"\N{NO-BREAK SPACE}": " ", "\N{THIN SPACE}": "", "\N{NARROW NO-BREAK SPACE}": ""}
    | {"½": " 1/2", "¼": " 1/4", "¾": " 3/4", "π": r"\pi ", "°": " degrees "}
)
QUOTES = "\"'`“”\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}*"
RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
WRAPPED = re.compile(r"\$\$?((?:\\.|[^$\\])+)\$\$?|\\\((.+)\\\)|\\\[(.+)\\\]", re.S)
# LaTeX that only dresses: each is replaced by what it stands for. `\\` is left alone, matrices need it.
DRESS = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\operatorname\*?\s*\{([A-Za-z]+)\}", r"\\\1 "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:left|right|displaystyle)(?![A-Za-z])|(?<!\\)\\[!,]", ""),
        (r"(?<!\\)\\[;: ]|\\q?quad(?![A-Za-z])|~", " "),
        (r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})", " degrees "),
        (r"\{,\}", ","),
        (r"\\([%$])", r"\1"),
        (r"\s+", " "),
    )
]
NAME = r"\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?"
ASSIGNED = re.compile(rf"({NAME})\s*=\s*([^=<>]+)")
CLOCK = re.compile(r"\d{1,2}:\d\d")
TRAILING_WORDS = re.compile(r"(?:(?<=\s)|(?<=[\d)}]))(?:[^\W\d_]{2,}\.?(?:\^\{?[23]\}?)?(?:\s*/\s*|\s+|$))+$")
NAMES = re.compile(
    r"\\(?:begin|end)\s*\{\w+\*?\}|\\[A-Za-z]+|\b(?:sqrt|a?sinh?|a?cosh?|a?tanh?|arc(?:sin|cos|tan)|infinity)\b"
)
LETTER = re.compile(r"\(?([A-Z])\)?[.):]?", re.I)
LETTER_FIRST = re.compile(
    r"(?:(?:option|choice)\s+)?(?:\(([A-Z])\)|([A-Z])(?=$|[.:,)]|\s+(?:because|since|is)\b)).*", re.I | re.S
)


def tidy(text: str) -> str:
    """The same mathematics in plainer clothes: no dollar signs around it, no spacing or font commands."""
    text = RAISED.sub(_power, text).translate(SAME).strip()
    while wrapped := WRAPPED.fullmatch(text):
        text = (wrapped[1] or wrapped[2] or wrapped[3]).strip()
    for pattern, plain in DRESS:
        text = pattern.sub(plain, text)
    return text.strip().rstrip(" .,;")


def _power(raised: re.Match[str]) -> str:
    plain = unicodedata.normalize("NFKC", raised[0])
    return f"^{plain}" if len(plain) == 1 else f"^{{{plain}}}"


def same_math(gold: str, answer: str) -> bool | None:
    """Numbers exactly, words as words, and identical expressions; the value of an assignment counts."""
    gold, answer = tidy(gold), tidy(answer)
    gold_name, gold_value = _assignment(gold)
    gold_number = quantity.parse(gold_value)
    if gold_number:
        settled = _settled(answer)
        if settled is None:
            return False
        answer = settled
    answer_name, answer_value = _assignment(answer)
    if gold_name and answer_name and gold_name != answer_name:
        return None
    if gold_value and _squeezed(gold_value) == _squeezed(answer_value):
        return True
    answer_number = quantity.parse(answer_value)
    if gold_number and answer_number:
        return quantity.equal(gold_number, answer_number)
    gold_unit, answer_unit = _split_unit(gold_value)[1], _split_unit(answer_value)[1]
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return False
    return same_text(gold, answer) if _wordy(gold) and _wordy(answer) else None


def unevaluated(gold: str, answer: str) -> bool:
    """Is a number asked for and a sum or product of numbers given? That may only restate the question."""
    wanted, given = quantity.parse(_assignment(tidy(gold))[1]), expression(answer)
    return wanted is not None and given is not None and arithmetic.unevaluated(given.rpartition("=")[2])


def expression(text: str) -> str | None:
    """What the symbolic worker should read: no unit; None for prose, whose letters it would multiply."""
    text = _split_unit(tidy(text))[0]
    return None if _wordy(text) else text


def same_text(gold: str, answer: str) -> bool:
    """Case, quotes, a leading article and punctuation at the end of words do not matter."""
    return _plain(gold) == _plain(answer)


def same_words(gold: str, answer: str) -> bool:
    """For answers in plain text: the same words, or the same number."""
    return same_text(gold, answer) or same_math(gold, answer) is True


def same_choice(gold: str, answer: str, choices: Sequence[str] = ()) -> bool | None:
    """By letter or by the option's full text; None where the answer is none of the choices."""
    meant, given = _letter(gold, choices), _letter(answer, choices)
    if meant and given:
        return meant == given
    if meant or given or choices:
        return None
    return same_words(gold, answer)


def _letter(text: str, choices: Sequence[str]) -> str | None:
    text = tidy(text).strip("*")
    if letter := LETTER.fullmatch(text):
        return letter[1].upper()
    for index, choice in enumerate(choices):
        if same_words(choice, text):
            return chr(ord("A") + index)
    first = LETTER_FIRST.fullmatch(text)
    return (first[1] or first[2]).upper() if first else None


def _assignment(text: str) -> tuple[str, str]:
    assigned = ASSIGNED.fullmatch(text)
    return (assigned[1], assigned[2].strip()) if assigned else ("", text)


def _settled(text: str) -> str | None:
    """`17 * 6 = 102` as `102`; None where it does not hold. Sides that are no numbers are not judged."""
    *earlier, last = (side.strip() for side in text.split("="))
    name = f"{earlier.pop(0)} = " if earlier and re.fullmatch(NAME, earlier[0]) else ""
    end, values = _number(last), [_number(side) for side in earlier]
    if end and any(value and not _agree(value, end, last) for value in values):
        return None
    return name + last if end and all(values) else text


def _number(side: str) -> quantity.Quantity | None:
    if number := quantity.parse(side):
        return number
    total, unit = _split_unit(side)
    value = arithmetic.value(total)
    return None if value is None else quantity.Quantity(value, unit)


def _agree(value: quantity.Quantity, end: quantity.Quantity, last: str) -> bool:
    """Equal, or rounded as the last side is written (10 / 3 = 3.33). 1 km = 1000 m and 50% = 0.5 are not judged."""
    units = {value.unit, end.unit}
    if len(units - {""}) > 1 or ("percent" in units and len(units) > 1):
        return True
    decimals = re.search(r"\.(\d+)", last)
    rounding = Fraction(1, 2 * 10 ** len(decimals[1])) if decimals else 0
    return abs(value.value - end.value) <= rounding


def _squeezed(text: str) -> str:
    """Without white space, except where it keeps two digits apart: 3 1/2 is not 31/2. 10:30 AM is 10:30 a.m."""
    if CLOCK.match(text):
        text = text.casefold().replace(".", "")
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def _split_unit(text: str) -> tuple[str, str]:
    """An expression and the unit in words behind it, as in `2\\pi cm`."""
    words = TRAILING_WORDS.search(text)
    unit = quantity.parse_unit(words[0]) if words else None
    if not words or not unit or not re.search(r"\d|\\[A-Za-z]", text[: words.start()]):
        return text, ""
    return text[: words.start()].strip(), unit


def _wordy(text: str) -> bool:
    """Does it hold a word, as opposed to names of variables and functions?"""
    return bool(re.search(r"[^\W\d_]{4,}", NAMES.sub(" ", text)))


def _plain(text: str) -> str:
    text = folded(tidy(text)).casefold()
    words = [word.strip(QUOTES).rstrip(".,;:!?" + QUOTES) for word in text.split()]
    plain = re.sub(r"^(?:the|an?(?=\s\w\w)) (?=\w)", "", " ".join(word for word in words if word))
    return plain or text.strip()  # an answer that is nothing but punctuation is compared as it stands
