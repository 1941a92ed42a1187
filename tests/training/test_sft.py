"""The warm-up: only the reply is trained, on the engine's own ids; it can be killed, goes on, and stops at NaN."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from tutelage import models
from tutelage.composing import compose
from tutelage.engines import Sampling
from tutelage.engines.local import TransformersEngine
from tutelage.errors import ConfigError, DataError, ModelError, TutelageError
from tutelage.files import cache_home
from tutelage.lessons import prompts
from tutelage.problem import Problem
from tutelage.training import sft as module
from tutelage.training.batch import sizes
from tutelage.training.config import Train
from tutelage.training.sft import lessons, tokenised
from tutelage.training.worked import Row

LESSON = {"problem_text": "3 boxes of 4?", "student_approach": "I add.", "teacher_diagnosis": "Wrong."}
REPLY = "<thinking>Fine.</thinking>\n<teaching></teaching>"


@pytest.fixture(scope="session")
def tiny(smollm: tuple[Any, Any, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model of SmolLM2's tokenizer: trains in no time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer, folder = smollm[1], tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **sizes)  # type: ignore[arg-type]
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Atlas rows, which no student is asked about."""
    file = tmp_path / "sft.jsonl"
    lines = [{**LESSON, "problem_text": f"{n} boxes of 4?", "teacher_teaching": f"Take {n} times."} for n in range(8)]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.fixture(autouse=True)
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The converted models, but no remembered samples."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "models").symlink_to(cache_home() / "models")
    monkeypatch.setenv("TUTELAGE_CACHE", str(cache))


def config(*words: str) -> Train:
    return compose(Train, ["run=quickstart_sft", "report_to=null", "lr_scheduler_type=constant", *words])


def small(tiny: str, rows: Path, *words: str) -> Train:
    return config(f"model_name_or_path={tiny}", f"dataset_id_or_path={rows}", "held_out=0", "lora_r=4", *words)


def sft(settings: Train, folder: Path) -> Path:
    return module.sft(settings, folder, sizes(settings, processes=1))


def arguments(settings: Train, folder: Path) -> Any:
    return module.arguments(module.SFTConfig, settings, folder, sizes(settings, processes=1), max_length=None)


def losses(checkpoint: Path) -> list[float]:
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def test_only_the_reply_is_trained(tiny: str, tmp_path: Path) -> None:
    model, tokenizer, _ = models.load(tiny)
    engine = TransformersEngine(model, tokenizer, name=tiny)
    prompt = prompts.teach(Problem("3 boxes of 4?", "", "").public, "I add.")
    longer = prompts.teach(Problem("5 boxes of 4 pens and 6 more?", "", "").public, "I add them all.")
    examples, _ = tokenised([Row("a", prompt, REPLY), Row("b", longer, REPLY)], engine, 1024)
    trainer = module.Trainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(examples),
        args=arguments(config("train_batch_size=2"), tmp_path),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    reply = [*tokenizer(REPLY, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    assert tokenizer.eos_token_id in engine.ends
    rendered = {tuple(engine.render(prompt)), tuple(engine.render(longer))}
    for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
        assert labels[labels != -100].tolist() == reply
        assert ids[labels != -100].tolist() == reply
        length = int(mask.sum())
        assert tuple(ids[: length - len(reply)].tolist()) in rendered
        assert (labels[: length - len(reply)] == -100).all() and (labels[length:] == -100).all()


def test_long_rows_are_dropped_whole(smollm: tuple[Any, Any, str]) -> None:
    engine = TransformersEngine(*smollm[:2], name="smollm2-135m")
    prompt = prompts.teach(Problem("3 boxes of 4?", "", "").public, "I add.")
    length = len(tokenised([Row("a", prompt, REPLY)], engine, 1024)[0][0]["input_ids"])
    worked = [Row("a", prompt, REPLY), Row("b", prompt, REPLY + " And more."), Row("c", prompt, REPLY)]
    examples, report = tokenised(worked, engine, length)
    assert len(examples) == 2 and report == f"1 of 3 rows dropped: longer than max_length={length}"
    with pytest.raises(DataError, match=f"all 1 rows are longer than max_length=8: type max_length={length}"):
        tokenised(worked[:1], engine, 8)


def test_torn_checkpoints_are_passed_over_and_losses_repeat(tiny: str, rows: Path, tmp_path: Path) -> None:
    settings = small(tiny, rows, "max_steps=4", "save_steps=2", "train_batch_size=2", "learning_rate=1e-2")
    whole = sft(settings, tmp_path / "whole")
    torn = tmp_path / "torn"
    shutil.copytree(whole / "checkpoint-2", torn / "checkpoint-2")
    shutil.copytree(whole / "checkpoint-4", torn / "checkpoint-4")
    (torn / "checkpoint-4/trainer_state.json").unlink()
    sft(settings, torn)
    assert losses(torn / "checkpoint-4") == losses(whole / "checkpoint-4")
    assert len(losses(whole / "checkpoint-4")) == 4


def test_a_checkpoint_of_another_shape(tiny: str, rows: Path, tmp_path: Path) -> None:
    settings = small(tiny, rows, "max_steps=1", "train_batch_size=2")
    sft(settings, tmp_path / "out")
    for rank in (8, 0):
        with pytest.raises(ConfigError, match="checkpoint-1 is of another model or adapter: type output_dir="):
            sft(replace(settings, lora_r=rank, max_steps=2), tmp_path / "out")


def test_an_adapter_is_taken_up_again(tiny: str, rows: Path, tmp_path: Path) -> None:
    settings = small(tiny, rows, "max_steps=2", "limit=2", "train_batch_size=2", "learning_rate=1e-2")
    first = sft(settings, tmp_path / "first")
    second = sft(replace(settings, model_name_or_path=str(first)), tmp_path / "second")
    assert losses(second / "checkpoint-2")[0] < losses(first / "checkpoint-2")[1]
    assert json.loads((second / "adapter_config.json").read_text())["base_model_name_or_path"] == tiny
    _, _, before = models.load(str(first))
    _, _, after = models.load(str(second))
    assert before != after
    shutil.move(tiny, f"{tiny}.gone")
    try:
        with pytest.raises(ModelError, match="is an adapter, and of its base: no model"):
            models.load(str(second))
    finally:
        shutil.move(f"{tiny}.gone", tiny)


def test_all_weights(tiny: str, rows: Path, tmp_path: Path) -> None:
    folder = sft(replace(small(tiny, rows, "max_steps=1", "train_batch_size=2"), lora_r=0), tmp_path / "out")
    model, _, _ = models.load(str(folder))
    assert not hasattr(model, "peft_config") and not (folder / models.ADAPTER).exists()


def test_nothing_is_saved_of_a_loss_that_is_no_number(
    tiny: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = module.SFTTrainer.training_step

    def step(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = original(self, *args, **kwargs)
        return loss * float("nan") if self.state.global_step == 2 else loss

    monkeypatch.setattr(module.SFTTrainer, "training_step", step)
    settings = small(tiny, rows, "max_steps=4", "save_steps=1", "train_batch_size=2", "learning_rate=0.01")
    with pytest.raises(TutelageError, match=r"became nan at step 3: lower learning_rate=0.01; .*checkpoint-2 is kept"):
        sft(settings, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]


def test_data_without_worked_solutions(tmp_path: Path, tiny: str) -> None:
    file = tmp_path / "bare.jsonl"
    file.write_text(json.dumps({"question": "How many?", "answer": "12"}))
    settings = config(f"dataset_id_or_path={file}", "held_out=0", f"student_model={tiny}", "max_tokens=4")
    with pytest.raises(DataError, match=r"1 of 1 rows dropped: no steps before the answer; .* columns.solution="):
        lessons(settings)


@pytest.mark.slow
def test_a_real_teacher_learns(tmp_path: Path) -> None:
    """Probes and baselines by the real student, the same rows at every step: the loss can only fall."""
    words = "limit=2 train_batch_size=2 max_steps=3 max_length=512 lora_r=4 baseline_samples=1 max_tokens=12"
    settings = config(*words.split(), "max_probe_tokens=12", "learning_rate=2e-3")
    folder = sft(settings, tmp_path / "out")
    first, second, third = losses(folder / "checkpoint-3")
    assert first > second > third
    adapter = json.loads((folder / models.ADAPTER).read_text())
    assert adapter["base_model_name_or_path"] == "smollm2-135m"
    model, tokenizer, revision = models.load(str(folder))
    assert revision != models.load("smollm2-135m")[2]

    [row] = lessons(replace(settings, limit=1))

    async def speak() -> Any:
        async with TransformersEngine(model, tokenizer, name=str(folder), revision=revision) as engine:
            return await engine.generate(row.prompt, Sampling(max_tokens=8, temperature=0))

    [sample] = asyncio.run(speak())
    assert sample.text.startswith("<thinking>")
