"""Decoding steps as CUDA graphs: to launch the kernels of a small model one by one takes longer than they run."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tutelage.engines.slots import LENGTH, ROWS, Slots, round_up

OFTEN = 3  # steps of one shape before it is recorded: rare ones are not worth it
SHARE = 8  # an engine without work keeps at most one part in so many of the memory that is free

log = logging.getLogger(__name__)


class Graphs:
    """Recorded steps, by shape. They read weights and slots where these were: both are looked for before a replay."""

    def __init__(self, model: Any, slots: Slots, step: Callable[[Tensor, Tensor, int], Tensor]):
        self.model, self.slots, self.step = model, slots, step
        self.works = slots.device.type == "cuda"
        self._weights: list[int] = []
        self._drop()

    def _drop(self) -> None:
        self._recorded: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._met = Counter[tuple[int, int]]()
        self._moves = self.slots.moves
        self._pool: Any = None
        self._logits: Tensor | None = None

    def shape(self, count: int, position: int) -> tuple[int, int]:
        """The rows of a step of so many samples up to this position, and how far back they look."""
        if not self.works:
            return round_up(count, ROWS), min(self.slots.length, round_up(position + 1, LENGTH))
        rows = max(ROWS, 1 << (count - 1).bit_length())
        part = max(LENGTH, (1 << position.bit_length()) // 8)  # few shapes, and a quarter too long at most
        return min(self.slots.rows, rows), min(self.slots.length, round_up(position + 1, part))

    def start(self) -> None:
        """Before the first step of a turn: others may have put new weights in the place of the old since the last."""
        if self.works and self._weights != (weights := [part.data_ptr() for part in self.model.parameters()]):
            self._weights = weights
            self._drop()

    def run(self, ids: Tensor, positions: Tensor, seen: int) -> Tensor:
        """The logits of one step, which the next one may overwrite."""
        if self._moves != self.slots.moves:
            self._drop()
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
        if self.works and self._met[shape] == OFTEN:
            self._record(shape, ids.clone(), positions.clone(), logits)
        return logits

    def _record(self, shape: tuple[int, int], ids: Tensor, positions: Tensor, like: Tensor) -> None:
        if self._logits is None:  # one for all, outside of what the recordings share
            self._logits = like.new_empty(self.slots.rows, *like.shape[1:])
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                torch.cuda.stream(torch.cuda.current_stream()),  # what a recording that fails does not go back to
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                self._logits[: len(ids)].copy_(self.step(ids, positions, shape[1]))
        except Exception as error:  # a model that looks at its own numbers on the way cannot be recorded
            log.warning("decoding without CUDA graphs: %s", error)
            self.works = False
            self._drop()
            return
        self._pool = self._pool or graph.pool()
        self._recorded[shape] = graph, ids, positions

    def keep(self) -> bool:
        """Whether an engine without work keeps its slots, and with them what is recorded."""
        return self.works and self.slots.bytes * SHARE <= torch.cuda.mem_get_info(self.slots.device)[0]
