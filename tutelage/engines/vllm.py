"""Unmodified vLLM servers as an engine: token ids in, token ids and log-probs out."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tutelage import models
from tutelage.engines.base import Sample, Sampling
from tutelage.engines.fleet import TOKENS, Fleet, Server
from tutelage.engines.http import Reply, content, derive, dig, overflows, said, short
from tutelage.engines.tokens import TokenEngine, shared
from tutelage.errors import EngineError, PromptTooLong, nearest

# A model's own generation settings would apply wherever a request is silent.
PLAIN = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}

# No text, no objects for each log-prob, only the whole answer (0.26 must be told: RequestOutputKind.FINAL_ONLY is 2).
LEAN = PLAIN | {"detokenize": False, "flat_logprobs": True, "output_kind": 2}


class VLLMEngine(TokenEngine):
    """One of the models that the servers of a fleet serve: the base (say, the student) or an adapter (the teacher).

    Engines that share a fleet share its connections. One fleet belongs to one event loop.
    """

    def __init__(self, model: str, fleet: Fleet, tokenizer: Any = None) -> None:
        """`tokenizer` is read from the model's folder when none is given."""
        self.name = self.model = model
        self.fleet, self.tokenizer, self.context, self.revision = fleet, tokenizer, 0, ""

    async def connect(self) -> Self:
        """Fail before a run rather than in it: all servers are up, serve our model, and report the right log-probs."""
        await self.fleet.connect()
        roots = set()
        for server in self.fleet.servers:
            card = self._card(server)
            roots.add(str(card.get("root") or self.model))
        if len(roots) > 1:
            raise EngineError(f"the servers have different weights for {self.model}: {' and '.join(sorted(roots))}")
        root = roots.pop()
        self.context = min(self._length(server) for server in self.fleet.servers)
        folder = Path(root)
        if self.tokenizer is None:
            self.tokenizer = models.tokenizer(root if folder.is_dir() else self.model)
        weights = models.fingerprint(folder) if folder.is_dir() else root
        versions = "+".join(sorted({server.version for server in self.fleet.servers}))
        self.revision = f"{hashlib.blake2b(weights.encode(), digest_size=8).hexdigest()}-vllm-{versions}"
        for server in self.fleet.servers:
            await self._check_logprobs(server)
        return self

    async def close(self) -> None:
        await self.fleet.close()

    async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
        """Log-probs come with the samples, except where top-p or top-k cut the distribution: the server only has
        those after the cut, which are others than a Sample promises."""
        whole = sampling.top_p == 1.0 and sampling.top_k == 0
        asked = n if sampling.temperature else 1  # greedy samples are all the same, and more are refused
        started = time.perf_counter()
        choices = await self._ask(
            prompt,
            n=asked,
            seed=derive(seed, 0),  # the server counts on from it for the other samples
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            logprobs=0 if whole else None,
        )
        seconds = (time.perf_counter() - started) / n
        return [self._sample(choice, prompt, whole, seconds) for choice in choices * (n // asked)]

    async def _weigh(self, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float) -> list[float]:
        if temperature not in (0.0, 1.0):
            raise EngineError(f"a vLLM server scores at temperature 1, not {temperature:g}: score in this process")
        text = prompt + completion
        if len(text) >= self.context:
            raise PromptTooLong(
                f"a text of {len(text)} tokens leaves no room for the one token that a vLLM server must write, in the "
                f"{self.context}-token context of {self.name}"
            )
        [choice] = await self._ask(text, n=1, max_tokens=1, temperature=0.0, top_p=1.0, top_k=0, prompt_logprobs=0)
        scored = (choice.get("prompt_logprobs") or [])[len(prompt) :]
        found = [dig(entry, str(token), "logprob") for entry, token in zip(scored, completion, strict=False)]
        if len(found) != len(completion) or None in found:
            raise EngineError(f"the servers give no prompt_logprobs for {self.model}")
        return found

    async def _ask(self, prompt: Sequence[int], **options: Any) -> list[dict[str, Any]]:
        """The choices of one request, in order."""

        def request(server: Server) -> tuple[str, dict[str, Any]]:
            if server.terse and "prompt_logprobs" not in options:
                return TOKENS, {"model": self.model, "token_ids": prompt, "sampling_params": LEAN | options}
            more = {"model": self.model, "prompt": prompt, "return_token_ids": True}
            return "/v1/completions", PLAIN | options | more

        server, reply = await self.fleet.ask(self.model, prompt, request, options["n"])
        if not reply.ok:
            raise await self._refusal(server, reply, len(prompt))
        choices = dig(content(reply), "choices")
        if not isinstance(choices, list) or len(choices) != options["n"]:
            raise EngineError(f"the reply of {server.url} holds no answer: {short(said(reply))}")
        return sorted(choices, key=lambda choice: choice["index"])

    def _sample(self, choice: dict[str, Any], prompt: tuple[int, ...], whole: bool, seconds: float) -> Sample:
        finish, ids = choice.get("finish_reason"), choice.get("token_ids")
        logprobs = _logprobs(choice) if whole else []
        if finish not in ("stop", "length"):
            raise EngineError(f"a reply of {self.name} was ended by finish_reason={finish}, so it is not its answer")
        if not ids or logprobs is None or (whole and len(logprobs) != len(ids)):
            raise EngineError(f"a reply of {self.name} came without token ids and log-probs")
        return Sample(self.decode(ids), finish, len(ids), tuple(map(shared, ids)), tuple(logprobs), prompt, seconds)

    async def _refusal(self, server: Server, reply: Reply, length: int) -> EngineError:
        words = f"{server.url} answered {reply.status} ({short(said(reply))})"
        if overflows(reply):
            return PromptTooLong(f"{words} to a prompt of {length} tokens: raise max_model_len or shorten the prompt")
        if reply.status == 404:
            await self.fleet.refresh(server)
            self._card(server)
        return EngineError(f"{words}: the request itself is refused, so it was not tried again")

    def _card(self, server: Server) -> dict[str, Any]:
        if self.model not in server.models:
            hint = short(nearest(self.model, server.models))
            raise EngineError(f"{server.url} has no model {self.model}: {hint}; or start it with that model")
        return server.models[self.model]

    def _length(self, server: Server) -> int:
        """An adapter has the context of its base."""
        card = self._card(server)
        base = server.models.get(str(card.get("parent")), card)
        length = card.get("max_model_len") or base.get("max_model_len")
        if not length:
            raise EngineError(f"{server.url} does not say the context length of {self.model}")
        return int(length)

    async def _check_logprobs(self, server: Server) -> None:
        """Log-probs must be those at the sampling temperature, and a server's default are those at temperature 1."""
        best = []
        for temperature in (1.0, 2.0):
            body = {"model": self.model, "prompt": [0], "max_tokens": 1, "temperature": temperature, "logprobs": 1}
            reply = await self.fleet.send(server, "/v1/completions", PLAIN | body | {"top_p": 1.0, "top_k": 0})
            top = dig(content(reply), "choices", 0, "logprobs", "top_logprobs", 0)
            if not top:
                raise await self._refusal(server, reply, 1)
            best.append(max(top.values()))
        if best[0] == best[1]:
            raise EngineError(
                f"{server.url} reports log-probs at temperature 1 instead of the sampling temperature: start it with "
                "--logprobs-mode processed_logprobs"
            )
        if server.terse:  # it answered, which is not yet to say that it speaks
            sampling = LEAN | {"max_tokens": 1, "temperature": 1.0, "logprobs": 0}
            body = {"model": self.model, "token_ids": [0], "sampling_params": sampling}
            choice = dig(content(await self.fleet.send(server, TOKENS, body)), "choices", 0) or {}
            server.terse = bool(choice.get("token_ids") and _logprobs(choice))


def _logprobs(choice: dict[str, Any]) -> list[float] | None:
    """Those of the sampled tokens, as the endpoint for completions or the one for tokens gives them."""
    if entries := dig(choice, "logprobs", "content"):
        return [entry["logprob"] for entry in entries]
    return dig(choice, "logprobs", "token_logprobs")
