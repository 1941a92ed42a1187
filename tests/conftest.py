"""Shared parts: the embedded model once for all tests, and scripted engines for tests of logic."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tutelage.engines import Engine, Message, Sample, Sampling


@pytest.fixture(scope="session")
def smollm() -> tuple[Any, Any, str]:
    """The real embedded model: weights, tokenizer, revision."""
    from tutelage import models

    return models.load("smollm2-135m")


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real vLLM server on the CPU with the embedded model, started once and never left behind."""
    from tutelage import models, servers

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv, env = servers.command(
        models.locate("smollm2-135m"),
        port,
        served_name="smollm2-135m",
        device="cpu",
        lora_rank=16,
        max_model_len=1024,
        reloads=True,
    )
    log = tmp_path_factory.mktemp("vllm") / "vllm_server.log"
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as out:
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=out, cwd=log.parent, start_new_session=True)
    # Should even this process be killed, its server follows.
    watch = "while kill -0 $0; do sleep 1; done; kill -9 -- -$1"
    guard = ["sh", "-c", watch, str(os.getpid()), str(process.pid)]
    watcher = subprocess.Popen(guard, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 180
        while not answers(f"{url}/health"):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        watcher.kill()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        watcher.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


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
