"""The record of one lesson: everything said, what it was judged to be, and nothing else is needed later."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from tutelage.engines.base import Sample
from tutelage.engines.packed import Packed
from tutelage.problem import Verdict

Act = Literal["probe", "teach", "alone", "taught", "explain", "attempt", "hint"]

# How an explanation ended: its tag alone; the tag and more; no tag, by itself or by the token limit; nothing in it;
# or with tags of the student's inside, which would pass for the end of its thought.
Form = Literal["closed", "trailing", "missing", "truncated", "empty", "tagged"]


@dataclass(frozen=True)
class Turn:
    """One thing said: by whom, as what, the exact sample, and the verdict where it was an answer."""

    speaker: Literal["student", "teacher"]
    act: Act
    sample: Sample
    verdict: Verdict | None = None

    @property
    def correct(self) -> bool:
        return self.verdict is not None and self.verdict.correct


@dataclass(frozen=True)
class Scores:
    """What a student makes of an explanation: log-probs, token by token, of the text it read.

    `thought` are the explanation's tokens and `teacher` the teacher's own log-probs of the same tokens, None where
    the two have different tokenizers. Where the text could not be shown, `unscored` says why, both are empty, and the
    solution's are those without an explanation.
    """

    form: Form
    solution: tuple[float, ...] = ()
    thought: tuple[float, ...] = ()
    teacher: tuple[float, ...] | None = ()
    restated: float = 0.0  # share of the solution that the explanation says in the same words
    unscored: str = ""
    length: int = 0  # tokens of all that a student would learn from: prompt, thought and solution with their marks

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Scores":
        for name in ("solution", "thought", "teacher"):
            data[name] = None if data[name] is None else tuple(data[name])
        return Scores(**data)


@dataclass(frozen=True)
class Episode:
    """One lesson on one problem. `taught` holds the very attempts of `alone` when the teacher abstained."""

    lesson: str
    uid: str
    question: str
    answer: str
    turns: tuple[Turn, ...] = ()
    alone: tuple[Turn, ...] = ()
    taught: tuple[Turn, ...] = ()
    teaching: str | None = None  # None: nothing reached the student
    teaching_tokens: int = 0
    malformed: bool = False  # the teacher did not keep to its tags
    leaked: bool = False  # the teaching gives the answer away
    scores: Scores | None = None  # of an explanation, which no student answers
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def abstained(self) -> bool:
        return self.teaching is None

    def to_json(self) -> str:
        # Not asdict: it would copy every token of every turn, which takes longer than all else about a record.
        return json.dumps(vars(self), default=_plain, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(line: str) -> "Episode":
        return Episode.from_dict(json.loads(line))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Episode":
        said = {name: tuple(_turn(turn) for turn in data[name]) for name in ("turns", "alone", "taught")}
        scores = data.get("scores") and Scores.from_dict(data["scores"])
        return Episode(**{**data, **said, "scores": scores})


def _plain(part: Any) -> Any:
    return list(part) if isinstance(part, Packed) else vars(part)


def _turn(data: dict[str, Any]) -> Turn:
    verdict = data["verdict"] and Verdict(**data["verdict"])
    return Turn(data["speaker"], data["act"], Sample.from_dict(data["sample"]), verdict)
