"""Reinforcement: TRL's GRPO over lessons, watched, evaluated on held-out problems and resumable."""

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from rich.console import Console
from transformers import TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from tutelage import data, models
from tutelage.engines.local import TransformersEngine
from tutelage.engines.memo import Memo
from tutelage.errors import ConfigError, DataError
from tutelage.evaluate import plan, read
from tutelage.files import cache_home, write
from tutelage.lessons import Episode, adaptive, prompts
from tutelage.lessons.adaptive import attempt
from tutelage.metrics import interval, measure, to_dict
from tutelage.problem import Problem
from tutelage.report import transcript
from tutelage.rewards import Terms, worth
from tutelage.rewards.adaptive import accuracy
from tutelage.training.batch import Sizes
from tutelage.training.config import Train
from tutelage.training.policy import Guarded, arguments, checkpoint, load_policy, resume, shared
from tutelage.training.rollout import Rollout, rewind


def rcl(config: Train, folder: Path, sizes: Sizes) -> None:
    """Train the teacher, or go on from the last checkpoint."""
    args = arguments(GRPOConfig, config, folder, sizes, **group_settings(config))
    rank = args.process_index  # asking claims this process's GPU, before any model is put on one
    set_seed(config.seed)  # an adapter starts from random numbers
    policy, tokenizer = load_policy(config)
    train, held_out = problems(config)
    lock = threading.Lock()

    def engines(trainer: Any) -> tuple[Any, Any, Any]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        name = str(config.model_name_or_path)
        teacher = TransformersEngine(model, tokenizer, name=name, cache_gb=config.cache_gb, lock=lock)
        return teacher, student, frozen

    if shared(config, policy):
        # One copy of the weights: the student is the same model with the adapter switched off.
        dtype = str(policy.dtype).removeprefix("torch.")
        revision = f"{models.fingerprint(models.locate(config.student_model))}-{dtype}-{policy.device.type}"
        options: dict[str, Any] = {"voice": policy.disable_adapter, "lock": lock}
        student = TransformersEngine(
            policy, tokenizer, name=config.student_model, revision=revision, cache_gb=config.cache_gb, **options
        )
    else:
        other, words, revision = models.load(config.student_model, config.device, config.dtype)
        student = TransformersEngine(
            other, words, name=config.student_model, revision=revision, cache_gb=config.cache_gb
        )
    frozen = Memo(student, cache_home() / "samples.sqlite")
    train, held_out = (fitting(some, config, policy, tokenizer) for some in (train, held_out[: config.eval_limit]))
    if not train:
        raise DataError(f"no prompt fits: raise max_prompt_length={config.max_prompt_length}")
    log = folder / (f"episodes.{rank}.jsonl" if rank else "episodes.jsonl")
    rollout = Rollout(train, engines, plan(config), config.reward, terms(config), config.resample, log, lock)
    if config.min_baseline > 0 or config.max_baseline < 1:
        kept = rollout.run(within(train, frozen, config))
        print(f"curriculum: {len(kept)} of {len(train)} problems", file=sys.stderr)
        rollout.problems = {problem.uid: problem for problem in kept}
    trainer = Trainer(
        model=policy,
        processing_class=tokenizer,
        reward_funcs=[rollout.value],
        rollout_func=rollout,
        train_dataset=data_rows(rollout),
        args=args,
    )
    refuse_shards(trainer)
    rollout.attach(trainer)
    watch = Watch(config, folder, rollout, held_out, trainer)
    trainer.add_callback(watch)
    last = checkpoint(folder)
    step = int(last.name.split("-")[1]) if last else 0
    rollout.rewind(step)
    if rank == 0:
        rewind(folder / "evaluations.jsonl", lambda line: bool(last) and line["step"] <= step)
        if last:
            print(f"going on from {last}", file=sys.stderr)
    resume(trainer, last)
    watch.evaluate()
    if config.save_final_model:
        trainer.save_model(str(folder))


def refuse_shards(trainer: Any) -> None:
    """An engine in this process reads whole weights: half of them would be a hang or nonsense."""
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    if trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3):
        raise ConfigError("lessons in the training process need whole weights: end the command with ddp or zero1")


def problems(config: Train) -> tuple[list[Problem], list[Problem]]:
    """To train on, and to evaluate on: never the same question."""
    everything = read(config, needs_answer=True).problems
    train, held_out = (
        data.split(everything, config.held_out, config.split_seed) if config.held_out else (everything, [])
    )
    if not train:
        raise DataError(f"{config.dataset_id_or_path} leaves nothing to train on: lower held_out={config.held_out}")
    return train[: config.limit], held_out


def fitting(problems: list[Problem], config: Train, policy: Any, tokenizer: Any) -> list[Problem]:
    """Problems whose teacher prompt fits with the longest probe; the others are counted and named."""
    teacher = TransformersEngine(policy, tokenizer, name=str(config.model_name_or_path))
    room = min(config.max_prompt_length, teacher.context - 1) - config.max_probe_tokens
    lengths = [len(teacher.render(prompts.teach(problem.public, ""))) for problem in problems]
    out = [problem.uid for problem, length in zip(problems, lengths, strict=True) if length > room]
    if out:
        print(
            f"{len(out)} of {len(problems)} problems dropped: their prompts are over "
            f"max_prompt_length={config.max_prompt_length}: {', '.join(out)}",
            file=sys.stderr,
        )
    return [problem for problem, length in zip(problems, lengths, strict=True) if length <= room]


async def within(problems: list[Problem], frozen: Memo, config: Train) -> list[Problem]:
    """The problems the student solves alone as often as the curriculum wants."""
    how = plan(config)
    attempts = await asyncio.gather(*(attempt(p, None, frozen, how, how.baseline_samples) for p in problems))
    rates = [accuracy(turns) for turns in attempts]
    kept = [p for p, rate in zip(problems, rates, strict=True) if config.min_baseline <= rate <= config.max_baseline]
    if not kept:
        spread = f"{min(rates):.0%} to {max(rates):.0%}"
        raise DataError(f"the student solves {spread} of these problems alone: widen min_baseline and max_baseline")
    return kept


def data_rows(rollout: Rollout) -> Any:
    from datasets import Dataset

    return Dataset.from_list(rollout.rows())


def terms(config: Train) -> Terms:
    return Terms(
        config.degradation_penalty_multiplier, config.efficiency_weight, config.leak_penalty, config.format_penalty
    )


def group_settings(config: Train) -> dict[str, Any]:
    """GRPO's own arguments."""
    names = (
        "num_generations num_iterations max_completion_length temperature beta loss_type epsilon epsilon_high "
        "scale_rewards sync_ref_model ref_model_mixup_alpha ref_model_sync_steps"
    ).split()
    return {name: getattr(config, name) for name in names}


class Trainer(Guarded, GRPOTrainer):
    """Finds the trained adapter in a checkpoint that also holds the reference's: Transformers reads only the latter."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        policy: Any = self.model if model is None else model
        if (Path(resume_from_checkpoint) / models.ADAPTER).is_file():
            active = policy.active_adapter
            policy.load_adapter(resume_from_checkpoint, active, is_trainable=True)
            policy.set_adapter(active)


class Watch(TrainerCallback):
    """Shows lessons, evaluates on held-out problems, keeps the best teacher, stops at a loss that is no number."""

    def __init__(self, config: Train, folder: Path, rollout: Rollout, held_out: list[Problem], trainer: Any):
        self.config, self.folder, self.rollout, self.held_out = config, folder, rollout, held_out
        self.trainer, self.evaluated = trainer, -1
        self.best: dict[str, float] = {}
        if (folder / "best.json").exists():
            self.best = json.loads((folder / "best.json").read_text())

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.config.eval_steps and not state.global_step:
            self.evaluate()  # where it begins

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero and state.global_step % self.config.sample_steps == 0:
            transcript(Console(stderr=True), self.rollout.episodes[0])
        if self.config.eval_steps and state.global_step % self.config.eval_steps == 0:
            self.evaluate()

    def evaluate(self) -> None:
        """Held-out lessons with intervals; the best teacher by APG, among those that keep the non-degradation rate."""
        step = self.trainer.state.global_step
        if not self.held_out or self.evaluated == step:
            return
        self.evaluated = step
        how = plan(self.config)

        async def lessons() -> list[Episode]:
            return await asyncio.gather(*(adaptive(p, *self.rollout.cast, how) for p in self.held_out))

        found: list[Any] = [None]
        if self.trainer.accelerator.is_main_process:
            episodes = self.rollout.run(lessons())
            found = [self.shown(step, episodes)]
        broadcast_object_list(found)  # every process saves, or none
        self.keep(step, *found[0])

    def shown(self, step: int, episodes: list[Episode]) -> tuple[float, float]:
        found = measure(episodes)
        found["reward"] = interval([sum(worth(self.config.reward, e, terms(self.config)).values()) for e in episodes])
        logs = {f"eval/{name}": e.value for name, e in found.items() if e.value is not None}
        logs |= {f"eval/{n}_{side}": getattr(found[n], side) for n in ("apg", "reward") for side in ("low", "high")}
        self.trainer.log(logs)
        with (self.folder / "evaluations.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **to_dict(found)}) + "\n")
        return float(found["apg"].value or 0.0), float(found["ndr"].value or 0.0)

    def keep(self, step: int, apg: float, ndr: float) -> None:
        """Safe teachers first, then by gain."""
        rank = (min(ndr, self.config.min_ndr), apg)
        if not self.best or rank > (min(self.best["ndr"], self.config.min_ndr), self.best["apg"]):
            self.best = {"step": step, "apg": apg, "ndr": ndr}
            self.trainer.save_model(str(self.folder / "best"))
            if self.trainer.is_world_process_zero():
                write(self.folder / "best.json", json.dumps(self.best) + "\n")
