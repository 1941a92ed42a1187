"""Any OpenAI-compatible endpoint as an engine: text in, text and token counts out."""

import asyncio
import hashlib
import random
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self

import aiohttp

from tutelage.engines.base import Engine, Message, Sample, Sampling
from tutelage.engines.http import URL, Client, Reply, content, derive, dig, overflows, proxy, said, short, why
from tutelage.errors import EngineError, PromptTooLong, Refused, nearest

FILTER = re.compile(r"content.?(?:filter|policy|management)|usage polic|moderation|safety", re.I)
LONGEST_BACKOFF, LONGEST_WAIT = 60.0, 600.0  # seconds: our own pauses, and those a server may ask for


class OpenAIEngine(Engine):
    """Speaks to `base_url`/chat/completions. One engine belongs to one event loop."""

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = 6,
        backoff: float = 0.5,
    ) -> None:
        """`timeout` is for one try; `backoff` is the wait before the first retry and doubles after each."""
        self.name, self.base_url = model, base_url.rstrip("/")
        self.timeout, self.retries, self.backoff = timeout, retries, backoff
        self.revision = self._revision()
        self._key = "".join((api_key or "").splitlines()).strip()  # keys come from files, and a header is one line
        self._slots = asyncio.Semaphore(concurrency)
        self._jitter = random.Random()  # our own, so that retries never move the seeds of a run
        if not URL.match(base_url):
            raise EngineError(f"base_url={base_url} is no address: write it like http://127.0.0.1:8000/v1")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = Client(timeout, proxy(self.base_url), headers)

    async def connect(self) -> Self:
        """Fail before a run rather than in it: the endpoint is up and, where it lists models, has ours."""
        if served := await self._served(retries=min(self.retries, 2)):
            if self.name not in served:
                raise self._unknown_model(served)
            # A served name is only an alias: vLLM's `root` is the weights behind it.
            self.revision = self._revision(str(served[self.name].get("root") or ""))
        return self

    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        """`n` requests of one sample each, because many endpoints ignore `n`."""
        body: dict[str, Any] = {
            "model": self.name,
            "messages": list(messages),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.top_k > 0:  # not in OpenAI's own API, which refuses what it does not know
            body["top_k"] = sampling.top_k
        if messages and messages[-1]["role"] == "assistant":  # a prefill, by vLLM's extension
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        tasks = [asyncio.create_task(self._sample(body | {"seed": derive(seed, i)})) for i in range(n)]
        try:
            return await asyncio.gather(*tasks)
        finally:  # after one failure the others would go on retrying for nobody
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        raise EngineError("this endpoint cannot score tokens; use a local model or engine=vllm")

    async def close(self) -> None:
        await self._client.close()

    async def _sample(self, body: dict[str, Any]) -> Sample:
        async with self._slots:
            reply, seconds = await self._call("/chat/completions", self.retries, body)
        if not reply.ok:
            raise await self._refusal(reply)
        data = content(reply)
        choice, tokens = dig(data, "choices", 0), dig(data, "usage", "completion_tokens")
        text, finish = dig(choice, "message", "content"), dig(choice, "finish_reason")
        where = f"the reply of {self.name} at {self.base_url}"
        if choice is None:
            raise EngineError(f"{where} holds no answer: {self._said(reply)}")
        if finish not in ("stop", "length"):
            why = f"{where} was ended by finish_reason={finish}, so it is not the model's answer"
            if finish in ("content_filter", "tool_calls"):
                raise Refused(why)
            raise EngineError(f"{why}: look at the server's log; the same command goes on from here")
        if text is None and finish == "length":
            text = ""  # servers that split off the reasoning do this when it never ended: cut off, nothing said
        if not isinstance(text, str):
            raise Refused(f"{where} has no content (finish_reason={finish})")
        if not isinstance(tokens, int):
            raise EngineError(f"{where} has no usage.completion_tokens: turn on usage reports on the server")
        text = text.encode("utf-8", "replace").decode()  # JSON can hold half a character, a file cannot
        return Sample(text, finish, tokens, seconds=seconds)

    async def _call(self, path: str, retries: int, body: Any = None) -> tuple[Reply, float]:
        """The first reply that trying again would not change, and the seconds it took."""
        url, tries = self.base_url + path, 0
        while True:
            tries += 1
            asked, start = 0.0, time.perf_counter()
            try:
                reply = await self._client.fetch(url, body)
            except aiohttp.SocketTimeoutError:
                failure = f"{url} gave no answer in {self.timeout:g} s: raise timeout or lower concurrency"
            except (aiohttp.ClientError, OSError) as error:
                failure = f"{url} cannot be reached ({why(error)}): "
                failure += f"is the server running? try: curl {self.base_url}/models"
            else:
                status = reply.status
                if not (status in (408, 409, 429) or status >= 500) or overflows(reply):
                    return reply, time.perf_counter() - start
                asked = _retry_after(reply)
                advice = "lower concurrency" if status == 429 else "look at the server's log"
                failure = f"{url} answered {status} ({self._said(reply)}): {advice}"
            if asked > LONGEST_WAIT:
                raise EngineError(f"{failure}, or come back in the {asked:.0f} s it asks for")
            if tries > retries:
                raise EngineError(f"after {tries} tries, {failure}" if retries else failure)
            pause = min(self.backoff * 2 ** (tries - 1), LONGEST_BACKOFF) * self._jitter.uniform(0.5, 1.0)
            await asyncio.sleep(max(asked, pause))  # the slot stays taken: a busy server gets fewer requests

    async def _served(self, retries: int) -> dict[str, dict[str, Any]]:
        """The models the endpoint lists, by name; none where it has no such list."""
        reply, _ = await self._call("/models", retries)
        if reply.status in (401, 403):
            raise await self._refusal(reply)
        found = dig(content(reply), "data") if reply.ok else None
        cards = [card for card in found if dig(card, "id")] if isinstance(found, list) else []
        return {str(card["id"]).removeprefix("models/"): card for card in cards}  # Gemini puts that in front

    async def _refusal(self, reply: Reply) -> EngineError:
        """What to tell the user about a status that no retry can mend."""
        words = f"{reply.url} answered {reply.status} ({self._said(reply)})"
        if overflows(reply):
            return PromptTooLong(f"{words}: lower max_tokens, shorten the prompt or serve a longer context")
        if reply.status in (400, 403, 422, 451) and FILTER.search(reply.text):
            return Refused(f"{words}: its filter will not have this prompt")
        if reply.status in (401, 403):
            return EngineError(f"{words}: set the key in the variable that api_key_env names (OPENAI_API_KEY)")
        if reply.status == 404:
            with suppress(EngineError):
                served = await self._served(retries=0)
                if served and self.name not in served:
                    return self._unknown_model(served)
            return EngineError(f"{words}: is base_url right? It usually ends in /v1")
        return EngineError(f"{words}: the request itself is refused, so it was not tried again")

    def _unknown_model(self, served: dict[str, Any]) -> EngineError:
        return EngineError(f"{self.base_url} has no model {self.name}: {short(nearest(self.name, served))}")

    def _said(self, reply: Reply) -> str:
        """The server's own words on one short line, without the key that some servers repeat."""
        line = said(reply)
        return short(line.replace(self._key, "[key]") if self._key else line)

    def _revision(self, root: str = "") -> str:
        return f"{self.base_url}#{hashlib.blake2b(f'{self.name} {root}'.encode(), digest_size=4).hexdigest()}"


def _retry_after(reply: Reply) -> float:
    """Seconds the server asks us to wait: the header holds a number or a date."""
    value = reply.headers.get("Retry-After", "")
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    return 0.0
