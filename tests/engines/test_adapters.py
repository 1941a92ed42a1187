"""A base and its adapters in one copy of the weights say what each of them says alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tutelage import models
from tutelage.engines import Sample, Sampling
from tutelage.engines.adapters import share
from tutelage.engines.base import Engine
from tutelage.errors import ModelError

ASKED: list[Any] = [{"role": "user", "content": "Name a colour."}]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A small random model and two adapters that change what it says."""
    folder = tmp_path_factory.mktemp("family")
    words = models.tokenizer("smollm2-135m")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.5, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    with models.quiet():
        LlamaForCausalLM(config).save_pretrained(folder / "base")
        words.save_pretrained(folder / "base")
        for number in (1, 2):
            model = LlamaForCausalLM.from_pretrained(folder / "base")
            lora = LoraConfig(r=4 * number, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
            get_peft_model(model, lora).save_pretrained(str(folder / str(number)))
    return [str(folder / name) for name in ("base", "1", "2")]


async def said(engine: Engine) -> list[Sample]:
    return await engine.generate(ASKED, Sampling(max_tokens=6, temperature=1.0), n=2, seed=3)


def test_together_they_say_what_each_says_alone(family: list[str]) -> None:
    names = family

    async def together() -> list[list[tuple[int, ...]]]:
        engines = share(names, "cpu", "float32", None)
        assert len({id(engine.model) for engine in engines.values()}) == 1
        found = await asyncio.gather(*(said(engines[name]) for name in [*names, *names[::-1]]))
        for engine in engines.values():
            await engine.close()
        return [[sample.ids for sample in samples] for samples in found]

    async def alone(name: str) -> tuple[str, list[tuple[int, ...]]]:
        [engine] = share([name], "cpu", "float32", None).values()
        async with engine:
            return engine.revision, [sample.ids for sample in await said(engine)]

    found = asyncio.run(together())
    assert found[:3] == found[:2:-1]
    single = [asyncio.run(alone(name)) for name in names]
    assert found[:3] == [ids for _, ids in single]
    assert len({str(ids) for ids in found}) == 3  # they do differ
    assert single[1][0] == models.load(names[1], "cpu")[2]  # the revision that any other command knows it by


def test_a_damaged_adapter_is_named(family: list[str], tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text((Path(family[1]) / "adapter_config.json").read_text())
    with pytest.raises(ModelError, match="cannot load the adapter"):
        share([family[0], str(tmp_path)], "cpu", "float32", None)
