"""What the in-process engine works on: requests, and the samples being written for them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
