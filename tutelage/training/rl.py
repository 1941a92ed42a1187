"""Reinforcement: TRL's GRPO over lessons, watched, evaluated on held-out problems and resumable."""

import asyncio
import contextlib
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch.nn import functional as F
from torch.utils.data import Sampler
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer

from tutelage import models
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import ConfigError, DataError, EngineError
from tutelage.training import critique
from tutelage.training.batch import Sizes
from tutelage.training.cast import Weights, local, remote
from tutelage.training.config import Train
from tutelage.training.courses import course
from tutelage.training.curriculum import fitting, problems, rated, within
from tutelage.training.policy import Guarded, arguments, checkpoint, load_policy, on_gpu, resume, shared
from tutelage.training.rollout import Rollout, rewind
from tutelage.training.watch import Watch, brief

REFERENCE = "reference.pt"


def reinforce(config: Train, folder: Path, sizes: Sizes) -> None:
    """Train by lessons, or go on from the last checkpoint."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as end:
        _reinforce(config, folder, sizes, runner, end)


def _reinforce(
    config: Train, folder: Path, sizes: Sizes, runner: asyncio.Runner, end: contextlib.ExitStack[Any]
) -> None:
    # Before the trainer's arguments: with ZeRO-3 these would have the partner's weights cut into shards, too.
    PartialState(cpu=not on_gpu(config))
    served = config.engine == "vllm"
    alone = not shared(config) and (config.scores or not served)
    other = models.load(config.partner, config.device, config.dtype) if alone else None
    args = arguments(GRPOConfig, config, folder, sizes, **group_settings(config))
    rank = args.process_index  # asking claims this process's GPU, before any model is put on one
    set_seed(config.seed)  # an adapter starts from random numbers
    policy, tokenizer = load_policy(config)
    train, held_out = problems(config)
    lock = threading.Lock()
    parts = (config, policy, tokenizer, lock, other)
    cast = remote(*parts, runner.run) if served else local(*parts)
    end.callback(lambda: runner.run(cast.close()))
    how = course(config, cast)
    train, held_out = (fitting(some, how) for some in (train, held_out[: config.eval_limit]))
    wanted = sizes.total // config.num_generations
    log = folder / (f"episodes.{rank}.jsonl" if rank else "episodes.jsonl")
    rollout = Rollout(train, how, config.resample, log, runner, lock)
    if config.min_baseline > 0 or config.max_baseline < 1:
        kept = within(train, rated(train, rollout, folder), config)
        rollout.problems = {problem.uid: problem for problem in kept}
    if len(rollout.problems) < wanted:  # TRL would train nothing and say nothing
        few = len(rollout.problems)
        rarely = f", or a wider min_baseline … max_baseline: {len(train)} were rated" if few < len(train) else ""
        raise DataError(
            f"a step takes {wanted} problems and there are {few}: type train_batch_size={few * config.num_generations}"
            + rarely
        )
    trainer = Trainer(
        model=policy,
        processing_class=tokenizer,
        reward_funcs=[rollout.value],
        rollout_func=rollout,
        train_dataset=data_rows(rollout),
        args=args,
    )
    if isinstance(cast.policy, VLLMEngine):
        if rank == 0:
            shutil.rmtree(folder / "weights", ignore_errors=True)  # of a run that was killed
        weights = Weights(trainer, cast.policy, folder / "weights", runner.run, config.weight_sync)
        trainer.serve(weights, config.max_logprob_gap)
    if not served or (config.scores and shared(config)):
        refuse_shards(trainer)
    brief(trainer)
    watch = Watch(config, folder, rollout, held_out, trainer)
    trainer.add_callback(watch)
    last = checkpoint(folder)
    step = int(last.name.split("-")[1]) if last else 0
    if rank == 0:
        for log in folder.glob("episodes*.jsonl"):
            rewind(log, lambda line: line["meta"]["step"] < step)
        watch.rewind(step if last else -1)
        if last:
            print(f"going on from {last}", file=sys.stderr)
    try:
        trained = resume(trainer, last)
    except EngineError:
        if trainer.accelerator.num_processes == 1 and trainer.state.global_step > step:
            trainer._save_checkpoint(trainer.model, trial=None)  # what was learned is not what failed
        raise
    watch.evaluate()
    if config.save_final_model and (trained or not models.saved(folder)):
        trainer.save_model(str(folder))
    if rank == 0:
        shutil.rmtree(folder / "weights", ignore_errors=True)
        watch.sum_up()


def refuse_shards(trainer: Any) -> None:
    """An engine in this process reads whole weights: half of them would be a hang or nonsense."""
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    if trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3):
        raise ConfigError(
            "lessons in the training process need whole weights: end the command with ddp or zero1, or "
            "use ./launch_with_server.sh"
        )


def data_rows(rollout: Rollout) -> Any:
    from datasets import Dataset

    return Dataset.from_list(rollout.rows())


def group_settings(config: Train) -> dict[str, Any]:
    """GRPO's own arguments."""
    names = (
        "num_generations num_iterations max_completion_length temperature beta loss_type epsilon epsilon_high "
        "scale_rewards sync_ref_model ref_model_mixup_alpha ref_model_sync_steps"
    ).split()
    own: dict[str, Any] = {name: getattr(config, name) for name in names}
    if config.method == "rl2f":  # there it is how long a hint is, and dr_grpo divides by what the policy may write
        own["max_completion_length"] = config.max_turns * config.max_tokens
    # Truncated: of servers whose numbers are a little others, no token counts for more than it should.
    return own | {"vllm_importance_sampling_mode": "token_truncate"}


class Shuffled(Sampler[int]):
    """TRL's order of problems, but fixed by the epoch: a run that is taken up in its second one shuffles alike."""

    def __init__(self, inner: Any, seed: int):
        self.inner, self.seed, self.epoch = inner, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.inner.generator.manual_seed(self.seed + 1_000_003 * self.epoch)
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


class Trainer(Guarded, GRPOTrainer):
    """TRL's, guarded, that can be served by vLLM."""

    def serve(self, weights: Weights, max_gap: float) -> None:
        """Take TRL's own way for samples of a server: weights synced before lessons, importance sampling corrected."""
        self.use_vllm, self.vllm_generation, self._last_loaded_step = True, weights, -1  # type: ignore[assignment]
        self.max_gap = max_gap

    def sync(self) -> None:
        """Have the servers speak with the weights of this step; TRL does it before a rollout only."""
        if self.use_vllm and self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        scored = super()._generate_and_score_completions(inputs)
        rollout: Any = self.rollout_func
        if rollout.advantages is not None:  # by token: TRL's loss takes both shapes
            rows = [torch.tensor(row, dtype=torch.float32) for row in rollout.advantages]
            width = scored["completion_ids"].shape[1]
            scored["advantages"] = torch.stack([F.pad(row, (0, width - len(row))) for row in rows]).to(self.args.device)
        if rollout.course.config.self_critique:
            scored |= critique.tensors([one.critique for one in rollout.trained], self)
        if self.use_vllm:
            gap = self._metrics["train"]["sampling/sampling_logp_difference/mean"][-1]
            if not gap <= self.max_gap:
                raise EngineError(
                    f"the servers' log-probs are {gap:.3f} from the trainer's on average, over "
                    f"max_logprob_gap={self.max_gap:g}: they speak with other weights, or in another dtype; start them "
                    "with this command's own launcher, or raise it if you know why"
                )
        return scored

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        if critique.ITEMS in inputs:
            rollout: Any = self.rollout_func
            loss = loss + rollout.course.config.self_critique * critique.loss(self, model, inputs)
        return loss

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return Shuffled(super()._get_train_sampler(dataset), self.args.seed)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        args: Any = self.args
        if args.sync_ref_model:  # it has moved, and TRL would begin again with the first one
            state = self.accelerator.get_state_dict(self.ref_model)
            if self.is_world_process_zero():
                folder = Path(args.output_dir) / f"checkpoint-{self.state.global_step}"
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(state, folder / REFERENCE)
        super()._save_checkpoint(model, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Finds the trained adapter in a checkpoint that also holds the reference's: Transformers reads only the
        latter."""
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        policy: Any = self.model if model is None else model
        if (Path(resume_from_checkpoint) / models.ADAPTER).is_file():
            active = policy.active_adapter
            policy.load_adapter(resume_from_checkpoint, active, is_trainable=True)
            policy.set_adapter(active)
        args: Any = self.args
        if args.sync_ref_model:
            state = torch.load(Path(resume_from_checkpoint) / REFERENCE, weights_only=True)
            self.accelerator.unwrap_model(self.ref_model).load_state_dict(state)

    def note(self, logs: dict[str, Any]) -> None:
        """A line of its own: TRL's would take the step's metrics with it, and any line ends the wish for the step's,
        for which the other processes then wait."""
        wanted = self.control.should_log
        super(GRPOTrainer, self).log(logs)
        self.control.should_log = wanted
