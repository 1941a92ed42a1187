"""Shared parts: the embedded model once for all tests, and scripted engines for tests of logic."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from real import serving

from tutelage.engines import Engine, Message, Sample, Sampling

# The same commit gives the same verdict; make test-all looks for examples nobody has tried (--hypothesis-profile).
settings.register_profile("same", derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def smollm() -> tuple[Any, Any, str]:
    """The real embedded model: weights, tokenizer, revision."""
    from tutelage import models

    return models.load("smollm2-135m")


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that is started once for all tests."""
    with serving(tmp_path_factory.mktemp("vllm")) as (url, _):
        yield url


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """One more, which a test may kill."""
    with serving(tmp_path) as server:
        yield server


class Scripted(Engine):
    """Answers by a function of the prompt; for unit tests of logic only."""

    def __init__(self, reply: Callable[[Sequence[Message], int], str], name: str = "scripted"):
        self.reply, self.name, self.revision = reply, name, "1"
        self.requests: list[tuple[Sequence[Message], Sampling, int, int]] = []

    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        self.requests.append((messages, sampling, n, seed))
        texts = [self.reply(messages, index) for index in range(n)]
        return [Sample(text, "stop", len(text.split()), seconds=0.1) for text in texts]

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        return [-1.0] * len(completion)


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted
