"""One token per row from its own distribution and its own random number, whoever shares the batch."""

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 256


def draw(logits: Tensor, settings: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids and their log-probs at the sampling temperature, before top-p and top-k; temperature 0 is greedy.

    `settings` has a column for each row: temperature, top_p, top_k and a uniform random number. It is in the memory of
    the CPU, where a look at it stops no GPU.
    """
    greedy, cut = bool((settings[0] == 0).any()), bool((settings[1] < 1).any() or (settings[2] > 0).any())
    temperature, top_p, top_k, uniform = settings.to(logits.device)
    logps = F.log_softmax(logits / torch.where(temperature == 0, 1.0, temperature)[:, None], dim=-1)
    probs = logps.exp()
    ids = pick(truncate(probs, top_p, top_k) if cut else probs, uniform)
    if greedy:
        ids = torch.where(temperature == 0, logits.argmax(dim=-1), ids)
    return ids, logps.gather(1, ids[:, None])[:, 0]


def truncate(probs: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Zero what lies outside the k likeliest tokens or outside the smallest set that holds p of the mass."""
    ordered, order = probs.sort(dim=-1, descending=True)
    rank = torch.arange(probs.shape[1], device=probs.device)
    before = ordered.cumsum(dim=-1) - ordered
    keep = before < top_p[:, None]
    keep &= (top_k[:, None] == 0) | (rank < top_k[:, None])
    keep[:, 0] = True
    return torch.zeros_like(probs).scatter(1, order, ordered * keep)


def pick(probs: Tensor, uniform: Tensor) -> Tensor:
    """Inverse of the cumulative distribution, first over blocks: a float64 sum over a whole vocabulary is slow."""
    rows = torch.arange(probs.shape[0], device=probs.device)
    blocks = F.pad(probs, (0, -probs.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    ends = blocks.sum(dim=-1).double().cumsum(dim=-1)
    target = uniform.double().clamp(max=1 - 1e-9) * ends[:, -1]  # float32 rounds what is almost 1 up to 1
    block = torch.searchsorted(ends, target[:, None], right=True)[:, 0].clamp(max=ends.shape[1] - 1)
    inside = blocks[rows, block].double().cumsum(dim=-1)
    start = torch.where(block > 0, ends[rows, (block - 1).clamp(min=0)], 0.0)
    # Rounding may put the target at the very end of its block, where only tokens of probability 0 follow.
    rest = torch.minimum(target - start, inside[:, -1] * (1 - 1e-9))
    ids = block * BLOCK + torch.searchsorted(inside, rest[:, None], right=True)[:, 0]
    return ids.clamp(max=probs.shape[1] - 1)  # of probabilities that are no numbers, any: a GPU would stop for good
