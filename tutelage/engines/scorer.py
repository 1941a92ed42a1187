"""Log-probs of given tokens: texts are read in batches, and only a bounded number of logits exists at a time."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.cache_utils import Cache

from tutelage.engines.jobs import Job
from tutelage.engines.slots import pad, round_up
from tutelage.engines.texts import PREFILL, Prefix, Scratch, read
from tutelage.errors import EngineError

LOGITS = 64 * 2**20  # bytes of logits at a time
TOKENS = {"cpu": 1024, "cuda": 6144}  # read at a time: more would only take more memory
# What one more forward pass costs, in multiplications: on a GPU the many launches, on a CPU the way of the weights.
PASS = {"cpu": 1e10, "cuda": 2e12}


def score(model: Any, jobs: list[Job]) -> None:
    """Give every job the log-probs of its completion; what several texts begin with is read once where that pays."""
    if not jobs:
        return
    device = next(model.parameters()).device
    tokens = TOKENS.get(device.type, TOKENS["cuda"])
    size = sum(weights.numel() for weights in model.parameters())
    least = PASS.get(device.type, PASS["cuda"]) / size
    for prefix, group in shared([job for job in jobs if not job.cancelled()], least):
        cache: Cache = Prefix() if prefix else Scratch()
        if prefix:
            read(model, pad([group[0].prompt[:prefix]], prefix, device), cache)
        for batch in batches(group, prefix, tokens, alike=device.type == "cpu"):
            weigh(model, batch, prefix, cache, device)


def shared(jobs: list[Job], least: float) -> list[tuple[int, list[Job]]]:
    """Jobs by the beginning that they share, its length first: 0 where reading it once saves under `least` tokens."""
    alike: dict[tuple[int, ...], list[Job]] = {}
    for job in jobs:
        # The prompt's last token stays with the completion, whose first token it predicts.
        alike.setdefault(job.prompt[: (len(job.prompt) - 1) // PREFILL * PREFILL], []).append(job)
    pays = {prefix: group for prefix, group in alike.items() if (len(group) - 1) * len(prefix) >= max(1, least)}
    rest = [job for prefix, group in alike.items() if prefix not in pays for job in group]
    return [(0, rest), *((len(prefix), group) for prefix, group in pays.items())]


def batches(jobs: list[Job], prefix: int, tokens: int, alike: bool) -> Iterator[list[Job]]:
    """Longest first, so many as are no more than `tokens` with their padding, which is never more than the texts.

    With `alike`, only texts of the same padded length meet: the bits of a CPU depend on that length.
    """
    jobs = sorted(jobs, key=reach)
    while jobs:
        batch = [jobs.pop()]
        longest = reach(batch[0])
        # Of the prefix, a row has keys and queries only, about a quarter of all that a token takes.
        row = longest - prefix + prefix // 4
        near = longest if alike else longest - (longest - prefix) // 2
        while jobs and (len(batch) + 1) * row <= tokens and reach(jobs[-1]) >= near:
            batch.append(jobs.pop())
        yield batch


def reach(job: Job) -> int:
    return round_up(len(job.prompt) + len(job.completion), PREFILL)


def weigh(model: Any, batch: list[Job], prefix: int, cache: Cache, device: torch.device) -> None:
    """Read the texts and settle their jobs."""
    texts = [(job.prompt + job.completion)[prefix:] for job in batch]
    counts = [len(job.completion) for job in batch]
    output = listen(model, pad(texts, reach(batch[0]) - prefix, device), cache)
    starts = [len(job.prompt) - 1 - prefix for job in batch]
    rows = zip(output.last_hidden_state, starts, counts, strict=True)
    hidden = torch.cat([row[start : start + count] for row, start, count in rows])
    heats = torch.tensor([job.temperature or 1.0 for job in batch], device=device)
    heats = heats.repeat_interleave(torch.tensor(counts, device=device))
    wanted = pad([list(chain.from_iterable(job.completion for job in batch))], sum(counts), device)[0]
    words = model.config.get_text_config().vocab_size
    found = iter(logprobs(partial(head, model, output), hidden, wanted, heats, words).tolist())
    for job, count in zip(batch, counts, strict=True):
        job.done(list(islice(found, count)))


def logprobs(head: Callable[[Tensor], Tensor], hidden: Tensor, wanted: Tensor, heats: Tensor, words: int) -> Tensor:
    """In float32, of one token after each hidden state at its temperature; every row of logits is overwritten."""
    bytes_each = words * (4 if hidden.dtype == torch.float32 else 4 + hidden.itemsize)
    step = max(PREFILL, LOGITS // bytes_each // PREFILL * PREFILL)
    count = len(hidden)
    blank = round_up(count, PREFILL) - count  # whole steps of rows: CPU matrix kernels then sum in one order
    hidden = F.pad(hidden, (0, 0, 0, blank))
    wanted, heats = F.pad(wanted, (0, blank)), F.pad(heats, (0, blank), value=1.0)
    parts = []
    for some, tokens, heat in zip(hidden.split(step), wanted.split(step), heats.split(step), strict=True):
        logits = head(some).float().div_(heat[:, None])
        chosen = logits.gather(1, tokens[:, None])
        top = logits.amax(1, keepdim=True)
        total = logits.sub_(top).exp_().sum(1, keepdim=True)
        parts.append((chosen - top - total.log_())[:, 0])
    return torch.cat(parts)[:count]


def listen(model: Any, ids: Tensor, cache: Cache) -> Any:
    """Read the texts; what the layers under the head gave for all of their tokens."""
    heard: list[Any] = []
    hook = body(model).register_forward_hook(lambda _module, _inputs, output: heard.append(output))
    try:
        read(model, ids, cache)
    finally:
        hook.remove()
    return heard[0]


def head(model: Any, output: Any, hidden: Tensor) -> Tensor:
    """The logits after some hidden states, by the model's own forward pass over layers that only hand these up.

    So whatever a model does to its logits (scaling, soft caps, an adapter on the head) is done here too.
    """
    layers = body(model)
    output.last_hidden_state = hidden[None]
    own = vars(layers).get("forward")  # accelerate, for one, puts a forward of its own there
    layers.forward = lambda *_, **__: output
    try:
        blank = torch.zeros(1, 1, dtype=torch.long, device=hidden.device)
        return model(input_ids=blank, use_cache=False, logits_to_keep=0).logits[0]
    finally:
        if own is None:
            del layers.forward
        else:
            layers.forward = own


def body(model: Any) -> nn.Module:
    """The layers under the head, also of a model under an adapter."""
    whole = getattr(model, "get_base_model", lambda: model)()
    if whole.base_model is whole:
        raise EngineError(f"{type(whole).__name__} has no layers apart from its head: score with another model")
    return whole.base_model
