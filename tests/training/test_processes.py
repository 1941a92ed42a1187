"""Real training processes: two of them learn what one does, and one that is killed goes on as if it had not been."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import even

from tutelage import launch, rewards
from tutelage.metrics import METRICS

TOY = Path(__file__).parents[1] / "helpers/toy.py"
STEPS = 4
WORDS = f"""reward=toy max_steps={STEPS} save_steps=1 save_total_limit=10 num_generations=4 train_batch_size=8
per_device_train_batch_size=2 learning_rate=0.02 beta=0.1 temperature=1.0 max_completion_length=12 max_tokens=6
max_probe_tokens=6 limit=4 baseline_samples=1 taught_samples=1 eval_steps=2 eval_limit=3 resample=1
report_to=tensorboard sample_steps=1000 format_penalty=0 max_baseline=0.9 device=cpu""".split()


def words(tiny: Path, folder: Path) -> list[str]:
    return [
        *WORDS,
        f"model_name_or_path={tiny}",
        f"student_model={tiny}",
        f"results_dir={folder.parent}",
        f"output_dir={folder}",
    ]


def start(folder: Path, argv: Sequence[str]) -> subprocess.Popen[str]:
    environment = os.environ | {
        "TUTELAGE_CACHE": str(folder.parent / "cache"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    return subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def alone(tiny: Path, folder: Path) -> subprocess.Popen[str]:
    return start(folder, [sys.executable, str(TOY), *words(tiny, folder)])


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def losses(folder: Path) -> list[list[float]]:
    history = json.loads((folder / f"checkpoint-{STEPS}/trainer_state.json").read_text())["log_history"]
    return [[log[name] for name in ("loss", "reward", "grad_norm")] for log in history if "loss" in log]


def lessons(folder: Path) -> list[Any]:
    lines = [json.loads(line) for file in folder.glob("episodes*.jsonl") for line in file.read_bytes().splitlines()]
    return sorted((line["meta"]["copy"], line["uid"], line["turns"][1]["sample"]["ids"]) for line in lines)


def evaluations(folder: Path) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    return [(line["step"], line["reward"], line["taught_accuracy"]) for line in lines]


def same(one: Path, other: Path) -> None:
    assert losses(other) == [pytest.approx(step, rel=1e-3, abs=1e-5) for step in losses(one)]
    assert len({loss for loss, *_ in losses(one)}) == STEPS  # and it did learn something at each
    assert lessons(other) == lessons(one)
    assert evaluations(other) == evaluations(one)
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (one, other))
    apart = sum(float((weights - theirs[name]).square().sum()) for name, weights in ours.items())
    assert apart < 1e-6 * sum(float(weights.square().sum()) for weights in ours.values())


@pytest.fixture(scope="module")
def whole(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(alone(tiny, folder))
    return folder


def test_tensorboard_has_the_whole_story(whole: Path) -> None:
    events = EventAccumulator(str(next(whole.glob("runs/*"))))
    events.Reload()
    undefined = {"degradation_unparsed", "leak_rate", "lr", "tes"}  # where nothing degrades, or nothing is taught
    for name in METRICS.keys() - undefined:
        assert [event.step for event in events.Scalars(f"eval/{name}")] == [0, 2, 4]
        assert [event.step for event in events.Scalars(f"train/lessons/{name}")] == [1, 2, 3, 4]
    for name in ("loss", "reward", "kl", "grad_norm", "lessons/zero_variance", "reward/even"):
        assert len(events.Scalars(f"train/{name}")) == STEPS
    assert (whole / "learning.png").exists()


def test_two_processes_learn_what_one_does(
    tiny: Path, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds the lessons of one problem; accelerate has been seen to start one process and not say so."""
    monkeypatch.setitem(rewards.adaptive.REWARDS, "toy", even)
    argv = launch.command(["cpu:2", "quickstart", *words(tiny, tmp_path / "run")], gpus=0)
    place = argv.index("tutelage.cli") - 1
    finish(start(tmp_path / "run", [*argv[:place], str(TOY), *argv[place + 3 :]]))
    assert {file.name for file in (tmp_path / "run").glob("episodes*")} == {"episodes.jsonl", "episodes.1.jsonl"}
    assert len((tmp_path / "run/episodes.1.jsonl").read_bytes().splitlines()) == STEPS * 4
    same(whole, tmp_path / "run")


@pytest.mark.parametrize(
    "moment", [pytest.param("config.yaml", marks=pytest.mark.slow), "checkpoint-2/trainer_state.json"]
)
def test_killed_it_goes_on_with_the_same_losses(moment: str, tiny: Path, tmp_path: Path, whole: Path) -> None:
    """Also before there is any checkpoint."""
    folder = tmp_path / "run"
    process = alone(tiny, folder)
    while not (folder / moment).exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (folder / f"checkpoint-{STEPS}").exists()
    (folder / f"checkpoint-{STEPS}").mkdir()  # as a kill in the middle of saving leaves it
    said = finish(alone(tiny, folder))
    assert ("going on from" in said) == ("checkpoint" in moment)
    same(whole, folder)


@pytest.mark.slow
def test_a_training_that_has_ended_is_not_trained_on(tiny: Path, whole: Path) -> None:
    """Transformers would take one step more each time."""
    before = (whole / "adapter_model.safetensors").read_bytes()
    said = finish(alone(tiny, whole))
    assert f"going on from {whole / f'checkpoint-{STEPS}'}" in said and "Performance gain" in said
    assert not (whole / f"checkpoint-{STEPS + 1}").exists()
    assert (whole / "adapter_model.safetensors").read_bytes() == before
    assert [step for step, *_ in evaluations(whole)] == [0, 2, 4]
