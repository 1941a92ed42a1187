"""Weights by NCCL, as far as one can go without two GPUs: everything but NCCL itself."""

import asyncio
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from real import serving
from safetensors.torch import load_file

from tutelage import models, servers
from tutelage.engines import Sampling
from tutelage.engines.fleet import Fleet
from tutelage.engines.local import TransformersEngine
from tutelage.engines.nccl import FLAGS
from tutelage.engines.vllm import VLLMEngine
from tutelage.training.cast import whole

ROOT = Path(__file__).parents[2]
BASE = "smollm2-135m"
LONG = [{"role": "user", "content": "Why is the sky blue, and the sea? " * 20}]


def trainer(model: Any) -> Any:
    return SimpleNamespace(
        accelerator=Accelerator(cpu=True), model=model, model_wrapped=model, is_world_process_zero=lambda: True
    )


def moved(seed: int) -> Any:
    """A model after some training; a CPU server would keep its packed copy of the embeddings."""
    model = models.load(BASE)[0]
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed" not in name:
                weight += 0.01 * weight.std() * torch.randn_like(weight)
    return model


@pytest.mark.slow
def test_a_real_server_takes_weights_by_its_transfer_endpoints(tmp_path: Path, smollm: Any) -> None:
    """vLLM's own code at both ends, of which only the class that calls NCCL is replaced."""
    first, second = moved(1), moved(2)
    torch.save([whole(trainer(first)), whole(trainer(second))], tmp_path / "weights.pt")
    second.save_pretrained(tmp_path / "saved")
    saved = load_file(tmp_path / "saved/model.safetensors")
    sent = whole(trainer(second))
    assert sent.keys() == saved.keys() and all(torch.equal(sent[name], saved[name]) for name in saved)
    path = f"{ROOT}:{ROOT / 'tests/helpers'}"
    with serving(tmp_path, *FLAGS, "--worker-extension-cls", "wire.Worker", path=path) as (url, _):

        async def speak() -> Any:
            async with Fleet([url]) as fleet:
                engine = await VLLMEngine(BASE, fleet, smollm[1]).connect()
                return await engine.generate(LONG, Sampling(max_tokens=8, temperature=1.0), n=2)

        before = asyncio.run(speak())
        argv = [servers.interpreter(), str(ROOT / "tests/helpers/wire.py"), url, str(tmp_path / "weights.pt")]
        ended = subprocess.run(argv, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=200)
        assert ended.returncode == 0, ended.stderr + (tmp_path / "vllm_server.log").read_text()
        after = asyncio.run(speak())

    async def gap(model: Any, samples: Any) -> float:
        async with TransformersEngine(model, smollm[1], name=BASE) as engine:
            scores = await asyncio.gather(*(engine.score(s.prompt_ids, s.ids, 1.0) for s in samples))
        pairs = zip(samples, scores, strict=True)
        return max(abs(a - b) for sample, score in pairs for a, b in zip(sample.logprobs, score, strict=True))

    assert asyncio.run(gap(second, after)) <= 1e-4
    assert asyncio.run(gap(second, before)) > 0.01 < asyncio.run(gap(first, after))
