"""Values in rows: finding one, turning it into text, and reading a final answer out of it."""

import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

FINAL_LINE = re.compile(r"^####[ \t]*(\S.*)\Z", re.MULTILINE)  # only the last line: elsewhere it is a heading
SURROGATE = re.compile(r"[\ud800-\udfff]")  # half of a character: JSON can spell one, UTF-8 cannot
SHORT = 80  # a one-line solution up to this long is its own final answer


class Unusable(Exception):
    """This row cannot become a Problem. The reason quotes nothing from it, so that reasons can be counted."""


def pick(row: Mapping[str, Any], path: str) -> Any:
    """A column, or a path into one ("turns.0.text"); None where the path ends early."""
    if path in row:
        return row[path]
    value: Any = row
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, Sequence) and not isinstance(value, str) and step.lstrip("-").isdigit():
            value = value[int(step)] if -len(value) <= int(step) < len(value) else None
        else:
            return None
    return value


def text(value: Any) -> str:
    """A scalar as stripped text; nothing becomes ""."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # columns of whole numbers with gaps arrive as floats
    if isinstance(value, str) and SURROGATE.search(value):
        raise Unusable("a column holds half of a character (a lone surrogate), which is not text")
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise Unusable(f"a column holds a {type(value).__name__}, not text: name a part of it, e.g. answer.0")


def derived(solution: str) -> str:
    """The final answer a worked solution states, or ""."""
    from tutelage.verify.extract import final_answer  # here, so that reading rows needs no verifier

    if "\\boxed" not in solution:
        if "```" in solution:
            return ""  # a program is not a final answer, though it may hold `answer = 0`
        if marked := FINAL_LINE.search(solution):
            return marked[1]
    short = solution if "\n" not in solution and len(solution) <= SHORT else ""
    return final_answer(solution) or short


def lettered(question: str, choices: Any, answer: Any) -> tuple[str, str, list[str]]:
    """The question with its choices listed as A, B, …, the letter of the right one, and the choices."""
    letters = string.ascii_uppercase
    if isinstance(choices, Mapping):  # {"label": […], "text": […]}, as in ARC
        labels, choices = choices.get("label", letters), choices.get("text")
    else:
        labels = letters
    if not isinstance(choices, list | tuple) or len(choices) > len(letters):
        raise Unusable(f"the choices are not a list of at most {len(letters)}")
    texts = [text(choice) for choice in choices]
    index = _index(answer, [text(label) for label in labels][: len(texts)], texts)
    listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(letters, texts, strict=False))
    return f"{question}\n\n{listed}", letters[index], texts


def _index(answer: Any, labels: list[str], texts: list[str]) -> int:
    if isinstance(answer, int) and 0 <= answer < len(texts) and not isinstance(answer, bool):
        return answer
    wanted = text(answer).casefold()
    for known in (labels, texts):
        folded = [item.casefold() for item in known]
        if wanted in folded:
            return folded.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(texts):
        return int(wanted)  # CSV files write the index as text
    raise Unusable("the answer is none of the choices")


def plain(value: Any) -> Any:
    """The value as JSON would give it back, so that what is stored and what is in memory are the same."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
