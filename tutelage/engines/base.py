"""What every engine offers: sampled tokens for a prompt, and log-probs for given tokens."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict

from tutelage.engines.packed import Packed


class Message(TypedDict):
    """One chat message. A last message from the assistant is a prefill that the model continues."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Sampling:
    """How one request is sampled."""

    max_tokens: int = 256
    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0

    def but(self, **changes: float) -> "Sampling":
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sample:
    """One completion, exactly as sampled.

    `ids` end with the end-of-sequence token when `finish` is "stop"; `logprobs` are those of the
    distribution at the sampling temperature, before top-p and top-k. Endpoints that speak text only
    leave `ids`, `logprobs` and `prompt_ids` empty and fill `tokens` from their usage report.
    """

    text: str
    finish: Literal["stop", "length"]
    tokens: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | Packed = ()
    prompt_ids: tuple[int, ...] | Packed = ()
    seconds: float = 0.0  # this sample's share of the engine's time

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Sample":
        for name in ("ids", "logprobs", "prompt_ids"):
            data[name] = tuple(data[name])
        return Sample(**data)


class Engine(ABC):
    """Something that speaks. Every method may be called by thousands of coroutines at once."""

    name: str
    revision: str  # changes when the weights change: cached samples are keyed by it

    @abstractmethod
    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        """`n` samples of one prompt. The same request gives the same samples, whoever else is asking."""

    async def proceed(
        self, messages: Sequence[Message], last: Sample | None, sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        """The assistant's next turn. `last` is its latest one, which engines that see tokens go on from as sampled."""
        return await self.generate(messages, sampling, n, seed)

    @abstractmethod
    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        """The log-prob of every completion token after the prompt."""

    def count(self, text: str, sample: Sample) -> int:
        """How many tokens a part of a sample's text takes; by its share of the text where nothing better is known."""
        return round(sample.tokens * len(text) / max(1, len(sample.text)))

    async def close(self) -> None:
        """Give back what the engine holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Wrapper(Engine):
    """An engine before another one, that has its own way with first turns. What is said later depends on what others
    said meanwhile: it is neither the same for all nor to be remembered."""

    def __init__(self, engine: Engine):
        self.engine, self.name, self.revision = engine, engine.name, engine.revision

    async def proceed(
        self, messages: Sequence[Message], last: Sample | None, sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        if last is None:
            return await self.generate(messages, sampling, n, seed)
        return await self.engine.proceed(messages, last, sampling, n, seed)

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        return await self.engine.score(prompt, completion, temperature)

    def count(self, text: str, sample: Sample) -> int:
        return self.engine.count(text, sample)
