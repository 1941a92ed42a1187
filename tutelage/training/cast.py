"""Who speaks in a training: models in this process, or vLLM servers that are given each step's weights."""

import asyncio
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from tutelage import models
from tutelage.engines import nccl, sync
from tutelage.engines.fleet import Fleet
from tutelage.engines.local import TransformersEngine
from tutelage.engines.memo import Memo
from tutelage.engines.tokens import TokenEngine
from tutelage.engines.vllm import VLLMEngine
from tutelage.files import cache_home
from tutelage.servers import called, division
from tutelage.training.config import Train
from tutelage.training.policy import on_gpu


@dataclass(frozen=True)
class Cast:
    """The policy, which is trained; its frozen partner; and the partner behind its memory."""

    policy: TokenEngine
    partner: TokenEngine
    frozen: Memo

    async def close(self) -> None:
        await self.policy.close()
        await self.partner.close()


def local(config: Train, policy: Any, tokenizer: Any, lock: AbstractContextManager[Any], other: Any = None) -> Cast:
    """The policy speaks with the very weights that are being trained."""
    name = str(config.model_name_or_path)
    trained = TransformersEngine(policy, tokenizer, name=name, cache_gb=config.cache_gb, lock=lock)
    partner = beside(config, policy, tokenizer, lock, other)
    return Cast(trained, partner, remembered(partner))


def beside(
    config: Train, policy: Any, tokenizer: Any, lock: AbstractContextManager[Any], other: Any
) -> TransformersEngine:
    """The partner in this process: `other` is its model, tokenizer and revision, loaded before."""
    room: dict[str, Any] = {"name": config.partner, "cache_gb": config.cache_gb}
    if other is not None:
        model, words, revision = other
        return TransformersEngine(model, words, revision=revision, **room)
    # One copy of the weights: the partner is the same model with the adapter switched off.
    dtype = str(policy.dtype).removeprefix("torch.")
    revision = f"{models.fingerprint(models.locate(config.partner))}-{dtype}-{policy.device.type}"
    return TransformersEngine(policy, tokenizer, revision=revision, voice=policy.disable_adapter, lock=lock, **room)


def remote(
    config: Train,
    policy: Any,
    tokenizer: Any,
    lock: AbstractContextManager[Any],
    other: Any,
    run: Callable[[Any], Any],
) -> Cast:
    """The base on the servers is the partner, an adapter on it the policy; other weights have servers of their own."""
    if config.weight_sync == "nccl":
        nccl.ready(on_gpu(config))
    ours, others = division(config)
    fleet = Fleet(ours)
    trained = VLLMEngine(called(config), fleet, tokenizer)
    if config.scores:
        run(trained.connect())
        scorer = beside(config, policy, tokenizer, lock, other)
        return Cast(trained, scorer, remembered(scorer))
    partner = VLLMEngine(config.partner, Fleet(others) if others else fleet)

    async def connect() -> None:
        await asyncio.gather(trained.connect(), partner.connect())

    run(connect())
    return Cast(trained, partner, remembered(partner))


def remembered(partner: TokenEngine) -> Memo:
    return Memo(partner, cache_home() / "samples.sqlite")


class Weights:
    """Brings the trained weights to the servers: what TRL asks for before lessons that follow an update."""

    def __init__(self, trainer: Any, policy: VLLMEngine, folder: Path, run: Callable[[Any], Any], way: str = "disk"):
        self.trainer, self.policy, self.folder, self.run = trainer, policy, folder, run
        self.line = nccl.Line(policy, trainer.accelerator.device) if way == "nccl" else None
        mark = [uuid.uuid4().hex[:6]]  # servers that stay up may still hold the weights of an earlier start
        broadcast_object_list(mark)
        self.mark, self.before = mark[0], Path()

    def sync_weights(self) -> None:
        """Every process takes part in gathering weights, the first one sends them, all speak with them from then on."""
        began, version = time.perf_counter(), f"{self.mark}-{self.trainer.state.global_step}"
        if self.line:
            self.wire(self.line, version)
        else:
            self.file(self.folder / version, version)
        alive = [[server.url for server in self.policy.fleet.servers if not server.death]]
        broadcast_object_list(alive)
        for server in self.policy.fleet.servers:  # what the first process could not reach has old weights
            if server.url not in alive[0]:
                server.death = server.death or "missed new weights"
        self.trainer._metrics["train"]["weights/seconds"].append(time.perf_counter() - began)

    def wire(self, line: nccl.Line, version: str) -> None:
        weights = whole(self.trainer)
        if self.trainer.is_world_process_zero():
            self.run(line.send(weights))
        self.policy.revision = version

    def file(self, folder: Path, version: str) -> None:
        self.trainer.save_model(str(folder))
        self.trainer.accelerator.wait_for_everyone()
        weights = self.trainer.accelerator.unwrap_model(self.trainer.model)
        way, follow = (sync.lora, sync.follow) if hasattr(weights, "peft_config") else (sync.disk, sync.reread)
        if self.trainer.is_world_process_zero():
            self.run(way(self.policy, folder, version))
            if self.before.name:
                shutil.rmtree(self.before, ignore_errors=True)
        else:
            follow(self.policy, folder, version)
        self.before = folder


def whole(trainer: Any) -> dict[str, Any]:
    """All weights by the names of a checkpoint, which vLLM loads by; all processes gather them, for the first one."""
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if not trainer.is_world_process_zero():
        return {}
    model = trainer.accelerator.unwrap_model(trainer.model)
    named: dict[str, Any] = revert_weight_conversion(model, remove_tied_weights_from_state_dict(weights, model))
    return named
