"""Shapes of recorded steps anywhere; the recordings themselves where there is a GPU."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from tutelage.engines import Sampling
from tutelage.engines.graphs import Graphs
from tutelage.engines.local import TransformersEngine
from tutelage.engines.slots import LENGTH, ROWS, round_up

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def graphs(rows: int, length: int) -> Graphs:
    slots = SimpleNamespace(rows=rows, length=length, device=torch.device("cuda"), moves=0)
    return Graphs(None, slots, lambda *_: torch.empty(0))  # type: ignore[arg-type]


@given(st.integers(1, 512), st.integers(0, 9000), st.data())
def test_a_shape_holds_all_and_little_more(count: int, position: int, data: Any) -> None:
    rows = round_up(data.draw(st.integers(count, 512)), ROWS)
    length = round_up(data.draw(st.integers(position + 1, 9001)), LENGTH)
    wide, far = graphs(rows, length).shape(count, position)
    assert count <= wide <= min(rows, max(ROWS, 2 * count))
    assert position < far <= min(length, max(position + 1 + LENGTH, 1.25 * position + LENGTH))


def test_shapes_are_few() -> None:
    found = {graphs(512, 2048).shape(count, position) for count in range(1, 513) for position in range(0, 2048, 8)}
    assert len(found) <= 8 * 16


def tiny() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=299,
    )
    model: Any = LlamaForCausalLM(config)
    return model.to("cuda").eval()


Found = list[tuple[tuple[int, ...], tuple[float, ...]]]


def asked(model: Any, changes: list[Callable[[], None]], recorded: bool) -> tuple[list[Found], int]:
    """The samples of a crowd before and after each change of the weights, and how many steps were recorded."""
    tokenizer = SimpleNamespace(eos_token_id=299, decode=lambda ids, **_: "", get_vocab=dict)

    async def main() -> tuple[list[Found], int]:
        async with TransformersEngine(model, tokenizer, name="tiny") as engine:
            engine._graphs.works = recorded
            found = []
            for change in changes:
                change()
                several = (
                    engine._write(tuple(range(5, 20 + 3 * i)), Sampling(max_tokens=40 + i), 2, seed=i)
                    for i in range(20)
                )
                samples = [sample for group in await asyncio.gather(*several) for sample in group]
                found.append([(sample.ids, sample.logprobs) for sample in samples])
            return found, len(engine._graphs._recorded)

    return asyncio.run(main())


def scale(model: Any, by: float, move: bool) -> Callable[[], None]:
    def change() -> None:
        for part in model.parameters():
            if move:
                part.data = part.data * by
            else:
                part.data.mul_(by)

    return change


@gpu
def test_a_replay_says_what_the_model_says_with_the_weights_of_the_moment() -> None:
    found = {}
    for recorded in (False, True):
        model = tiny()
        changes = [lambda: None, scale(model, 1.1, move=False), scale(model, 1.1, move=True), lambda: None]
        found[recorded], count = asked(model, changes, recorded)
        assert bool(count) == recorded
    for plain, replayed in zip(found[False], found[True], strict=True):
        assert [ids for ids, _ in plain] == [ids for ids, _ in replayed]
        for (_, expected), (_, logprobs) in zip(plain, replayed, strict=True):
            assert logprobs == pytest.approx(expected, abs=1e-4)
    assert found[True][0] != found[True][1] != found[True][2]


@gpu
def test_a_model_that_cannot_be_recorded_speaks_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny()
    model.model.embed_tokens.register_forward_pre_hook(lambda _m, inputs: print(inputs[0].max().item()))
    found, count = asked(model, [lambda: None, lambda: None], recorded=True)
    assert count == 0 and "without CUDA graphs" in caplog.text
    assert found[0] == found[1] == asked(tiny(), [lambda: None], recorded=False)[0][0]
