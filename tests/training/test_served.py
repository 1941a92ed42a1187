"""Training on a real vLLM server: it speaks with each step's weights, and a run notices when it does not."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from toy import even

from tutelage import launch, rewards
from tutelage.composing import compose
from tutelage.engines.fleet import TOKENS
from tutelage.errors import EngineError
from tutelage.lessons import Episode
from tutelage.training import rl
from tutelage.training.batch import sizes
from tutelage.training.cast import Weights
from tutelage.training.config import Train

RANKS = Path(__file__).parents[1] / "helpers/ranks.py"
# At a low rate the gap would look fine without a sync, too.
WORDS = """engine=vllm reward=toy learning_rate=0.003 num_generations=2 train_batch_size=2 max_completion_length=8
max_tokens=4 max_probe_tokens=4 limit=4 baseline_samples=1 taught_samples=1 eval_limit=1 eval_steps=50 resample=1 beta=0
temperature=1.0 report_to=null sample_steps=1000 save_steps=1000 format_penalty=0 max_steps=3""".split()


@pytest.fixture
def train(vllm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setitem(rewards.adaptive.REWARDS, "toy", even)

    def run(*words: str) -> None:
        config = compose(Train, [*WORDS, f"vllm_port={urlsplit(vllm).port}", *words])
        (tmp_path / "run").mkdir(exist_ok=True)
        rl.reinforce(config, tmp_path / "run", sizes(config, 1))

    return run


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch, smollm: Any) -> None:
    """The cache of a test holds no converted model: all tests share the one of the session."""
    from tutelage import models

    folder = models.locate("smollm2-135m")
    monkeypatch.setattr(models, "locate", lambda name: folder if name == "smollm2-135m" else Path(name))


def test_the_server_speaks_with_each_steps_weights_or_the_run_stops(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rollouts of weights that were synced, and a third of weights that were not."""
    gaps: list[float] = []
    score, sync = rl.Trainer._generate_and_score_completions, Weights.sync_weights

    def watched(self: Any, inputs: Any) -> Any:
        try:
            return score(self, inputs)
        finally:
            gaps.append(self._metrics["train"]["sampling/sampling_logp_difference/max"][-1])

    def twice(self: Any) -> None:
        if self.trainer.state.global_step < 2:
            sync(self)

    monkeypatch.setattr(rl.Trainer, "_generate_and_score_completions", watched)
    monkeypatch.setattr(Weights, "sync_weights", twice)
    with pytest.raises(EngineError, match=r"log-probs are 0\.\d+ from the trainer's .* over max_logprob_gap=0.02"):
        train("max_logprob_gap=0.02")
    assert len(gaps) == 3 and max(gaps[:2]) < 1e-3 < gaps[2]
    lines = (tmp_path / "run/evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0]
    assert (tmp_path / "run/checkpoint-2/trainer_state.json").exists()  # what was learned is kept


@pytest.mark.parametrize("method", [pytest.param("run=quickstart_rlt", marks=pytest.mark.slow), "run=quickstart_rl2f"])
def test_every_method_learns_from_a_server(train: Any, tmp_path: Path, method: str) -> None:
    """An explanation is scored in this process at the student's temperature; a dialogue goes on as it was sampled."""
    words = ["max_steps=1", "num_generations=2", "train_batch_size=2", "eval_limit=0", "max_turns=2", "limit=2"]
    train(method, *words, "resample=0", "save_steps=1")
    log = json.loads((tmp_path / "run/checkpoint-1/trainer_state.json").read_text())["log_history"][0]
    assert log["sampling/sampling_logp_difference/max"] < 1e-3
    episodes = [Episode.from_json(line) for line in (tmp_path / "run/episodes.jsonl").read_text().splitlines()]
    assert len(episodes) == 2
    for episode in episodes:
        assert episode.scores.solution if method.endswith("rlt") else len(episode.turns) in (1, 3)


@pytest.mark.slow
def test_every_process_asks_the_servers_itself_and_the_first_brings_weights(
    vllm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two real processes; accelerate has been seen to start one and not say so."""
    monkeypatch.setitem(rewards.adaptive.REWARDS, "toy", even)
    own = ["max_steps=2", "train_batch_size=4", "per_device_train_batch_size=1", "eval_limit=2", "eval_steps=1"]
    own += ["max_logprob_gap=0.02", "save_steps=2", f"results_dir={tmp_path}", f"output_dir={tmp_path}/run"]
    own += [f"vllm_port={urlsplit(vllm).port}"]
    argv = launch.command(["cpu:2", "quickstart", *WORDS, *own], gpus=0)
    place = argv.index("tutelage.cli") - 1
    argv = [*argv[:place], str(RANKS), str(tmp_path), *argv[place + 3 :]]
    environment = os.environ | {"TUTELAGE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["world"] == second["world"] == 2
    assert first["voices"] == second["voices"] and len(set(first["voices"])) == 3  # before, and after each step
    assert first["sums"] == second["sums"] and first["sums"]
    assert first["asked"]["/v1/load_lora_adapter"] == 3 and "/v1/load_lora_adapter" not in second["asked"]
    assert min(rank["asked"][TOKENS] for rank in (first, second)) >= 6
    history = json.loads((tmp_path / "run/checkpoint-2/trainer_state.json").read_text())["log_history"]
    gaps = [log["sampling/sampling_logp_difference/max"] for log in history if "loss" in log]
    assert len(gaps) == 2 and max(gaps) < 1e-3
    assert len({json.dumps(log.get("grad_norm")) for log in history if "loss" in log}) == 2  # and something was learned
    for name in ("episodes.jsonl", "episodes.1.jsonl"):  # of all processes
        assert len((tmp_path / "run" / name).read_bytes().splitlines()) == 2 * 2
