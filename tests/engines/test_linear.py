"""Linear layers over a copy of their weights: the same numbers, the same bits in any company, nothing left behind."""

from typing import Any

import pytest
import torch
from torch import nn

from tutelage.engines import linear

pytestmark = pytest.mark.skipif(not linear.KNOWN, reason="needs oneDNN on x86")


def layers() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.Linear(96, 40, bias=False), nn.Linear(40, 8)).requires_grad_(False)


def inside(model: Any, states: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(), linear.packed(model):
        assert all("forward" in vars(layer) for layer in model)
        return model(states)


def test_a_row_has_the_same_bits_in_any_company() -> None:
    model = layers()
    states = torch.randn(512, 64)
    found = inside(model, states)
    assert torch.allclose(found, model(states), atol=1e-5)
    for rows in (2, 3, 4, 7, 32, 60, 200):
        assert torch.equal(inside(model, states[:rows]), found[:rows])
        assert torch.equal(inside(model, states[-rows:]), found[-rows:])
    assert torch.equal(inside(model, states.view(16, 32, 64)), found.view(16, 32, 8))
    assert inside(model, states[:0]).shape == (0, 8)


@pytest.mark.parametrize("way", ["in place", "behind torch", "replaced"])
def test_new_weights_are_copied_and_old_ones_are_not(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, states = layers(), torch.randn(4, 64)
    before = inside(model, states)
    made: list[Any] = []
    pack = torch.ops.mkldnn._reorder_linear_weight
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda weight: made.append(weight) or pack(weight))
    assert torch.equal(inside(model, states), before) and not made
    weight = model[1].weight
    if way == "in place":
        weight += 1
    elif way == "behind torch":
        weight.data += 1
    else:
        model[1].weight = nn.Parameter(weight + 1, requires_grad=False)
    after = inside(model, states)
    assert len(made) == 1 and not torch.allclose(after, before)
    assert torch.allclose(after, model(states), atol=1e-4)


def test_for_a_while_layers_are_as_they_were() -> None:
    model, states = layers(), torch.randn(4, 64)
    model[2].forward = own = lambda states: states
    with linear.packed(model):
        copied = model(states)
        with linear.unpacked(model):
            assert [vars(layer).get("forward") for layer in model] == [None, None, own]
            plain = model(states)
        assert torch.equal(model(states), copied)
    assert torch.equal(model(states), plain) and vars(model[2])["forward"] is own


def test_nothing_is_left_behind() -> None:
    model = layers()
    with pytest.raises(ZeroDivisionError), linear.packed(model):
        raise ZeroDivisionError
    assert not any("forward" in vars(layer) for layer in model)
    assert all(layer in linear._copies for layer in model)
    linear.forget(model)
    assert not any(layer in linear._copies for layer in model)


def test_what_does_not_fit_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers()
    model[0].to(torch.bfloat16)
    model[1].forward = own = lambda states: states
    with linear.packed(model):
        assert ["forward" in vars(layer) for layer in model] == [False, True, True]
        assert model[1].forward is own
    assert model[1].forward is own
    monkeypatch.setattr(linear, "LARGEST", 40 * 8 - 1)
    with linear.packed(model):
        assert "forward" not in vars(model[2])
