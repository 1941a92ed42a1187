"""Key/value memory in slots, and attention over it that gives a sample the same bits in any batch.

Token j of a sample always lies at index j of its slot, so a longer neighbour only adds masked zeros
behind it. Together with tokens in multiples of ROWS, where CPU matrix kernels sum in one order, and
sums over SUMMED values, this makes float32 samples on a CPU independent of the batch, bit for bit,
and a token's keys and values the same whether it was read or written.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedConfig
from transformers.cache_utils import Cache

from tutelage.errors import EngineError

ATTENTION = "tutelage_slots"
ROWS = 4
LENGTH = 64
SUMMED = 128  # values added up at a time; over more, CPU kernels choose an order by their number
BLOCK = 128  # tokens of a row that attend at a time, for the memory this takes


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


class Slots(Cache):
    """The cache handed to the model: every token is written to its own index of its sample's slot."""

    def __init__(self, config: PreTrainedConfig, dtype: torch.dtype, device: torch.device):
        super().__init__(layers=[])
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.shape = (config.num_hidden_layers, heads)
        self._dtype, self.device = dtype, device  # what has a public dtype, accelerate takes for a tensor
        self.rows, self.length = 0, 0
        self.moves = 0  # times that all memory moved elsewhere
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._index: tuple[Tensor, Tensor]
        self._all, self._seen = True, 0

    @property
    def bytes_per_token(self) -> int:
        layers, heads = self.shape
        return 2 * layers * heads * self.width * self._dtype.itemsize

    @property
    def bytes(self) -> int:
        return self.rows * self.length * self.bytes_per_token

    def size(self, rows: int, length: int, budget: int) -> tuple[int, int]:
        """Memory with room for these; what an earlier, longer request left is given back if both do not fit."""
        rows, length = round_up(rows, ROWS), round_up(length, LENGTH)
        wide, long = max(self.rows, rows), max(self.length, length)
        return (wide, long) if wide * long <= budget else (rows, length)

    def reserve(self, rows: int, length: int) -> None:
        """Change the memory's size, keeping what is there."""
        if (rows, length) == (self.rows, self.length):
            return
        self.moves += 1  # at once: memory may run out half way
        kept, seen = min(self.rows, rows), min(self.length, length)
        layers, heads = self.shape
        for store in (self.keys, self.values):
            for layer in range(layers):
                grown = torch.zeros(rows, heads, length, self.width, dtype=self._dtype, device=self.device)
                if self.rows:
                    grown[:kept, :, :seen] = store[layer][:kept, :, :seen]
                    store[layer] = grown
                else:
                    store.append(grown)
        self.rows, self.length = rows, length

    def clear(self) -> None:
        self.keys, self.values, self.rows, self.length = [], [], 0, 0
        self.moves += 1

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        where = self._where(targets)
        for store in (*self.keys, *self.values):
            store[where, :, :length] = store[source, :, :length]

    def take(self, place: int, length: int) -> Tensor:
        """What a slot holds of its first tokens: keys of all layers, then values."""
        return torch.stack([store[place, :, :length] for store in (*self.keys, *self.values)])

    def put(self, places: Sequence[int], taken: Tensor, length: int) -> None:
        where = self._where(places)
        for store, part in zip((*self.keys, *self.values), taken, strict=True):
            store[where, :, :length] = part[:, :length]

    def _where(self, places: Sequence[int]) -> int | Tensor:
        return places[0] if len(places) == 1 else torch.tensor(places, device=self.device)

    def at(self, positions: Tensor, seen: int, places: Tensor | None = None) -> None:
        """The next forward pass holds tokens at these positions, a row for each of these slots, or for the first ones,
        and looks back over `seen`."""
        rows = torch.arange(len(positions), device=self.device) if places is None else places
        self._index, self._all, self._seen = (rows[:, None], positions), places is None, seen

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        rows, positions = self._index
        found = []
        for store, states in ((self.keys[layer_idx], key_states), (self.values[layer_idx], value_states)):
            store[rows, :, positions] = states.transpose(1, 2)
            seen = store[:, :, : self._seen]
            found.append(seen[: len(rows)] if self._all else seen[rows[:, 0]])
        return tuple(found)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._seen


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Some tokens of every row, over all that its slot holds."""
    refuse(softcap, s_aux)
    heads, queries, width = query.shape[1:]
    if queries > 1 and query.device.type != "cpu":
        # Quick kernels know masks or grouped heads, not both.
        key, value = (states.repeat_interleave(heads // key.shape[1], dim=1) for states in (key, value))
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
        return out.transpose(1, 2).contiguous(), None
    query = query * (width**-0.5 if scaling is None else scaling)
    blocks = zip(query.split(BLOCK, dim=2), attention_mask.split(BLOCK, dim=2), strict=True)
    return torch.cat([_weighted(block, key, value, mask) for block, mask in blocks], dim=1), None


def refuse(softcap: float | None, s_aux: Tensor | None) -> None:
    if softcap is not None or s_aux is not None:
        raise EngineError("soft-capped or sink attention; serve this model and use student_url=…")


def _weighted(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attention in steps whose order of summation depends neither on the number of queries nor on the slots' length:
    a token read among others has the bits of one that was written. Grouped heads share their keys without copies."""
    rows, heads, queries, width = query.shape
    shared, length = key.shape[1], key.shape[2]
    each = heads // shared * queries
    key, value = (states.reshape(rows * shared, length, width) for states in (key, value))
    grouped = F.pad(query.reshape(rows * shared, each, width), (0, 0, 0, -each % ROWS))
    scores = torch.bmm(grouped, key.transpose(1, 2))
    scores.view(rows, -1, queries, length).masked_fill_(~mask, float("-inf"))
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    step = SUMMED if query.device.type == "cpu" else length
    out = torch.bmm(weights[:, :, :step], value[:, :step])
    for start in range(step, length, step):
        out = torch.baddbmm(out, weights[:, :, start : start + step], value[:, start : start + step])
    return out[:, :each].reshape(rows, heads, queries, width).transpose(1, 2)


AttentionInterface.register(ATTENTION, attend)


def masks(config: PreTrainedConfig, queries: Tensor, length: Tensor, slots: bool) -> Any:
    """The mask a model of this kind expects: windows where layers slide, none where texts' causal order says it all.

    `queries` are positions, (rows, tokens); `length` is the range of positions that can be looked back at.
    """
    at = queries[:, None, :, None]
    causal = length <= at
    full = causal if slots else None
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = set(getattr(config, "layer_types", None) or ())
    if not window or (kinds and "sliding_attention" not in kinds):
        return full
    near = causal & (length > at - window)
    return {"full_attention": full, "sliding_attention": near} if kinds - {"sliding_attention"} else near


def forward(model: Any, ids: Tensor, positions: Tensor, mask: Any, cache: Cache, keep: int | Tensor = 1) -> Tensor:
    """The logits after the last token of every row, or after those in `keep`."""
    return model(
        input_ids=ids,
        position_ids=positions,
        attention_mask=mask,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    ).logits


def pad(texts: Sequence[Sequence[int]], length: int, device: torch.device) -> Tensor:
    """Ids as rows of one length, zeros behind; by way of an array, which is far quicker for long texts."""
    flat = array("q")
    for text in texts:
        flat.extend(text)
        flat.extend([0] * (length - len(text)))
    return torch.frombuffer(flat, dtype=torch.long).view(len(texts), length).to(device)
