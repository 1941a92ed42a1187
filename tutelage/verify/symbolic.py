"""Are two expressions equal? math-verify's parser and comparison, kept to whole expressions."""

from functools import lru_cache

import sympy
from math_verify import LatexExtractionConfig, parse, verify

from tutelage.problem import Outcome

# Only LaTeX, and only the first match: the plain-expression extractor takes the 1 in "x+1" for the answer.
LATEX = (LatexExtractionConfig(boxed_match_priority=-1),)


def judge(gold: str, answer: str) -> tuple[Outcome, str]:
    """Both sides already tidied. No time-outs in here: the client ends a worker that takes too long."""
    meant, given = _parsed(gold), _parsed(answer)
    if given is None:
        return "unparsed", "the answer is not an expression"
    if meant is None:
        return "unparsed", "the reference is not an expression"
    same = verify(meant, given, timeout_seconds=None, raise_on_error=True)
    return ("correct" if same and _close(meant, given) else "incorrect"), ""


@lru_cache(maxsize=256)
def _parsed(text: str) -> sympy.Basic | None:
    wrapped = "$" + " ".join(text.replace("$", " ").split()) + "$"
    found = parse(
        wrapped,
        LATEX,
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return found[0] if found else None


def _close(meant: sympy.Basic, given: sympy.Basic) -> bool:
    """math-verify rounds to six decimals, which makes all tiny numbers equal: compare relatively too."""
    if not all(isinstance(side, sympy.Expr) and side.is_number for side in (meant, given)):
        return True
    return bool(abs(sympy.N(meant - given)) <= 1e-5 * abs(sympy.N(meant)))
