"""Decoding steps as CUDA graphs: to launch the kernels of a small model one by one takes longer than they run."""

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tutelage.engines.slots import LENGTH, ROWS, Slots, round_up

OFTEN = 3  # steps of one shape before it is recorded: rare ones are not worth it
MOST = 64  # recordings of an engine: the driver takes some MB for each
SHARE = 8  # an engine without work keeps at most one part in so many of the memory that is free
RECORDING = threading.Lock()  # of all engines one at a time: memory cannot be given back while another records

log = logging.getLogger(__name__)


class Graphs:
    """Recorded steps, by shape. They read weights and slots where these were: both are looked for before a replay."""

    def __init__(self, model: Any, slots: Slots, step: Callable[[Tensor, Tensor, int], Tensor]):
        self.model, self.slots, self.step = model, slots, step
        self.works = slots.device.type == "cuda"
        self._weights: list[int] = []
        self.drop()

    def drop(self) -> None:
        """Forget all, and give its memory back."""
        self._recorded: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._met = Counter[tuple[int, int]]()
        self._moves = self.slots.moves
        self._pool: Any = None
        self._logits: Tensor | None = None
        self._bytes = 0  # of what the recordings work in

    def shape(self, count: int, position: int) -> tuple[int, int]:
        """The rows of a step of so many samples up to this position, and how far back they look."""
        if not self.works:
            return round_up(count, ROWS), min(self.slots.length, round_up(position + 1, LENGTH))
        rows = max(ROWS, 1 << (count - 1).bit_length())
        part = max(LENGTH, (1 << position.bit_length()) // 8)  # few shapes, and a quarter too long at most
        return min(self.slots.rows, rows), min(self.slots.length, round_up(position + 1, part))

    def start(self) -> None:
        """Before the first step of a turn: others may have put new weights in the place of the old since the last."""
        parts = itertools.chain(self.model.parameters(), self.model.buffers()) if self.works else ()
        if self._weights != (weights := [part.data_ptr() for part in parts]):
            self._weights = weights
            self.drop()

    def run(self, ids: Tensor, positions: Tensor, seen: int) -> Tensor:
        """The logits of one step, which the next one may overwrite."""
        if self._moves != self.slots.moves:
            self.drop()
        shape = len(ids), seen
        if shape in self._recorded:
            graph, token, place = self._recorded[shape]
            token.copy_(ids)
            place.copy_(positions)
            graph.replay()
            assert self._logits is not None
            return self._logits[: len(ids)]
        logits = self.step(ids, positions, seen)
        self._met[shape] += 1
        if self.works and self._met[shape] == OFTEN and len(self._recorded) < MOST:
            self._record(shape, ids.clone(), positions.clone(), logits)
        return logits

    def _record(self, shape: tuple[int, int], ids: Tensor, positions: Tensor, like: Tensor) -> None:
        device = self.slots.device
        if self._logits is None:  # one for all, outside of what the recordings share
            self._logits = like.new_empty(self.slots.rows, *like.shape[1:])
        graph = torch.cuda.CUDAGraph()
        with RECORDING, torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
            torch.cuda.empty_cache()  # which recording does too: what is taken afterwards is its own
            before = torch.cuda.memory_reserved(device)
            try:
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"
                ):
                    self._logits[: len(ids)].copy_(self.step(ids, positions, shape[1]))
            except Exception as error:  # a model that looks at its own numbers on the way cannot be recorded
                log.warning("decoding without CUDA graphs: %s", error)
                self.works = False
                self.drop()
                return
            self._bytes += max(0, torch.cuda.memory_reserved(device) - before)
        self._pool = self._pool or graph.pool()
        self._recorded[shape] = graph, ids, positions

    def keep(self) -> bool:
        """Whether an engine without work keeps its slots, and with them what is recorded."""
        if not self.works:
            return False
        device = self.slots.device
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # cached, and free for us
        held = self.slots.bytes + self._bytes + (0 if self._logits is None else self._logits.nbytes)
        return held * SHARE <= torch.cuda.mem_get_info(device)[0] + unused
