"""A dialogue as its student knows it, what a teacher says in it, and who may teach."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Protocol

from tutelage.engines.base import Message, Sample
from tutelage.lessons import prompts
from tutelage.problem import Problem, Public, Verdict


class Dialogue:
    """What a student has read and written. It is made of what is public and of hints, so no secret can enter it."""

    def __init__(self, public: Public) -> None:
        self.public = public
        self.messages: list[Message] = prompts.solve(public)
        self.attempts: list[Sample] = []
        self.hints: list[str] = []

    @property
    def last(self) -> Sample | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def written(self) -> list[str]:
        """The student's attempts as texts."""
        return [attempt.text for attempt in self.attempts]

    def said(self, attempt: Sample) -> None:
        self.attempts.append(attempt)
        self.messages = [*self.messages, prompts.assistant(attempt.text)]  # engines may keep what they were asked

    def told(self, words: str, hint: str = "") -> None:
        """`words` are all that the student reads; `hint` is the teacher's part of them."""
        self.hints.append(hint)
        self.messages = [*self.messages, prompts.user(words)]


@dataclass(frozen=True)
class Hint:
    """What a teacher says after a wrong answer, and what the guard made of it."""

    text: str  # empty: the student only learns that it was wrong
    sample: Sample | None = None  # as sampled, where a model said it
    flagged: bool = False  # no try passed the guard, so this is a hint that fits any problem
    rejected: Counter[str] = field(default_factory=Counter)  # tries that did not pass, by reason

    @property
    def regenerations(self) -> int:
        return self.rejected.total() - self.flagged

    @property
    def record(self) -> Sample:
        """As it is kept: without the prompt, which holds the answer, and without log-probs, which depend on it."""
        sample = self.sample or Sample(self.text, "stop", 0)
        return replace(sample, prompt_ids=(), logprobs=())


class Teacher(Protocol):
    """Whoever gives hints. `turn` and `copy` fix the random numbers."""

    name: str
    knows: bool  # the answer: who does not has none to give away

    async def hint(self, problem: Problem, talk: Dialogue, verdict: Verdict, turn: int, copy: int) -> Hint:
        """A hint on the dialogue's last attempt, which was judged to be wrong."""
