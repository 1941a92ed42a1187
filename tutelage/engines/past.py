"""What was read is not read again: the keys and values of prompts' beginnings, shared by many or a dialogue's own."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tutelage.engines.slots import Slots

PASS = {"cpu": 4e9, "cuda": 2e12}  # multiplications that one more pass costs; on a CPU over packed weights
FIRST = 64  # tokens by which openings are told apart

Ids = tuple[int, ...]


class Past:
    """Texts and their keys and values, as many tokens as there is room for; those not used for longest go first.

    True only of the weights it was read with: `check` them when they may have changed.
    """

    def __init__(self, model: Any, slots: Slots):
        self.model, self.slots = model, slots
        device = slots.device.type
        # Tokens that must be saved to make up for one more pass.
        self.least = PASS.get(device, PASS["cuda"]) / sum(weights.numel() for weights in model.parameters())
        self.room = 0
        self.tokens = 0
        self._kept: dict[Ids, Tensor] = {}  # the latest used is last
        self._sorted: list[Ids] = []  # neighbours have most in common
        self._mark: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def clear(self) -> None:
        self._kept.clear()
        self._sorted.clear()
        self.tokens = 0

    def check(self) -> None:
        """Forget all if the weights are others than last time."""
        known, self._mark = self._mark, mark(self.model)
        if self._mark != known:
            self.clear()

    def fit(self, room: int) -> None:
        """From now on hold no more tokens than this."""
        self.room = room
        self._evict(room)

    def find(self, prompt: Ids) -> tuple[int, Tensor | None]:
        """How much of a prompt is known, and the keys and values of a text that begins with it."""
        place = bisect_left(self._sorted, prompt)
        near = [(alike_until(text, prompt), text) for text in self._sorted[max(0, place - 1) : place + 1]]
        known, text = max(near, default=(0, ()))
        if not known:
            return 0, None
        kept = self._kept[text] = self._kept.pop(text)
        return known, kept

    def keep(self, text: Ids, place: int) -> None:
        """Take over what a slot holds. Of texts that go on from one another the longest has it all."""
        at = bisect_left(self._sorted, text)
        if len(text) > self.room or any(longer[: len(text)] == text for longer in self._sorted[at : at + 1]):
            return
        if at and text[: len(self._sorted[at - 1])] == self._sorted[at - 1]:
            self._drop(self._sorted[at - 1])
        self._evict(self.room - len(text))
        self._sorted.insert(bisect_left(self._sorted, text), text)
        self._kept[text] = self.slots.take(place, len(text))
        self.tokens += len(text)

    def openings(self, prompts: Sequence[Ids]) -> Iterator[Ids]:
        """What several of these begin with, where it is not known and reading it once pays."""
        alike: dict[Ids, list[Ids]] = {}
        for prompt in prompts:
            alike.setdefault(prompt[:FIRST], []).append(prompt)
        for group in alike.values():
            opening = min(group)
            opening = opening[: alike_until(opening, max(group))]  # all others are between these two
            saved = (len(group) - 1) * (len(opening) - self.find(opening)[0])
            if saved and saved >= self.least:
                yield opening

    def _evict(self, room: int) -> None:
        while self._kept and self.tokens > room:
            self._drop(next(iter(self._kept)))

    def _drop(self, text: Ids) -> None:
        del self._sorted[bisect_left(self._sorted, text)]
        del self._kept[text]
        self.tokens -= len(text)


def mark(model: Any) -> tuple[Any, ...]:
    """Tells weights from what they were before: how often each was written to, and some of its numbers, since not all
    who write do so by way of torch."""
    weights = [tensor.detach() for tensor in model.parameters()]
    some = torch.cat([tensor.flatten()[:: max(1, tensor.numel() // 16)].float() for tensor in weights])
    counts = (0 if tensor.is_inference() else tensor._version for tensor in model.parameters())
    return (*counts, *some.tolist())


def alike_until(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common before they part."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)
