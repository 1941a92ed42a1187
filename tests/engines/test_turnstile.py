"""Models never speak together, everybody gets a turn, and whoever goes away leaves the door open."""

import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.engines.turnstile import Turnstile


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=12))
@settings(max_examples=100, deadline=None)
def test_one_model_at_a_time_and_all_of_them_in_the_end(requests: list[tuple[str, int, int, bool]]) -> None:
    inside: list[str] = []
    served: list[int] = []
    stile = Turnstile()

    async def ask(number: int, model: str, late: int, long: int) -> None:
        for _ in range(late):
            await asyncio.sleep(0)
        async with stile.turn(model):
            inside.append(model)
            try:
                for _ in range(long):
                    assert set(inside) == {model}
                    await asyncio.sleep(0)
            finally:
                inside.remove(model)
            served.append(number)

    async def main() -> None:
        tasks = [asyncio.ensure_future(ask(i, *request[:3])) for i, request in enumerate(requests)]
        await asyncio.sleep(0)
        for task, (*_, gone) in zip(tasks, requests, strict=True):
            if gone:
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        kept = {i for i, (*_, gone) in enumerate(requests) if not gone}
        assert kept <= set(served)
        assert stile.inside == 0 and not stile.waiting

    asyncio.run(main())


def test_all_that_wait_for_the_next_model_enter_together() -> None:
    order: list[str] = []

    async def main() -> None:
        stile, door = Turnstile(), asyncio.Event()

        async def ask(model: str) -> None:
            async with stile.turn(model):
                order.append(model)
                await door.wait()

        tasks = [asyncio.ensure_future(ask(model)) for model in "abab"]
        await asyncio.sleep(0)
        assert order == ["a"]  # the second a waits behind the b that came before it
        door.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == ["a", "b", "b", "a"]
