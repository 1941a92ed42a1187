"""Shapes of recorded steps anywhere; the recordings themselves where there is a GPU."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
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


def engine(model: Any, recorded: bool, **settings: Any) -> TransformersEngine:
    tokenizer = SimpleNamespace(eos_token_id=299, decode=lambda ids, **_: "", get_vocab=dict)
    made = TransformersEngine(model, tokenizer, name="tiny", **settings)
    made._graphs.works = recorded
    return made


async def crowd(engine: TransformersEngine) -> Found:
    several = (engine._write(tuple(range(5, 20 + 3 * i)), Sampling(max_tokens=40 + i), 2, seed=i) for i in range(20))
    return [(sample.ids, sample.logprobs) for group in await asyncio.gather(*several) for sample in group]


def asked(model: Any, changes: list[Callable[[], None]], recorded: bool) -> tuple[list[Found], int]:
    """The samples of a crowd before and after each change of the weights, and how many steps were recorded."""

    async def main() -> tuple[list[Found], int]:
        async with engine(model, recorded) as one:
            found = []
            for change in changes:
                change()
                found.append(await crowd(one))
            return found, len(one._graphs._recorded)

    return asyncio.run(main())


def alike(plain: Found, replayed: Found) -> bool:
    logprobs = [value for _, values in replayed for value in values]
    expected = [value for _, values in plain for value in values]
    return [ids for ids, _ in plain] == [ids for ids, _ in replayed] and logprobs == pytest.approx(expected, abs=1e-4)


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
        assert alike(plain, replayed)
    assert found[True][0] != found[True][1] != found[True][2]


@gpu
def test_a_model_that_cannot_be_recorded_speaks_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny()
    model.model.embed_tokens.register_forward_pre_hook(lambda _m, inputs: print(inputs[0].max().item()))
    found, count = asked(model, [lambda: None, lambda: None], recorded=True)
    assert count == 0 and "without CUDA graphs" in caplog.text
    assert found[0] == found[1] == asked(tiny(), [lambda: None], recorded=False)[0][0]


@gpu
def test_engines_of_one_model_each_replay_their_own_voice() -> None:
    found: dict[bool, list[Found]] = {}

    async def main(recorded: bool) -> list[Found]:
        torch.manual_seed(1)
        adapted: Any = get_peft_model(tiny(), LoraConfig(r=4, init_lora_weights=False, target_modules=["q_proj"]))
        lock = threading.Lock()
        async with (
            engine(adapted.eval(), recorded, lock=lock) as tuned,
            engine(adapted, recorded, lock=lock, voice=adapted.disable_adapter) as base,
        ):
            rounds = [await asyncio.gather(crowd(tuned), crowd(base)) for _ in range(3)]
            assert bool(tuned._graphs._recorded) == bool(base._graphs._recorded) == recorded
            return [crowd for both in rounds for crowd in both]

    for recorded in (False, True):
        found[recorded] = asyncio.run(main(recorded))
    assert all(alike(*both) for both in zip(found[False], found[True], strict=True))
    assert not alike(found[True][0], found[True][1]) and alike(found[True][0], found[True][4])


@gpu
def test_memory_of_a_failed_recording_can_be_given_back(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny()
    model.model.embed_tokens.register_forward_pre_hook(lambda _m, inputs: print(inputs[0].max().item()))
    asked(model, [lambda: None], recorded=True)
    assert "without CUDA graphs" in caplog.text
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert asked(tiny(), [lambda: None], recorded=True)[1] > 0  # nor is the next engine hindered
