"""An engine that sees tokens but has no model: a real tokenizer, and replies by a function of the prompt's text."""

from collections.abc import Callable
from typing import Any

from tutelage.engines import Sample, Sampling
from tutelage.engines.tokens import TokenEngine


class Talker(TokenEngine):
    """Writes what `reply` says of the prompt's text, cut off at the token limit."""

    def __init__(self, tokenizer: Any, reply: Callable[[str], str], context: int = 2048):
        self.tokenizer, self.answer, self.context = tokenizer, reply, context
        self.name, self.revision = "talker", "1"
        self.prompts: list[str] = []

    async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
        self.prompts.append(self.tokenizer.decode(prompt))
        ids = (*self.tokenizer.encode(self.answer(self.prompts[-1])), self.tokenizer.eos_token_id)
        kept = ids[: sampling.max_tokens]
        finish = "stop" if len(kept) == len(ids) else "length"
        return [Sample(self.decode(kept), finish, len(kept), kept, (-0.5,) * len(kept), prompt) for _ in range(n)]

    async def _weigh(self, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float) -> list[float]:
        return [-0.5] * len(completion)
