"""One training folder belongs to one training, and bad combinations are refused before a model loads."""

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tutelage.cli import explain
from tutelage.composing import compose
from tutelage.errors import ConfigError
from tutelage.training import run
from tutelage.training.config import Train
from tutelage.training.policy import checkpoint
from tutelage.training.run import place, settings, unlike


def test_other_settings_do_not_go_on_from_old_checkpoints(tmp_path: Path) -> None:
    config = compose(Train, ["learning_rate=0.1"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings(config)))
    unlike(compose(Train, ["learning_rate=0.2"]), tmp_path)  # nothing was trained yet
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2/trainer_state.json").write_text("{}")
    unlike(compose(Train, ["learning_rate=0.1", "max_steps=9"]), tmp_path)  # longer is the same training
    before = {name: value for name, value in settings(config).items() if name not in ("lesson", "style")}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(before))  # as an earlier version left it
    unlike(compose(Train, ["learning_rate=0.1"]), tmp_path)
    with pytest.raises(ConfigError, match="with other seed, learning_rate: type output_dir"):
        unlike(compose(Train, ["learning_rate=0.2", "seed=1"]), tmp_path)


def test_ratings_are_of_one_student_asked_in_one_way(tmp_path: Path) -> None:
    """And are chosen from as often as one likes."""
    ratings = tmp_path / "curriculum.0.jsonl"
    ratings.write_text("")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings(compose(Train, ["min_baseline=0.5"]))))
    unlike(compose(Train, ["min_baseline=0.1", "max_steps=9", "train_batch_size=64", "learning_rate=0.5"]), tmp_path)
    assert ratings.exists()
    unlike(compose(Train, ["min_baseline=0.5", "max_tokens=7"]), tmp_path)
    assert not ratings.exists()


def test_where_a_training_is_kept() -> None:
    assert place(compose(Train, ["run=quickstart_sft", "results_dir=r"])).name.startswith("sft-generated-")
    assert place(compose(Train, ["output_dir=here"])) == Path("here")
    one, other = (place(compose(Train, [f"seed={seed}"])) for seed in (1, 2))
    assert one != other and place(compose(Train, ["seed=1", "max_steps=77"])) == one


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["temperature=0"], "temperature=0.7"),
        (["reward=pared"], "did you mean paired"),
        (["num_iterations=3"], "multiple of num_iterations=3"),
        (["sync_ref_model=true"], "lora_r=0"),
        (["method=ppo"], "sft"),
        (["lesson=explains"], "did you mean explain"),
        (["resample=9"], "from 0 to 7"),
        (["lr_scheduler_type=cosin"], "did you mean cosine"),
        (["lr_scheduler_type=warmup_stable_decay"], "known: constant"),
        (["min_baseline=0.9", "max_baseline=0.1"], "no rate is from 0.9 to 0.1: swap the two"),
        (["seed=-1"], "from 0 to 4294967295"),
        (["report_to=tensorbord"], "did you mean tensorboard"),
        (["loss_type=gpro"], "did you mean grpo"),
        (["scale_rewards=groups"], "did you mean group"),
        (["eval_steps=1", "held_out=0"], "held_out=0.2, or eval_limit=0"),
        (["engine=vllm", "top_p=0.9"], "type top_p=1"),
        (["report_to=tensorboard,wandb"], "pip install wandb"),
    ],
)
def test_what_cannot_work_is_refused(words: list[str], hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as where it is not installed
    with pytest.raises(ConfigError, match=hint):
        compose(Train, words)


@pytest.mark.parametrize("full", [True, False])
def test_a_full_disk_is_called_so(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own words for it are `unexpected pos 122688 vs 122580`."""

    def torn(*_: object) -> None:
        raise RuntimeError("unexpected pos 122688 vs 122580")

    monkeypatch.setattr(run, "method", lambda config: torn)
    usage = shutil.disk_usage(tmp_path)._replace(free=0 if full else 2**30)
    monkeypatch.setattr(run.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError if full else RuntimeError) as caught:
        run.train([f"output_dir={tmp_path / 'run'}", "model=smollm2"])
    assert ("free some space" in explain(caught.value)) == full


def test_another_warm_up_under_the_same_name_is_another_training(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    words = [f"model_name_or_path={tmp_path}"]
    before = place(compose(Train, words))
    assert place(compose(Train, words)) == before
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    assert place(compose(Train, words)) != before


@pytest.mark.parametrize("state", ["", '{"global_step": 3', None])
def test_a_torn_checkpoint_is_passed_over(state: str | None, tmp_path: Path) -> None:
    for step in (2, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}/trainer_state.json").write_text('{"global_step": 2}')
    assert checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    newest = tmp_path / "checkpoint-10/trainer_state.json"
    newest.unlink() if state is None else newest.write_text(state)
    assert checkpoint(tmp_path) == tmp_path / "checkpoint-2"


def test_rewards_and_engines_are_files_and_keys_alike() -> None:
    config = compose(Train, ["reward=penalty", "degradation_penalty=3", "engine=vllm", "vllm_port=8766"])
    assert (config.reward, config.degradation_penalty_multiplier) == ("penalty", 3.0)
    assert (config.engine, config.vllm_port, config.vllm_servers) == ("vllm", 8766, 1)
