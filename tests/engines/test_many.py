"""Two real vLLM servers as one: they share the load, a dialogue stays where it is known, and one may die."""

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tutelage import models
from tutelage.engines import Sampling
from tutelage.engines.fleet import BLOCK, Fleet
from tutelage.engines.vllm import VLLMEngine

BASE = "smollm2-135m"


def counted(url: str, what: str) -> float:
    """A counter of the server's own."""
    with build_opener(ProxyHandler({})).open(f"{url}/metrics") as reply:
        text = reply.read().decode()
    return sum(float(value) for value in re.findall(rf"^vllm:{what}_total{{.*}} (\S+)$", text, re.MULTILINE))


def use(urls: list[str], work: Callable[[VLLMEngine], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Fleet(urls) as fleet:
            return await work(await VLLMEngine(BASE, fleet, models.tokenizer(BASE)).connect())

    return asyncio.run(main())


@pytest.mark.slow
def test_two_servers_share_the_work_until_one_dies(
    vllm: str, mortal: tuple[str, "subprocess.Popen[bytes]"], capsys: pytest.CaptureFixture[str]
) -> None:
    url, process = mortal
    urls, short = [vllm, url], Sampling(max_tokens=4)

    def prompt(talk: int, turns: int) -> list[int]:
        """Dialogues that grow by more than a block of vLLM's prefix cache on a CPU."""
        return [1000 + talk + word % 50 for word in range(3 * BLOCK * turns)]

    async def work(engine: VLLMEngine) -> Any:
        async def crowd(tokens: int) -> Any:
            asked = (engine.generate_ids([500 + i, 7], Sampling(tokens, 1.0), n=2, seed=i) for i in range(16))
            return await asyncio.gather(*asked)

        before = [counted(one, "request_success") for one in urls]
        first = await crowd(8)
        shares = [counted(one, "request_success") - old for one, old in zip(urls, before, strict=True)]
        homes = []
        for talk in range(4):
            engine.fleet.servers[talk % 2].load += 4  # as if it were a little busier just then
            for turns in (1, 2, 3):
                hits = [counted(one, "prefix_cache_hits") for one in urls]
                await engine.generate_ids(prompt(60 * talk, turns), short)
                grown = [counted(one, "prefix_cache_hits") - old for one, old in zip(urls, hits, strict=True)]
                homes.append((talk, turns, [tokens > 0 for tokens in grown]))
                engine.fleet.servers[talk % 2].load = 0
                engine.fleet.servers[1 - talk % 2].load = 4  # and its home busier afterwards
            engine.fleet.servers[0].load = engine.fleet.servers[1].load = 0
        asked = asyncio.create_task(crowd(64))
        while not engine.fleet.servers[1].load:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # its engine is at it
        busy = engine.fleet.servers[1].load
        process.kill()
        return first, shares, homes, busy, await asked, engine.fleet.servers

    first, shares, homes, busy, later, (alive, dead) = use(urls, work)
    assert sum(shares) == 32 and min(shares) >= 8, shares
    for talk, turns, hits in homes:  # each in the cache of the server where it began, and of no other
        assert hits == ([False, False] if turns == 1 else [talk % 2 == 1, talk % 2 == 0]), homes
    assert busy and dead.death and not alive.death and alive.load == dead.load == 0
    assert [len(group) for group in later] == [2] * 16
    for group, longer in zip(first, later, strict=True):  # the same samples, whoever wrote them
        for one, other in zip(group, longer, strict=True):
            assert other.ids[: len(one.ids)] == one.ids and len(one.logprobs) == len(one.ids)
    assert f"{url} cannot be reached" in capsys.readouterr().err
