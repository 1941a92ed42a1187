"""What the in-process engine works on: requests, and the samples being written for them."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tutelage.engines.base import Sampling


@dataclass(eq=False)
class Job:
    """One request: a prompt and `n` samples of it, or a text to score."""

    prompt: tuple[int, ...]
    done: Callable[[Any], None]
    cancelled: Callable[[], bool]
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    seed: int = 0
    completion: tuple[int, ...] = ()
    temperature: float = 1.0
    started: int = 0
    finished: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def need(self) -> int:
        return len(self.prompt) + self.sampling.max_tokens


@dataclass(eq=False)
class Row:
    """One sample being written; `token` at `position` is what the model reads next."""

    job: Job
    index: int
    token: int
    position: int
    random: random.Random
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Span(NamedTuple):
    """Tokens to read, from a position on, into a slot."""

    ids: tuple[int, ...]
    start: int
    place: int

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


def batches(spans: Iterable[Span], tokens: int, spare: float) -> Iterator[list[Span]]:
    """Longest first, so many as are no more than `tokens`, and padded by no more than `spare`: what a pass costs."""
    left = sorted(spans, key=lambda span: len(span.ids))
    while left:
        batch = [left.pop()]
        longest, end = len(batch[0].ids), batch[0].end
        blank = 0
        while left:
            span = left[-1]
            end, blank = max(end, span.end), blank + longest - len(span.ids)
            # Of what was read before, a row has keys only, about a quarter of all that a token takes.
            if (len(batch) + 1) * (longest + (end - longest) // 4) > tokens or blank > spare:
                break
            batch.append(left.pop())
        yield batch
