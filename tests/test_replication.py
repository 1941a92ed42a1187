"""The command lines of RL2F's replication: as they stand in its README, and once for real."""

import subprocess
import sys
from pathlib import Path

import pytest

from tutelage import replication
from tutelage.cli import main as tutelage
from tutelage.composing import compose
from tutelage.config import Dialogues, Exam
from tutelage.training.config import Train

ROOT = Path(__file__).parent.parent
README = {
    "scripts/generate_dialogues.py --config configs/default.yaml --output outputs/rollouts.json": (
        "dialogues max_turns=5 samples=4 student=smollm2-135m data=arithmetic output=outputs/rollouts.jsonl"
    ),
    "scripts/train_baselines.py --method sft --config configs/default.yaml": (
        "train run=student_sft_dialogues dataset_id_or_path=outputs/rollouts.jsonl"
    ),
    "scripts/train_baselines.py --method rlvr --config configs/default.yaml": "train run=student_rlvr",
    "scripts/train_rl2f_only.py --config configs/default.yaml": "train run=student_rl2f",
    "scripts/evaluate_vllm.py --model google/gemma-3-12b-it --benchmarks omni_math,coding,puzzle,maze "
    "--tensor-parallel-size 2": (
        "evaluate lesson=feedback student=google/gemma-3-12b-it,results/rl2f benchmarks=math,coding,puzzle,maze "
        "max_turns=5 controls=null,shuffled,independent"
    ),
    "generate_figures.py": "figures results/latest_run",
}
SCHEMAS = {"dialogues": Dialogues, "train": Train, "evaluate": Exam}


@pytest.mark.parametrize(("typed", "meant"), README.items())
def test_each_is_a_command_of_ours(
    typed: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(replication, "tutelage", lambda words: ran.append(words) or 0)
    monkeypatch.setattr("tutelage.training.recipe.reachable", lambda: False)
    monkeypatch.setattr("tutelage.training.recipe.at_hand", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/rl2f").mkdir(parents=True)
    script, *arguments = typed.split()
    assert (ROOT / script).is_file()
    assert replication.main(Path(script).stem, [*arguments, "seed=7"]) == 0
    assert ran == [[*meant.split(), "seed=7"]]
    said = capsys.readouterr().err
    assert f"this is: tutelage {meant} seed=7" in said
    assert ("vllm serve google/gemma-3-12b-it --tensor-parallel-size 2" in said) == ("vllm" in script)
    command, *words = meant.split()
    if command in SCHEMAS:
        compose(SCHEMAS[command], [*words, "seed=7"])


def test_data_of_ones_own_takes_nothing_from_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(replication, "tutelage", lambda words: ran.append(words) or 0)
    monkeypatch.setattr("tutelage.training.recipe.reachable", lambda: True)
    assert replication.main("generate_dialogues", ["data=my/data"]) == 0
    config = compose(Dialogues, ran[0][1:])
    assert (config.dataset_id_or_path, config.dataset_split, config.tasks) == ("my/data", "train", None)
    assert config.student == "google/gemma-3-12b-it"
    assert replication.main("generate_dialogues", ["student=my/model"]) == 0
    config = compose(Dialogues, ran[1][1:])
    assert (config.student, config.dataset_id_or_path) == ("my/model", "KbsdJames/Omni-MATH")


@pytest.mark.parametrize("name", ["my.yaml", "configs/default.yaml"])
def test_a_config_of_ones_own_becomes_keys(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings would be passed over."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("max_turns: 3")
    assert replication.main("train_rl2f_only", ["--config", name]) == 2
    assert f"leave --config {name} out and type them as key=value" in capsys.readouterr().err
    monkeypatch.setattr(replication, "tutelage", lambda words: 0)
    assert replication.main("train_rl2f_only", []) == 0


def test_a_script_runs_from_anywhere(tmp_path: Path) -> None:
    """And ends as the command does, in one sentence."""
    words = [sys.executable, str(ROOT / "generate_figures.py")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == tutelage(["figures", str(tmp_path / "results/latest_run")]) == 2
    assert "no folder results/latest_run" in done.stderr
