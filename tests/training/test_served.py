"""Training on a real vLLM server: it speaks with each step's weights, and a run notices when it does not."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from toy import even

from tutelage import rewards
from tutelage.config import compose
from tutelage.errors import EngineError
from tutelage.training import rl
from tutelage.training.batch import sizes
from tutelage.training.cast import Weights
from tutelage.training.config import Train

# At a low rate the gap would look fine without a sync, too.
WORDS = """engine=vllm reward=toy learning_rate=0.003 num_generations=4 train_batch_size=4 max_completion_length=8
max_tokens=4 max_probe_tokens=4 limit=4 baseline_samples=1 taught_samples=1 eval_limit=1 eval_steps=2 resample=1 beta=0
temperature=1.0 report_to=null sample_steps=1000 save_steps=1000 format_penalty=0 max_steps=2""".split()


@pytest.fixture
def train(vllm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setitem(rewards.adaptive.REWARDS, "toy", even)
    trainers: list[Any] = []
    init = rl.Trainer.__init__

    def kept(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        trainers.append(self)

    def run(*words: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(rl.Trainer, "__init__", kept)
        config = compose(Train, [*WORDS, f"vllm_port={urlsplit(vllm).port}", *words])
        (tmp_path / "run").mkdir()
        rl.rcl(config, tmp_path / "run", sizes(config, 1))
        return list(trainers[0].state.log_history)

    return run


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch, smollm: Any) -> None:
    """The cache of a test holds no converted model: all tests share the one of the session."""
    from tutelage import models

    folder = models.locate("smollm2-135m")
    monkeypatch.setattr(models, "locate", lambda name: folder if name == "smollm2-135m" else Path(name))


def test_the_server_speaks_with_each_steps_weights(train: Any, tmp_path: Path) -> None:
    steps = [log for log in train() if "loss" in log]
    assert len(steps) == 2 and steps[0]["grad_norm"] > 0  # so that the second rollout is of other weights
    assert max(log["sampling/sampling_logp_difference/max"] for log in steps) < 1e-3
    lines = (tmp_path / "run/evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 2]
    assert len(list((tmp_path / "run/weights").iterdir())) == 1  # the newest


def test_without_a_sync_the_run_stops(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = Weights.sync_weights

    def once(self: Any) -> None:
        if not synced:
            sync(self)
        synced.append(1)

    monkeypatch.setattr(Weights, "sync_weights", once)
    with pytest.raises(
        EngineError, match=r"log-probs are 0\.\d+ from the trainer's on average, over max_logprob_gap=0.02"
    ):
        train("max_logprob_gap=0.02")
    assert len(synced) > 1
