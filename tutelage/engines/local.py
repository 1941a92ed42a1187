"""An in-process Transformers model: requests of all running lessons meet in one continuously filled batch."""

import asyncio
import contextlib
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tutelage.engines.base import Sample, Sampling
from tutelage.engines.graphs import Graphs
from tutelage.engines.jobs import Job, Row, Span, batches
from tutelage.engines.linear import forget, held, packed, unpacked
from tutelage.engines.past import Ids, Past
from tutelage.engines.sampler import draw
from tutelage.engines.scorer import score
from tutelage.engines.slots import ATTENTION, LENGTH, ROWS, Slots, forward, masks, pad, round_up
from tutelage.engines.tokens import TokenEngine, shared
from tutelage.errors import EngineError, ModelError

GATHER_SECONDS = 0.003
IDLE_SECONDS = 0.05


class TransformersEngine(TokenEngine):
    """Generates and scores with a model in this process, on its own thread."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        revision: str = "",
        cache_gb: float | None = None,
        voice: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        lock: contextlib.AbstractContextManager[Any] | None = None,
    ):
        """`voice` is entered while the model speaks, e.g. to switch an adapter off; engines that share one model
        share one `lock`."""
        self.model, self.tokenizer, self.name, self.revision = model, tokenizer, name, revision
        self.config = model.config.get_text_config()
        self.device = next(model.parameters()).device
        on_cpu = self.device.type == "cpu"
        self.max_rows = 64 if on_cpu else 512
        self.prefill_tokens = 1024 if on_cpu else 32768
        self.context = getattr(self.config, "max_position_embeddings", 2048)
        self.ends = _end_tokens(model, tokenizer)
        self.slots = Slots(self.config, next(model.parameters()).dtype, self.device)
        budget = (cache_gb or (4 if on_cpu else 16)) * 2**30
        self.budget = max(LENGTH, int(budget / self.slots.bytes_per_token))  # tokens held at once
        self.generated = 0
        self._past = Past(model, self.slots)
        self._graphs = Graphs(model, self.slots, self._decode)
        unknown = set(getattr(self.config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
        if unknown:
            raise ModelError(f"{name} has {', '.join(sorted(unknown))} layers: serve it and use student_url=…")
        self._lost = 0  # tokens that waiting prompts did not get
        self._closed = False
        self._voice, self._lock = voice, lock or threading.Lock()
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asking: asyncio.AbstractEventLoop

    # -- the coroutine side ---------------------------------------------------------------------------

    async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
        written = await self._ask(prompt=prompt, sampling=sampling, n=n, seed=seed)
        # Tokenizers are not thread-safe: only this thread decodes.
        return [Sample(**raw, text=self.decode(raw["ids"])) for raw in written]

    async def _weigh(self, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float) -> list[float]:
        return await self._ask(prompt=prompt, completion=completion, temperature=temperature)

    async def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)
            forget(self.model)

    async def _ask(self, **request: Any) -> Any:
        if self._closed:
            raise EngineError(f"{self.name} is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"engine {self.name}", daemon=True)
            self._thread.start()
        loop = self._asking = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any) -> None:
            if not future.done():
                future.set_exception(result) if isinstance(result, Exception) else future.set_result(result)

        def done(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                loop.call_soon_threadsafe(settle, result)

        self._inbox.put(Job(done=done, cancelled=future.cancelled, **request))
        return await future

    # -- the model's thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of a thread of its own it is the first one
        waiting: list[Job] = []
        rows: list[Row] = []
        while self._collect(waiting, wait=True):
            try:
                with self._turn() as turn:
                    self._past.check()
                    copied = False
                    while waiting or rows:
                        if jobs := [job for job in waiting if job.completion]:
                            with unpacked(self.model):
                                score(self.model, jobs)
                        waiting[:] = [job for job in waiting if not job.completion]
                        if waiting and not copied:
                            turn.enter_context(packed(self.model))
                            copied = True
                        if self._due(len(waiting), len(rows)):
                            self._admit(waiting, rows)
                        self._step(rows)
                        if not self._collect(waiting, wait=False):
                            raise EngineError("it was closed")
            except Exception as error:
                for job in {*waiting, *(row.job for row in rows)}:
                    job.done(EngineError(f"{self.name} failed: {type(error).__name__}: {error}"))
                waiting.clear()
                rows.clear()
                self.slots.clear()
                self._past.clear()
                self._graphs.drop()
                forget(self.model)
                if self._closed:
                    return

    def _collect(self, waiting: list[Job], wait: bool) -> bool:
        """Take what was asked meanwhile; when idle, wait a moment for the others to ask too."""
        timeout: float | None = None if wait else 0.0
        if wait and (self._past or held(self.model)):
            timeout = IDLE_SECONDS
        while True:
            try:
                job = self._inbox.get(block=timeout != 0.0, timeout=timeout)
            except queue.Empty:
                if waiting or not wait:
                    return True
                if not self._asking.is_running():  # no dialogue goes on: others may need the memory
                    self._past.clear()
                    forget(self.model)
                    timeout = None
                continue
            if job is None:
                return False
            waiting.append(job)
            timeout = GATHER_SECONDS if wait else 0.0

    @contextlib.contextmanager
    def _turn(self) -> Iterator[contextlib.ExitStack]:
        """The model is ours until nothing is left to do; a trainer and other engines may share it."""
        with self._lock, self._voice(), torch.inference_mode(), contextlib.ExitStack() as turn:
            before, training = self.config._attn_implementation, self.model.training
            self.config._attn_implementation = ATTENTION
            self.model.eval()
            self._graphs.start()
            try:
                yield turn
            finally:
                self.config._attn_implementation = before
                self.model.train(training)

    def _due(self, waiting: int, rows: int) -> bool:
        """To read stops all who write, for a step at least: new prompts wait for company until they lost as much."""
        self._lost += waiting
        return self._lost >= rows

    def _admit(self, waiting: list[Job], rows: list[Row]) -> None:
        """Fill the batch with what fits, alike lengths together, each prompt read once for all its samples."""
        waiting[:] = [job for job in waiting if not job.cancelled()]
        if not waiting or len(rows) >= self.max_rows:
            return
        waiting.sort(key=lambda job: job.need)
        length = max((round_up(row.job.need, LENGTH) for row in rows), default=0)
        taken: list[tuple[Job, int]] = []
        count = len(rows)
        for job in waiting:
            longest = max(length, round_up(job.need, LENGTH))
            fit = self.budget // longest // ROWS * ROWS
            many = min(job.n - job.started, min(self.max_rows, max(1, fit)) - count)
            if many < 1:
                break
            taken.append((job, many))
            count, length = count + many, longest
        if not taken:
            return
        count, length = self.slots.size(count, length, self.budget)
        self._past.fit(self.budget - count * length)
        self.slots.reserve(count, length)
        first = len(rows)
        texts: dict[Ids, list[int]] = {}
        for job, many in taken:
            # The last prompt token is read by the first decoding step, which gives the first logits.
            texts.setdefault(job.prompt[:-1], []).extend(range(len(rows), len(rows) + many))
            for index in range(job.started, job.started + many):
                rng = random.Random(f"{job.seed}/{index}")
                rows.append(Row(job, index, job.prompt[-1], len(job.prompt) - 1, rng))
            job.started += many
        waiting[:] = [job for job in waiting if job.started < job.n]
        began = time.perf_counter()
        self._read(texts)
        self._lost = 0
        share = (time.perf_counter() - began) / (len(rows) - first)
        for row in rows[first:]:
            row.seconds += share

    def _read(self, texts: dict[Ids, list[int]]) -> None:
        """Fill slots with texts: what is known of them is copied, the rest is read, once for all slots of a text."""
        for opening in self._past.openings(list(texts)):
            place = next(places[0] for text, places in texts.items() if text[: len(opening)] == opening)
            self._read({opening: [place]})
            self._past.keep(opening, place)
        copies: dict[tuple[int, int], tuple[torch.Tensor, list[int]]] = {}
        spans = []
        for text, (place, *_) in texts.items():
            known, kept = self._past.find(text)
            if kept is not None:
                copies.setdefault((known, id(kept)), (kept, []))[1].append(place)
            if known < len(text):
                spans.append(Span(text[known:], known, place))
        for (known, _), (kept, targets) in copies.items():
            self.slots.put(targets, kept, known)
        for batch in batches(spans, self.prefill_tokens, self._past.least):
            width = round_up(len(batch[0].ids), ROWS)
            ids = pad([span.ids for span in batch], width, self.device)
            starts = torch.tensor([span.start for span in batch], device=self.device)
            # What is behind a text in its row is never looked at, and overwritten when the sample gets there.
            positions = (starts[:, None] + torch.arange(width, device=self.device)).clamp(max=self.slots.length - 1)
            seen = min(self.slots.length, round_up(max(span.start for span in batch) + width, LENGTH))
            self._forward(ids, positions, seen, torch.tensor([span.place for span in batch], device=self.device))
        for text, (place, *others) in texts.items():
            if others:
                self.slots.copy(place, others, len(text))

    def _step(self, rows: list[Row]) -> None:
        """One token for every row; finished rows leave and the last row takes their slot."""
        if not rows:
            return
        began = time.perf_counter()
        count = len(rows)
        padded, seen = self._graphs.shape(count, max(row.position for row in rows))
        blank = [0] * (padded - count)
        read = [[row.token for row in rows] + blank, [row.position for row in rows] + blank]
        ids, positions = torch.tensor(read, device=self.device)
        logits = self._forward(ids[:, None], positions[:, None], seen)[:count, -1]
        picks = [row.job.sampling for row in rows]
        settings = [[p.temperature for p in picks], [p.top_p for p in picks], [p.top_k for p in picks]]
        settings.append([row.random.random() for row in rows])
        tokens, logprobs = draw(logits.float(), torch.tensor(settings, dtype=torch.float64).float())
        share = (time.perf_counter() - began) / count
        self.generated += count
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            if math.isnan(logprob):
                raise EngineError("its logits are no numbers, so its weights are broken")
            row.token, row.position, row.seconds = token, row.position + 1, row.seconds + share
            row.ids.append(token)
            row.logprobs.append(logprob)
        for place in reversed(range(count)):
            row = rows[place]
            ended = row.token in self.ends
            if ended or len(row.ids) >= row.job.sampling.max_tokens or row.job.cancelled():
                # Of the last token there are no keys yet: nothing was asked of it.
                self._past.keep((row.job.prompt + tuple(row.ids))[: row.position], place)
                self._finish(row, "stop" if ended else "length")
                last = rows.pop()
                if last is not row:
                    rows[place] = last
                    self.slots.copy(len(rows), [place], last.position)
        if not rows:
            self._rest()

    def _rest(self) -> None:
        """Without work, only what may soon be needed again is kept."""
        if not self._graphs.keep():
            self.slots.clear()
            self._graphs.drop()
        self._past.fit(self.budget - self.slots.rows * self.slots.length)

    def _finish(self, row: Row, finish: str) -> None:
        job = row.job
        job.finished[row.index] = dict(
            finish=finish,
            tokens=len(row.ids),
            ids=tuple(map(shared, row.ids)),
            logprobs=tuple(row.logprobs),
            prompt_ids=job.prompt,
            seconds=row.seconds,
        )
        if len(job.finished) == job.n:
            job.done([job.finished[index] for index in range(job.n)])

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, seen: int, places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Tokens at their positions: one for each of the first slots, which gives the logits, or many for some."""
        if places is None:
            return self._graphs.run(ids, positions, seen)
        self.slots.at(positions, seen, places)
        mask = masks(self.config, positions, torch.arange(seen, device=self.device), True)
        return forward(self.model, ids, positions, mask, self.slots, ids.new_empty(0))

    def _decode(self, ids: torch.Tensor, positions: torch.Tensor, seen: int) -> torch.Tensor:
        self.slots.at(positions, seen)
        mask = masks(self.config, positions, torch.arange(seen, device=self.device), True)
        return forward(self.model, ids, positions, mask, self.slots)


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    ends = {tokenizer.eos_token_id}
    configured = model.generation_config.eos_token_id
    ends.update(configured if isinstance(configured, list) else [configured])
    return frozenset(end for end in ends if end is not None)
