"""Does a teaching give the answer away? Matched by value, not by spelling, and only if the question did not hold it."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from fractions import Fraction

from tutelage.problem import Problem, folded
from tutelage.verify import judge, settles
from tutelage.verify.quantity import SCALES, parse

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
_TWO_DIGITS = rf"(?:(?:{'|'.join(_TENS)})(?:[-\s](?:{'|'.join(_UNITS[1:10])}))?\b|(?:{'|'.join(_UNITS)})\b)"
_THREE_DIGITS = rf"{_TWO_DIGITS}(?:[-\s]hundred\b(?:\s(?:and\s)?{_TWO_DIGITS})?)?"
_GROUPS = rf"(?:[-\s](?:thousand|million|billion|trillion)\b(?:,?\s(?:and\s)?{_THREE_DIGITS})?)*"
_SPELLED = re.compile(rf"\b{_THREE_DIGITS}(?:[-\s]dozen\b|{_GROUPS})")
_ARTICLE = re.compile(rf"(?<!\bhalf\s)\ban?(?=\s(?:{'|'.join(SCALES)})\b)")  # a dozen is one dozen
_SCALE = re.compile(rf"[-\s]?({'|'.join(SCALES)})\b")
_PERCENT = re.compile(r"\s?(?:%|per\s?cent\b)")
_FRACTION = re.compile(r"\\[cdt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")  # 3½ is 3 1/2, and no 31/2
_SIGNS = str.maketrans({"\N{MINUS SIGN}": "-", "\N{FRACTION SLASH}": "/"})
_SLANTED = re.compile(r"(?<!\w)_{1,2}(?=\w)|(?<=\w)_{1,2}(?!\w)")  # Markdown's _102_
# A minus is a sign only where it touches its digit and nothing stands before it to be taken from.
_NUMBER = re.compile(
    r"(?<!\w)(?<!\w\.)(?:(?<![\w)\]}])(?<![\d)\]}]\s)-)?(?:\d[\d,]*(?:\.\d+)?|(?<!\.)\.\d+)(?:e[-+]?\d{1,3}(?!\w))?"
    r"(?:\s?/\s?\d+(?!\d|\.\d))?"
)
_COUNTING = re.compile(r"^[ \t]*\(?(\d{1,2})[.)][ \t]+(?=\S)|\bstep\s+(\d{1,2})\b", re.M)  # steps, not values
_ROOT = re.compile(r"(?:\\?\bsqrt|√)\s*(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+|[a-z]\b))")
_RUN = 5  # so many words in a row are no chance
_MOST = 0.8  # whoever has so much of a program has it
_OPERATOR = re.compile(r"[+^=<>≤≥×÷√\\]|(?<=[\d\s])[-/]|[-/](?=[\d\s])")  # a formula is more than its words
_ROW = re.compile(r"\brow(?:\s+\d+(?=\s+is\b|\s*[:|=)-]))?(?:\s+is\b)?")  # a label; "row 4 3 1 2" begins with a 4
_IF = re.compile(r"(\bif\b[^.!?\n]{0,200}?\b)then\b")  # says neither of the two, so no mere link
_LINKS = frozenset("a an the and then next finally first second third fourth".split())
_MAX_DIGITS = 1_000  # Python refuses to read integers of more than 4,300


def reveals(text: str, problem: Problem, attempts: Iterable[str] = ()) -> bool:
    """Does a text give a problem's answer away, as far as that is told at once? What the question or these attempts of
    a student hold may be said; but whoever settles on the answer, as a student would, gives it away in any case."""
    if settles(problem, text):
        return True
    known = "\n".join([problem.question, *attempts])
    if problem.kind == "code":
        return copies(text, problem.answer, problem.question, known)
    return leaks(text, problem.answer, known, problem.meta.get("choices", ()))


async def gives_away(text: str, problem: Problem, attempts: Iterable[str] = ()) -> bool:
    """`reveals`, and by the verifier's algebra and scorers: x/2 for \\frac{x}{2}, another right way through a maze."""
    if reveals(text, problem, attempts):
        return True
    return problem.kind != "code" and (await judge(problem, text)).correct


def leaks(teaching: str, answer: str, question: str = "", choices: Iterable[str] = ()) -> bool:
    """True if the teaching states the answer and the question did not.

    That the student guessed it before is no excuse: to say which guess is right is to say the answer.
    """
    question = plain(question)
    teaching, answer = plain(teaching), plain(answer).strip().rstrip(" .")
    if not answer:
        return False
    if re.fullmatch(r"\(?[a-z]\)?", answer):
        letter = answer.strip("()")
        # "The answer is a number" names no option A.
        word = r"(?!\s+(?!(?:because|since|as|is)\b)\w)" if letter in "ai" else ""
        named = (
            r"(?:answer|option|choice|(?:correct|right)(?:\s+one)?)(?:\s+is)?[:\s]+|\b(?:choose|pick|select|mark)\s+"
        )
        praised = rf"\b{letter}\)?\s+is\s+(?:the\s+)?(?:correct|right|answer)\b"
        if re.search(rf"(?:{named})\(?{letter}\b(?!'){word}|{praised}|\({letter}\)", teaching):
            return True
        options = list(choices)
        place = ord(letter) - ord("a")
        # Every option stands in the question, so only an option said outright to be right gives it away.
        return place < len(options) and bool(re.search(rf"answer is[:\s]+{re.escape(plain(options[place]))}", teaching))
    answer = re.sub(r"^[a-z]\w*\s*=\s*", "", answer)
    quantity = parse(answer)
    if quantity and quantity.value in numbers(answer):  # a number and its unit; 3 1/2 is said by its spelling
        value = {quantity.value} | ({quantity.value / 100} if quantity.unit == "percent" else set())
        said = numbers(teaching) | (shares(teaching) - shares(question))
        return bool(value & said) and not value & numbers(question)
    if states(question, answer):
        return False
    # The words alone may stand in the question (somebody claims them), and not the answer as it is written.
    return states(teaching, answer) or (recites(teaching, answer) and not recites(question, answer))


def copies(text: str, program: str, question: str, known: str) -> bool:
    """Does a text restate most of a program that its question does not show, and more of it than is known?

    All of it in a row is more than all of it with an error in between, which is what a student may have.
    """
    body = _work(program, question)
    text, body, known = (part.replace("*", " ") for part in (text, body, known))  # x*y is x * y
    said = restated(text, body)
    return said >= _MOST and (said, _whole(text, body)) > (restated(known, body), _whole(known, body))


def plain(text: str) -> str:
    """One spelling: case, width, dashes, LaTeX wrappers and dollar signs made equal."""
    text = folded(_VULGAR.sub(" ", text)).translate(_SIGNS).casefold()
    text = _SLANTED.sub("", text.replace("{,}", ","))
    text = re.sub(r"(?<=\d)\*+(?=\d)", " × ", _FRACTION.sub(r"\1\2/\3\4", text))
    text = _ROOT.sub(lambda root: f"sqrt({root[1] or root[2] or root[3] or ''})", text)
    text = re.sub(r"\\(?:text|mathrm|boxed)\s*\{([^{}]*)\}|[$*`]|\\[,;! ]|\\(?=%)", r"\1", text)
    return re.sub(r"(?<=\d)\s+(?=sqrt\()", "", text)


def numbers(text: str) -> set[Fraction]:
    """Every number in a text, as a value: 12,500 and 12500, 1/2 and 0.5, twelve, a dozen and 12 are the same."""
    return {value for value, _ in _said(text)}


def shares(text: str) -> set[Fraction]:
    """What percentages are as numbers: 75% is 0.75. That something is 100% right says no 1."""
    return {value / 100 for value, percent in _said(text) if percent and value % 100}


def _said(text: str) -> Iterator[tuple[Fraction, bool]]:
    """The values in a text, and whether they are of a hundred."""
    text = _uncounted(text)
    for match in _NUMBER.finditer(text):
        if len(match[0]) > _MAX_DIGITS:
            continue
        top, *bottom = (Fraction(digits) for digits in re.sub(r"[,\s]", "", match[0]).split("/"))
        # 12/4 is a division still to be done, so it says 12 and 4; 1/2 is a number.
        values = [top / bottom[0]] if any(bottom) and (top / bottom[0]).denominator > 1 else [top, *bottom]
        scale = _SCALE.match(text, match.end())
        for value in values:
            yield value, bool(_PERCENT.match(text, match.end()))
            if scale:
                yield value * SCALES[scale[1]], False
    for match in _SPELLED.finditer(text):
        if match[0] != "one":  # more often a pronoun than the number
            yield _spelled(match[0]), bool(_PERCENT.match(text, match.end()))


def _uncounted(text: str) -> str:
    """The text without the numbers of its steps: such as have another beside them, or are early ones."""
    counted = {int(match[1] or match[2]) for match in _COUNTING.finditer(text)}

    def step(match: re.Match[str]) -> str:
        number = int(match[1] or match[2])
        early = match[2] and number < 10  # "look at step 2" is about a step
        return " " if early or counted & {number - 1, number + 1} else match[0]

    return _COUNTING.sub(step, _ARTICLE.sub("one", text))


def _spelled(words: str) -> Fraction:
    total = rest = 0
    for word in re.findall(r"[a-z]+", words):
        scale = SCALES.get(word, 1)
        if scale >= 1_000:
            total, rest = total + rest * scale, 0
        else:
            rest = rest * scale + _WORDS.get(word, 0)
    return Fraction(total + rest)


def states(text: str, phrase: str) -> bool:
    """The phrase stands in the text as whole words, white space aside."""
    compact = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", phrase))
    return bool(re.search(rf"(?<!\w){compact}(?!\w)", text))


def recites(text: str, phrase: str) -> bool:
    """Three words or more of a phrase stand in the text in a row, but for signs, labels of rows and words that link."""
    letters = re.search(r"[^\W\d_]", phrase) and not re.search(r"[^\W\d_]{2}", phrase)
    links = frozenset[str]() if letters else _LINKS  # among letters, A is one
    words = _spoken(phrase, links)
    if len(words) < 3 or _OPERATOR.search(phrase):
        return False
    return f" {' '.join(words)} " in f" {' '.join(_spoken(text, links))} "


def _spoken(text: str, links: frozenset[str]) -> list[str]:
    text = _IF.sub(r"\1so", _ROW.sub(" ", _uncounted(text)))
    return [word for word in re.findall(r"[^\W_]+", text) if word not in links]


def _work(program: str, question: str) -> str:
    """What a program does, without what the question shows of it, imports, heads and descriptions."""
    try:
        with warnings.catch_warnings(action="ignore"):
            parts = _statements(program, ast.parse(program).body)
            return "\n".join(part for part in parts if part not in question)
    except (SyntaxError, ValueError, RecursionError):
        return program.removeprefix(question)


def _statements(program: str, nodes: Iterable[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _statements(program, node.body)
        elif not isinstance(node, ast.Import | ast.ImportFrom) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            yield ast.get_source_segment(program, node) or ""


def restated(text: str, solution: str) -> float:
    """The share of a solution's words and signs that a text repeats, in runs of at least five (or all it has)."""
    words, said = _words(solution), _words(text)
    run = min(_RUN, len(words))
    if not run:
        return 0.0
    runs = {said[start : start + run] for start in range(len(said) - run + 1)}
    covered: set[int] = set()
    for start in range(len(words) - run + 1):
        if words[start : start + run] in runs:
            covered.update(range(start, start + run))
    return len(covered) / len(words)


def _whole(text: str, solution: str) -> bool:
    return f" {' '.join(_words(solution))} " in f" {' '.join(_words(text))} "


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+|[^\w\s]", plain(text)))
