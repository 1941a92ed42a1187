"""The weights that are trained, and where their checkpoints are."""

from pathlib import Path
from typing import Any

from tutelage import models
from tutelage.training.config import Train


def load_policy(config: Train) -> tuple[Any, Any]:
    """Model and tokenizer: an adapter on the base by default, an earlier adapter taken up again, or all weights."""
    name = config.model_name_or_path or config.student_model
    model, tokenizer, _ = models.load(name, config.device, config.dtype)
    if config.lora_r and not hasattr(model, "peft_config"):
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(
            r=config.lora_r, lora_alpha=config.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapter)
        # By its name, not by this machine's path: the saved adapter can be used elsewhere.
        model.peft_config["default"].base_model_name_or_path = name
    return model, tokenizer


def shared(config: Train, policy: Any) -> bool:
    """Is the student this very model without its adapter?"""
    adapters = getattr(policy, "peft_config", {})
    return any(adapter.base_model_name_or_path == config.student_model for adapter in adapters.values())


def checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: the trainer writes its state last, so a torn one has none."""
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.split("-")[1]), default=None)
