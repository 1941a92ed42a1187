"""The weights that are trained, and where their checkpoints are."""

import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tutelage import models
from tutelage.errors import ConfigError, TutelageError
from tutelage.training.batch import Sizes
from tutelage.training.config import Train

T = TypeVar("T")


def load_policy(config: Train) -> tuple[Any, Any]:
    """Model and tokenizer: an adapter on the base by default, an earlier adapter taken up again, or all weights."""
    import torch

    # Its gradients are no numbers for some lengths of masked texts in bfloat16 (pytorch/pytorch#196678).
    torch.backends.cuda.enable_cudnn_sdp(False)
    name = config.model_name_or_path or config.student_model
    # Weights trained whole need float32: in bfloat16 a small learning rate is rounded away.
    dtype = "float32" if config.dtype == "auto" and not config.lora_r else config.dtype
    model, tokenizer, _ = models.load(name, config.device, dtype)
    if hasattr(model, "peft_config") and not config.lora_r:
        raise ConfigError(
            f"{name} is an adapter: type lora_r={model.peft_config['default'].r}, or model_name_or_path=<a whole model>"
        )
    if config.lora_r and not hasattr(model, "peft_config"):
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(
            r=config.lora_r, lora_alpha=config.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapter)
        # By its name, not by this machine's path: the saved adapter can be used elsewhere.
        model.peft_config["default"].base_model_name_or_path = name
    return model, tokenizer


def base(config: Train) -> str:
    """The model under the policy: what an adapter adapts, or the policy itself."""
    name = config.model_name_or_path or config.student_model
    return models.base(name) if config.lora_r else name


def shared(config: Train) -> bool:
    """Is the frozen partner this very model without its adapter?"""
    return bool(config.lora_r) and base(config) == config.partner


def apart(config: Train) -> bool:
    """Does the frozen partner need servers of its own?"""
    return not shared(config) and not config.scores


def on_gpu(config: Train) -> bool:
    import torch

    return torch.cuda.is_available() and config.device != "cpu"


def arguments(kind: Callable[..., T], config: Train, folder: Path, sizes: Sizes, **own: Any) -> T:
    """What both trainers are told alike, and what is one's own."""
    cuda = on_gpu(config)
    # Transformers' plain "constant" would ignore a warm-up.
    warm = config.lr_scheduler_type == "constant" and config.warmup_ratio > 0
    try:
        return kind(
            output_dir=str(folder),
            learning_rate=config.learning_rate,
            lr_scheduler_type="constant_with_warmup" if warm else config.lr_scheduler_type,
            warmup_steps=min(config.warmup_ratio, 1 - 1e-9),  # below 1 it is a share
            weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
            max_grad_norm=config.max_grad_norm,
            num_train_epochs=config.num_train_epochs,
            max_steps=config.max_steps,
            per_device_train_batch_size=sizes.per_device,
            gradient_accumulation_steps=sizes.accumulation,
            gradient_checkpointing=config.gradient_checkpointing,
            logging_steps=config.logging_steps,
            save_steps=config.save_steps,
            save_total_limit=config.save_total_limit,
            report_to=config.reporters or "none",
            seed=config.seed,
            data_seed=config.seed,
            bf16=cuda and config.dtype in ("auto", "bfloat16"),
            use_cpu=not cuda,
            dataloader_pin_memory=cuda,
            **own,
        )
    except ValueError as error:  # what does not go together for Transformers
        raise ConfigError(str(error).splitlines()[0]) from error


class Guarded:
    """Before a Trainer: stops at a loss or gradient that is no number, before it reaches the weights."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        trainer: Any = self
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        refuse(trainer, "loss", loss.item())
        return loss

    def _clip_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = super()._clip_grad_norm(*args, **kwargs)  # type: ignore[misc]
        refuse(self, "gradient", float(norm if norm is not None else 0))  # DeepSpeed clips on its own
        return norm


def refuse(trainer: Any, what: str, value: float) -> None:
    if not math.isfinite(value):
        last = checkpoint(Path(trainer.args.output_dir))
        raise TutelageError(
            f"the {what} became {value} at step {trainer.state.global_step + 1}: lower learning_rate="
            f"{trainer.args.learning_rate:g}" + (f"; {last} is kept" if last else "")
        )


def resume(trainer: Any, last: Path | None) -> bool:
    """Train, from a checkpoint where there is one; a training that had ended is only loaded. Whether it trained."""
    from transformers import TrainerState

    try:
        if last and finished(last, trainer.args):
            trainer.state = TrainerState.load_from_json(str(last / "trainer_state.json"))
            trainer._load_from_checkpoint(str(last))
            return False
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        return True
    except (RuntimeError, ValueError) as error:
        if last is None or not any(sign in str(error) for sign in ("state_dict", "checkpoint", "doesn't match")):
            raise
        raise ConfigError(
            f"{last} is of another model or adapter: type output_dir=<another folder>, or delete {last.parent}"
        ) from error


def finished(last: Path, args: Any) -> bool:
    """Transformers would take one more step."""
    state = json.loads((last / "trainer_state.json").read_text())
    if args.max_steps > 0:
        return bool(state["global_step"] >= args.max_steps)
    return bool(state["epoch"] >= args.num_train_epochs)


def checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: the trainer writes its state last, so a torn one has none, or half of it."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: -int(path.name.split("-")[1])):
        with contextlib.suppress(OSError, ValueError):
            json.loads((path / "trainer_state.json").read_text())
            return path
    return None
