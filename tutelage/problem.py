"""A Problem: one question, what is known about its answer, and how to check a reply."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["correct", "incorrect", "unparsed"]

RAISED = re.compile(r"(?:(?<=[\d)\]}])|(?<![A-Za-z][A-Za-z])(?<=[A-Za-z]))(?=[²³¹⁰ⁱ⁴-ⁿ])")
LOWERED = re.compile(r"(?<=\d)(?=[₀-₎ₐ-ₜ])")
KINDS = ("math", "number", "choice", "text", "task", "code")


@dataclass(frozen=True)
class Verdict:
    """What the verifier says of one reply; an answer that could not be found is `unparsed`, never wrong.

    The score is in [0, 1] and is 1 for a correct reply only; where a verifier knows no partial credit, others have 0.
    """

    outcome: Outcome
    extracted: str | None = None
    why: str = ""
    score: float = -1.0  # not given: what the outcome says

    def __post_init__(self) -> None:
        if self.score == -1.0:
            object.__setattr__(self, "score", float(self.correct))
        if not 0 <= self.score <= 1 or (self.score == 1) is not self.correct:
            raise ValueError(f"a score of {self.score} for an answer that is {self.outcome}")

    @property
    def correct(self) -> bool:
        return self.outcome == "correct"


@dataclass(frozen=True)
class Public:
    """All of a problem that a student may see. Prompts for students are rendered from this and nothing else."""

    uid: str
    question: str
    kind: str
    system: str = ""


@dataclass(frozen=True)
class Problem:
    """One row of data. `solution`, `answer`, `reasoning_trace` and `meta` are private to teachers and verifiers."""

    question: str
    solution: str
    answer: str
    reasoning_trace: str = ""
    kind: str = "math"
    system: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The same question text has the same uid, whatever row or file it came from."""
        return hashlib.blake2b(canonical(self.question).encode(), digest_size=8).hexdigest()

    @property
    def public(self) -> Public:
        return Public(self.uid, self.question, self.kind, self.system)


def canonical(text: str) -> str:
    """Text with case, width and white space made equal, for identity only."""
    return re.sub(r"\s+", " ", folded(text)).strip().casefold()


def folded(text: str) -> str:
    """Text in one spelling of each character (NFKC), but 5² is 5^2 and no 52, x² is x^2, and 101₂ is 101_2."""
    return unicodedata.normalize("NFKC", LOWERED.sub("_", RAISED.sub("^", text)))
