"""What prompts begin with alike is read once: most prompts of a lesson open with the same words."""

from collections.abc import Sequence
from typing import Any

import torch

from tutelage.engines.jobs import Job
from tutelage.engines.scorer import PASS
from tutelage.engines.slots import PREFILL, Prefix, pad, read

FIRST = 2 * PREFILL  # tokens by which openings are told apart
MOST = 8  # openings kept at a time

Opening = tuple[tuple[int, ...], Prefix]


class Openings:
    """The beginnings that were read; true only while the weights stay as they are."""

    def __init__(self, model: Any, device: torch.device):
        self.model, self.device = model, device
        # Tokens that must be saved to make up for one more pass.
        self.least = PASS.get(device.type, PASS["cuda"]) / sum(weights.numel() for weights in model.parameters())
        self.known: dict[tuple[int, ...], Opening] = {}

    def clear(self) -> None:
        self.known.clear()

    def of(self, jobs: Sequence[Job]) -> list[Opening | None]:
        """The opening of each prompt, if it has one that is worth it. At least two tokens of a prompt are left."""
        alike: dict[tuple[int, ...], list[Job]] = {}
        for job in jobs:
            alike.setdefault(job.prompt[:FIRST], []).append(job)
        for first, group in alike.items():
            if first in self.known:
                continue
            prompts = [job.prompt[:-2] for job in group]
            common = alike_until(min(prompts), max(prompts)) // PREFILL * PREFILL  # all others are between these two
            if common >= FIRST and (len(group) - 1) * common >= self.least:
                if len(self.known) == MOST:
                    del self.known[next(iter(self.known))]
                prefix = Prefix()
                read(self.model, pad([group[0].prompt[:common]], common, self.device), prefix)
                self.known[first] = group[0].prompt[:common], prefix
        return [self._of(job.prompt) for job in jobs]

    def _of(self, prompt: tuple[int, ...]) -> Opening | None:
        opening = self.known.get(prompt[:FIRST])
        return (
            opening
            if opening and prompt[: len(opening[0])] == opening[0] and len(prompt) > len(opening[0]) + 1
            else None
        )


def alike_until(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common before they part."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)
