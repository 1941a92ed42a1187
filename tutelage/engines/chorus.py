"""Copies of one lesson ask the teacher the same thing: it is asked once, for one sample each."""

import asyncio
from collections.abc import Sequence

from tutelage.engines.base import Engine, Message, Sample, Sampling


class Chorus(Engine):
    """Waits until all copies have asked, then speaks for them; the same copies always get the same samples."""

    def __init__(self, engine: Engine, copies: int):
        self.engine, self.copies, self.name, self.revision = engine, copies, engine.name, engine.revision
        self._waiting: dict[int, asyncio.Future[Sample]] = {}

    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        assert n == 1 and seed not in self._waiting, "every copy asks once, with a seed of its own"
        asked = self._waiting[seed] = asyncio.get_running_loop().create_future()
        if len(self._waiting) == self.copies:
            seeds = sorted(self._waiting)  # not as they came: that is chance
            try:
                samples = await self.engine.generate(messages, sampling, self.copies, seeds[0])
            except BaseException as error:
                asked.cancel()  # ours is raised here
                for waiting in self._waiting.values():
                    if not waiting.done():
                        waiting.set_exception(error)
                raise
            for each, sample in zip(seeds, samples, strict=True):
                if not self._waiting[each].done():
                    self._waiting[each].set_result(sample)
        return [await asked]

    async def proceed(
        self, messages: Sequence[Message], last: Sample | None, sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        # Only the first turn is the same for all copies.
        if last is None:
            return await self.generate(messages, sampling, n, seed)
        return await self.engine.proceed(messages, last, sampling, n, seed)

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        return await self.engine.score(prompt, completion, temperature)

    def count(self, text: str, sample: Sample) -> int:
        return self.engine.count(text, sample)
