"""Published recipes shrink where the hub is out of reach; what is typed stays."""

from pathlib import Path

import pytest

from tutelage.composing import compose
from tutelage.errors import ConfigError
from tutelage.training import recipe
from tutelage.training.batch import sizes
from tutelage.training.config import Train


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)


@pytest.mark.parametrize("run", ["teacher_sft", "teacher_rcl", "quickstart", "quickstart_sft", "student_sft"])
def test_every_recipe_works_offline(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = recipe.resolve([f"run={run}"])
    assert (config.model_name_or_path, config.student_model) == ("smollm2-135m", "smollm2-135m")
    assert config.dataset_id_or_path == "generated" and config.tasks
    assert sizes(config, 1).total
    told = capsys.readouterr().err
    assert ("model=smollm2 data=arithmetic instead" in told) == (not run.startswith("quick"))
    assert "training starts from smollm2-135m" in told


def test_a_student_is_trained_by_the_published_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "reachable", lambda: True)
    config = recipe.resolve(["run=student_sft", "dataset_id_or_path=traces.parquet"])
    assert (config.method, config.lesson, config.style, config.lora_r) == ("sft", "solo", "r1", 0)
    assert (config.learning_rate, config.num_train_epochs, config.max_length) == (1e-5, 3, 16384)
    assert sizes(config, 8).total == 96 and config.model_name_or_path == "Qwen/Qwen2.5-7B-Instruct"
    assert recipe.resolve(["run=student_sft", "lora_r=16"]).lora_r == 16


def test_with_the_hub_nothing_is_swapped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(recipe, "reachable", lambda: True)
    config = recipe.resolve(["run=teacher_rcl"])
    assert (config.model_name_or_path, config.student_model) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-4B")
    assert not capsys.readouterr().err


def test_the_hub_is_asked_only_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "reachable", lambda: pytest.fail("asked"))
    recipe.resolve(["run=quickstart"])
    recipe.resolve(["run=teacher_rcl", "model=smollm2", "data=arithmetic"])


def test_what_is_typed_stays_and_the_rest_shrinks(tmp_path: Path) -> None:
    config = recipe.resolve(["run=teacher_rcl", f"model_name_or_path={tmp_path}", "learning_rate=0.0001"])
    assert (config.model_name_or_path, config.student_model) == (str(tmp_path), "smollm2-135m")
    assert (config.learning_rate, config.max_completion_length) == (1e-4, 128)
    config = recipe.resolve(["run=teacher_sft", "dataset_id_or_path=my/data", "model_name_or_path=my/model"])
    assert (config.dataset_id_or_path, config.model_name_or_path) == ("my/data", "my/model")
    assert recipe.settle(["run=teacher_rcl", "model=qwen3_8b", "data=gsm8k"]) == [
        "run=teacher_rcl", "model=qwen3_8b", "data=gsm8k",
    ]  # fmt: skip


def test_what_was_said_of_rows_goes_with_them() -> None:
    config = recipe.resolve(["run=teacher_rcl", "dataset_split=rl", "columns.question=q", "limit=9"])
    assert (config.dataset_id_or_path, config.columns, config.limit) == ("generated", None, 9)


def test_a_typed_teacher_keeps_a_student_that_can_be_had(tmp_path: Path) -> None:
    config = recipe.resolve(["run=teacher_sft", f"model_name_or_path={tmp_path}"])
    assert (config.model_name_or_path, config.student_model) == (str(tmp_path), "smollm2-135m")


def test_the_newest_warm_up_is_called_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "results/sft-1").mkdir(parents=True)
    (tmp_path / "results/sft-1/adapter_config.json").write_text("{}")
    (tmp_path / "results/pre_rl_model").symlink_to("sft-1")
    for words in ([], ["model_name_or_path=results/pre_rl_model"]):
        assert recipe.resolve(["run=quickstart", *words]).model_name_or_path == "results/sft-1"


def test_what_was_fetched_before_is_used(tmp_path: Path) -> None:
    for name, file in (
        ("models--Qwen--Qwen3-8B", "model.safetensors"),
        ("models--Qwen--Qwen3-4B", "model.safetensors"),
        ("datasets--Arc-Intelligence--Arc-ATLAS-Teach-v0", "rl.jsonl"),
    ):
        assert recipe.settle(["run=teacher_rcl"]) != ["run=teacher_rcl"]
        snapshot = tmp_path / "hub" / name / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").touch()  # of a model, this alone does not do
        (snapshot / file).touch()
    assert recipe.settle(["run=teacher_rcl"]) == ["run=teacher_rcl"]


def test_a_settled_command_is_settled() -> None:
    once = recipe.settle(["run=teacher_rcl"])
    assert recipe.settle(once) == once == ["run=teacher_rcl", "model=smollm2", "data=arithmetic"]


@pytest.mark.parametrize("file", ["config.json", "adapter_config.json"])
def test_reinforcement_goes_on_from_the_warm_up(file: str, tmp_path: Path) -> None:
    warm = tmp_path / "kept" / "pre_rl_model"
    warm.mkdir(parents=True)
    words = ["run=teacher_rcl", "results_dir=kept"]
    assert recipe.resolve(words).model_name_or_path == "smollm2-135m"  # an empty folder is no model
    (warm / file).touch()
    assert recipe.resolve(words).model_name_or_path == "kept/pre_rl_model"
    assert recipe.resolve(["run=teacher_sft", "results_dir=kept"]).model_name_or_path == "smollm2-135m"


def test_only_the_first_process_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    recipe.resolve(["run=teacher_rcl"])
    assert not capsys.readouterr().err


def test_offline_is_believed_and_no_network_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_session", lambda: pytest.fail("asked"))
    assert not recipe.reachable()
    monkeypatch.undo()
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert not recipe.reachable()


def test_the_older_name_of_the_penalty() -> None:
    assert compose(Train, ["degradation_penalty=3.0"]).degradation_penalty_multiplier == 3.0
    with pytest.raises(ConfigError, match="at least 0"):
        compose(Train, ["degradation_penalty=-1"])
