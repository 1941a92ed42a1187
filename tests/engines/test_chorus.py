"""One request for all copies, whatever the order they come in."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tutelage.engines import Engine, Sample, Sampling
from tutelage.engines.chorus import Chorus
from tutelage.errors import EngineError


class Numbered(Engine):
    name, revision = "numbered", "1"

    def __init__(self, broken: bool = False):
        self.requests: list[tuple[int, int]] = []
        self.broken = broken

    async def generate(self, messages: Sequence[Any], sampling: Sampling, n: int = 1, seed: int = 0) -> list[Sample]:
        self.requests.append((n, seed))
        await asyncio.sleep(0)
        if self.broken:
            raise EngineError("it broke")
        return [Sample(f"{seed}/{i}", "stop", 1) for i in range(n)]

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        return []


async def ask(chorus: Chorus, seed: int, delay: float) -> str:
    await asyncio.sleep(delay)
    [sample] = await chorus.generate([], Sampling(), seed=seed)
    return sample.text


def test_copies_share_one_request_and_keep_their_places() -> None:
    async def run(delays: list[float]) -> tuple[list[str], list[tuple[int, int]]]:
        engine = Numbered()
        chorus = Chorus(engine, 3)
        said = await asyncio.gather(*(ask(chorus, seed, delay) for seed, delay in zip((9, 4, 7), delays, strict=True)))
        return list(said), engine.requests

    for delays in ([0, 0, 0], [0.02, 0, 0.01], [0, 0.02, 0.01]):
        assert asyncio.run(run(delays)) == (["4/2", "4/0", "4/1"], [(3, 4)])


def test_an_error_reaches_every_copy() -> None:
    async def run() -> list[Any]:
        chorus = Chorus(Numbered(broken=True), 3)
        return await asyncio.gather(*(ask(chorus, seed, 0) for seed in range(3)), return_exceptions=True)

    assert [str(error) for error in asyncio.run(run())] == ["it broke"] * 3


def test_a_copy_that_asks_twice_is_a_mistake() -> None:
    async def run() -> None:
        chorus = Chorus(Numbered(), 3)
        await asyncio.gather(ask(chorus, 1, 0), ask(chorus, 1, 0))

    with pytest.raises(AssertionError, match="asks once"):
        asyncio.run(run())
