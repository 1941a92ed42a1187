"""Linear layers on a CPU over a copy of their weights in oneDNN's own order: far quicker than MKL for a few rows."""

import contextlib
import platform
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from tutelage.engines.past import mark

LARGEST = 2**30  # weights; of a larger model there is no second copy
KNOWN = platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()  # where bits were compared

# By layer, for all engines of a model: what its weights were like, and the copy.
_copies: WeakKeyDictionary[nn.Module, tuple[Any, Tensor]] = WeakKeyDictionary()


@contextlib.contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Inside, float32 layers on a CPU read the copy, which is made anew where weights are others than before. A row
    has the same bits whatever it is read with, as long as there are two rows at least. Not to be copied meanwhile."""
    layers = [layer for layer in model.modules() if _fits(layer)]
    if sum(layer.weight.numel() for layer in layers) > LARGEST:
        layers = []
    try:
        for layer in layers:
            known, copy = _copies.get(layer, (None, None))
            if copy is None or known != mark(layer):
                copy = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
                _copies[layer] = mark(layer), copy
            layer.forward = partial(_forward, layer, copy)  # type: ignore[method-assign]
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


@contextlib.contextmanager
def unpacked(model: nn.Module) -> Iterator[None]:
    """Inside `packed`, or not: for what gains nothing from copies, and must not depend on whether there are some."""
    own = [(layer, vars(layer).pop("forward")) for layer in model.modules() if _ours(vars(layer).get("forward"))]
    try:
        yield
    finally:
        for layer, forward in own:
            layer.forward = forward


def held(model: nn.Module) -> bool:
    return any(layer in _copies for layer in model.modules())


def forget(model: nn.Module) -> None:
    """Give the memory back; the next turn would copy again."""
    for layer in model.modules():
        _copies.pop(layer, None)


def _fits(layer: nn.Module) -> TypeGuard[nn.Linear]:
    return (
        KNOWN
        and type(layer) is nn.Linear  # others may do more
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.float32
        and "forward" not in vars(layer)  # somebody else's
    )


def _ours(forward: Any) -> bool:
    return isinstance(forward, partial) and forward.func is _forward


def _forward(layer: nn.Linear, copy: Tensor, states: Tensor) -> Tensor:
    if not states.numel() or states.dtype != torch.float32:  # which somebody's autocast sees to
        return nn.Linear.forward(layer, states)
    return torch.ops.mkldnn._linear_pointwise(states, copy, layer.bias, "none", [], "")
