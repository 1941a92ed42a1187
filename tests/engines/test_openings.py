"""A shared opening is read once, and nothing else changes: the same samples and log-probs, bit for bit on a CPU."""

import asyncio
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from tutelage.engines import Sample, Sampling
from tutelage.engines.local import TransformersEngine
from tutelage.engines.openings import alike_until

SMALL: dict[str, Any] = dict(
    vocab_size=160, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    initializer_range=0.4,
)  # fmt: skip
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=24)),
}


class Words:
    eos_token_id = None

    def decode(self, ids: Any, **_: Any) -> str:
        return " ".join(map(str, ids))


def prompts() -> list[tuple[int, ...]]:
    """Two openings of 100 and 70 tokens with endings of all lengths, one that is only an opening, and strangers."""
    chance = random.Random(0)

    def some(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(2, 160) for _ in range(count))

    first, second = some(100), some(70)
    found = [first + some(count) for count in (1, 2, 5, 29, 30, 31, 60)] + [second + some(count) for count in (3, 40)]
    return [*found, first, first[:97], some(20), some(90), first[:64] + some(50)]


def written(model: Any, least: float) -> tuple[list[list[Sample]], int]:
    """The samples, and how many tokens the model read."""
    read = [0]
    hook = model.get_input_embeddings().register_forward_hook(lambda _m, inputs, _o: read.append(inputs[0].numel()))

    async def main() -> list[list[Sample]]:
        async with TransformersEngine(model, Words(), name="small") as engine:
            engine._openings.least = least
            asked = [
                engine.generate_ids(prompt, Sampling(max_tokens=6, temperature=1.0), n=2, seed=seed)
                for seed, prompt in enumerate(prompts())
            ]
            return await asyncio.gather(*asked)

    found = asyncio.run(main())
    hook.remove()
    return found, sum(read)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_samples_with_less_reading(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    (plain, whole), (shared, less) = written(model, float("inf")), written(model, 0)
    for one, other in zip(plain, shared, strict=True):
        assert [(s.ids, s.logprobs, s.prompt_ids) for s in one] == [(s.ids, s.logprobs, s.prompt_ids) for s in other]
    assert less < 0.75 * whole


def test_new_weights_are_not_taken_for_the_old_ones() -> None:
    """An opening read before the weights moved must not be used after."""
    torch.manual_seed(0)
    model = MODELS["llama"]().eval()

    async def main() -> tuple[list[list[Sample]], list[list[Sample]]]:
        async with TransformersEngine(model, Words(), name="small") as engine:
            engine._openings.least = 0

            async def ask() -> list[list[Sample]]:
                how = Sampling(max_tokens=4, temperature=1.0)
                return await asyncio.gather(*(engine.generate_ids(prompt, how) for prompt in prompts()[:5]))

            before = await ask()
            with torch.no_grad():
                for weights in model.parameters():
                    weights += 0.05 * torch.randn_like(weights)
            return before, await ask()

    before, after = asyncio.run(main())

    async def plainly() -> list[list[Sample]]:
        async with TransformersEngine(model, Words(), name="small") as engine:
            engine._openings.least = float("inf")
            how = Sampling(max_tokens=4, temperature=1.0)
            return await asyncio.gather(*(engine.generate_ids(prompt, how) for prompt in prompts()[:5]))

    assert before != after
    assert [s.logprobs for [s] in after] == [s.logprobs for [s] in asyncio.run(plainly())]


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_where_two_texts_part(one: list[int], other: list[int]) -> None:
    common = alike_until(one, other)
    assert one[:common] == other[:common]
    assert common == min(len(one), len(other)) or one[common] != other[common]
