"""Models take turns on a server: requests of one at a time, all that wait for the next one together."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turnstile:
    """For vLLM on a CPU, which adds an adapter to the base too where both share a batch (log-probs were off by 1.3)."""

    def __init__(self) -> None:
        self.model, self.inside = "", 0
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}  # by model, the one that waits longest first

    @contextlib.asynccontextmanager
    async def turn(self, model: str) -> AsyncIterator[None]:
        """Enter at once when nobody is inside, or only our like and nobody else waits."""
        if not self.inside or (model == self.model and not self.waiting):
            self.model = model
            self.inside += 1
        else:
            called = asyncio.get_running_loop().create_future()
            self.waiting.setdefault(model, []).append(called)
            try:
                await called
            except asyncio.CancelledError:
                if not called.cancelled():  # called and gone at the same moment
                    self._leave()
                raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        self.inside -= 1
        while self.waiting and not self.inside:
            self.model = next(iter(self.waiting))
            for called in self.waiting.pop(self.model):
                if not called.cancelled():
                    self.inside += 1
                    called.set_result(None)
