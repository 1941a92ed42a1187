"""Copies of one lesson ask the teacher the same thing: it is asked once, for one sample each."""

import asyncio
from collections.abc import Sequence

from tutelage.engines.base import Engine, Message, Sample, Sampling, Wrapper


class Chorus(Wrapper):
    """Waits until all copies have asked, then speaks for them; the same copies always get the same samples."""

    def __init__(self, engine: Engine, copies: int):
        super().__init__(engine)
        self.copies = copies
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
