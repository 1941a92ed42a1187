"""Does a teaching give the answer away? Matched by value, not by spelling, and only if it was not known before."""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
_SPELLED = re.compile(rf"\b({'|'.join(_TENS)})[-\s]({'|'.join(_UNITS[1:10])})\b|\b({'|'.join(_WORDS)})\b")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_NUMBER = re.compile(r"(?<![\w.])(?:(?<![\d)])-\s?)?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+(?![\d.]))?")


def leaks(teaching: str, answer: str, known: Iterable[str] = (), choices: Iterable[str] = ()) -> bool:
    """True if the teaching states the answer, and neither the question nor the student's approach did before."""
    given = [plain(text) for text in known]
    teaching, answer = plain(teaching), plain(answer).strip(" .")
    if not answer:
        return False
    if re.fullmatch(r"\(?[a-z]\)?", answer):
        letter = answer.strip("()")
        named = rf"(?:answer|option|choice)(?:\s+is)?[:\s]+\(?{letter}\b(?!')|\({letter}\)"
        if re.search(named, teaching) and not any(re.search(named, text) for text in given[1:]):
            return True
        options = list(choices)
        place = ord(letter) - ord("a")
        # Every option stands in the question, so only an option said outright to be right gives it away.
        return place < len(options) and bool(re.search(rf"answer is[:\s]+{re.escape(plain(options[place]))}", teaching))
    value = numbers(answer)
    if len(value) == 1 and _NUMBER.fullmatch(answer.strip("$%€£ ")):
        return bool(value & numbers(teaching)) and not any(value & numbers(text) for text in given)
    return states(teaching, answer) and not any(states(text, answer) for text in given)


def plain(text: str) -> str:
    """One spelling: case, width, dashes, LaTeX wrappers and dollar signs made equal."""
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").casefold()
    text = _FRACTION.sub(r"\1/\2", text)
    return re.sub(r"\\(?:text|mathrm|boxed)\s*\{([^{}]*)\}|[$*`]|\\[,;! ]", r"\1", text)


def numbers(text: str) -> set[Fraction]:
    """Every number in a text, as a value: 12,500 and 12500, 1/2 and 0.5, twelve and 12 are the same."""
    found = set()
    for match in _NUMBER.finditer(text):
        digits = re.sub(r"[,\s]", "", match[0])
        top, _, bottom = digits.partition("/")
        if not bottom:
            found.add(Fraction(top))
        elif int(bottom):
            found.add(Fraction(top) / int(bottom))
    for match in _SPELLED.finditer(text):
        tens, units, single = match.groups()
        found.add(Fraction(_WORDS[single] if single else _WORDS[tens] + _WORDS[units]))
    return found


def states(text: str, phrase: str) -> bool:
    """The phrase stands in the text as whole words, white space aside."""
    compact = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", phrase))
    return bool(re.search(rf"(?<!\w){compact}(?!\w)", text))
