"""How weights are loaded to be trained, and spoken with while they are."""

import asyncio
from pathlib import Path

import torch
from accelerate.utils import convert_outputs_to_fp32

from tutelage import models
from tutelage.composing import compose
from tutelage.engines import Sampling
from tutelage.engines.local import TransformersEngine
from tutelage.training.config import Train
from tutelage.training.policy import load_policy


def test_attention_with_broken_gradients_is_never_trained_with(tiny: Path) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_policy(compose(Train, [f"model_name_or_path={tiny}", f"student_model={tiny}"]))
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_an_engine_speaks_with_a_model_that_accelerate_runs_in_bfloat16(tiny: Path) -> None:
    model, tokenizer, _ = models.load(str(tiny), "cpu", "bfloat16")
    model.forward = convert_outputs_to_fp32(model.forward)  # looks at all that a model returns, slots too

    async def work() -> int:
        async with TransformersEngine(model, tokenizer, name="tiny") as engine:
            [sample] = await engine.generate_ids(range(5, 15), Sampling(max_tokens=4), seed=1)
            return sample.tokens

    assert 1 <= asyncio.run(work()) <= 4
