"""Whole texts, which nobody will continue: read from their start, or after a beginning that several share."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from tutelage.engines.slots import forward, masks, refuse

ATTENTION = "tutelage_texts"
PREFILL = 32  # texts are padded to multiples of this; on a CPU only those of one padded length share a batch


class Scratch(Cache):
    """Keeps nothing: for a forward pass over whole texts that nobody will continue."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


class Prefix(Cache):
    """What texts begin with alike: the first forward pass is kept, later ones see it before their own tokens."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        if layer_idx not in self.kept:
            self.kept[layer_idx] = key_states, value_states
            return key_states, value_states
        rows = len(key_states)
        keys, values = (kept.expand(rows, -1, -1, -1) for kept in self.kept[layer_idx])
        return torch.cat((keys, key_states), dim=2), torch.cat((values, value_states), dim=2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.kept[0][0].shape[2] if self.kept else 0


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal, and padded on the right.

    Of texts whose beginning was read before, the queries of the beginning are missing. Zeros take their place, so
    that a token meets the same kernel, and gets the same bits, as in a text that is read whole.
    """
    refuse(softcap, s_aux)
    rows, before = len(query), key.shape[2] - query.shape[2]
    # The CPU kernel splits its work by batch size, which changes the bits: there, one text at a time.
    step = 1 if query.device.type == "cpu" else rows
    parts = [
        F.scaled_dot_product_attention(
            F.pad(query[i : i + step], (0, 0, before, 0)) if before else query[i : i + step],
            key[i : i + step],
            value[i : i + step],
            attn_mask=attention_mask,
            is_causal=attention_mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )[:, :, before:]
        for i in range(0, rows, step)
    ]
    return (torch.cat(parts) if len(parts) > 1 else parts[0]).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attend)


def read(model: Any, ids: Tensor, cache: Cache) -> Tensor:
    """Whole texts from their start, or from where the cache's prefix ends; the logits are those of no token."""
    config = model.config.get_text_config()
    start = cache.get_seq_length()
    length = torch.arange(start + ids.shape[1], device=ids.device)
    mask = masks(config, length[None], length, False)
    before, config._attn_implementation = config._attn_implementation, ATTENTION
    try:
        return forward(model, ids, length[None, start:], mask, cache, keep=ids.new_empty(0))
    finally:
        config._attn_implementation = before
