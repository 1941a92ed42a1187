"""Self-critique: beside reinforcement, a student learns to give the hints that helped, without knowing the answer."""

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import pad

ITEMS = "critique_items"
Critique = tuple[Sequence[int], Sequence[int]]  # a prompt and the hint


def tensors(critiques: Sequence[Critique | None], trainer: Any) -> dict[str, Any]:
    """As TRL keeps a batch: rows that it may shuffle and split, and the count of all tokens to learn in the step.

    A lesson without a critique is a row with nothing to learn. Where there is none at all, on any process, the answer
    is empty, so that all processes run the model equally often.
    """
    filler, device = trainer._tokenizer.pad_token_id, trainer.accelerator.device
    there = [one for one in critiques if one is not None]
    counts = torch.tensor([sum(len(hint) for _, hint in there), len(there), len(critiques)], device=device)
    items, learnt, lessons = trainer.accelerator.reduce(counts, reduction="sum")
    trainer._metrics["train"]["critique/share"].append((learnt / lessons).item())
    if not items:
        return {}
    found: dict[str, Any] = {ITEMS: items}
    for part, (name, side) in enumerate((("prompt", "left"), ("hint", "right"))):
        ids = [torch.tensor(list(one[part]) if one else [filler]) for one in critiques]
        # An empty row still attends to one token: attention to nothing is no number.
        mask = [
            torch.full_like(row, int(one is not None or name == "prompt"))
            for row, one in zip(ids, critiques, strict=True)
        ]
        found[f"critique_{name}_ids"] = pad(ids, filler, side).to(device)
        found[f"critique_{name}_mask"] = pad(mask, 0, side).to(device)
    return found


def loss(trainer: Any, model: Any, inputs: dict[str, Any]) -> Any:
    """Mean over the step's tokens of their negative log-prob, at the temperature at which the student speaks."""
    rows = inputs["critique_hint_mask"].any(1)
    rows[0] |= ~rows.any()
    ids, mask = (
        torch.cat([inputs[f"critique_prompt_{what}"], inputs[f"critique_hint_{what}"]], 1)[rows]
        for what in ("ids", "mask")
    )
    learnt = inputs["critique_hint_mask"][rows]
    logps, *_ = trainer._get_per_token_logps_and_entropies(model, ids, mask, learnt.size(1))
    total = -(logps * learnt).sum()
    counts = trainer.accelerator.reduce(torch.stack([total.detach(), learnt.sum()]), reduction="sum")
    if counts[1]:
        trainer._metrics["train"]["critique/nll"].append((counts[0] / counts[1]).item())
    # As TRL's token-level losses: processes are averaged, backward passes added, and a step may be part of a rollout.
    passes = trainer.current_gradient_accumulation_steps / trainer.args.steps_per_generation
    return total / (inputs[ITEMS] / trainer.accelerator.num_processes * passes)
