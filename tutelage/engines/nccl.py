"""Whole weights to servers on other GPUs by NCCL: vLLM's weight-transfer endpoints there, its own helper here."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from tutelage.engines.fleet import LOGS, TRIES, Lost, Server
from tutelage.engines.http import content, dig, said, short
from tutelage.engines.sync import FORGET
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import ConfigError, EngineError

FLAGS = ["--weight-transfer-config", '{"backend": "nccl"}']  # what a server is started with
INSTEAD = "type weight_sync=disk"


def ready(gpu: bool) -> None:
    """Refuse what cannot work before any server is asked."""
    if not gpu:
        raise ConfigError("weight_sync=nccl goes from GPU to GPU and this trains on a CPU: type weight_sync=disk")
    # The group's key travels as a pickle of vLLM's own, and NCCL wants one version of itself at both ends.
    try:
        import_module("vllm.distributed.weight_transfer.nccl_common")
    except ImportError as error:
        raise ConfigError(
            f"weight_sync=nccl needs the servers' vLLM in the trainer's environment, too ({error}): pip install "
            f"vllm==0.26.0, or {INSTEAD}"
        ) from None


class Line:
    """This process, which is rank 0, and all workers of the policy's servers as one NCCL group."""

    def __init__(self, engine: VLLMEngine, device: Any) -> None:
        self.engine, self.device = engine, device
        self.members: list[Server] = []
        self.group: Any = None

    async def send(self, weights: Mapping[str, Any]) -> None:
        """All servers take these weights, by their names in a checkpoint, and forget what the old ones left behind."""
        if self.members != (living := self.engine.fleet.living()):
            await self.open(living)
        info = {
            "names": list(weights),
            "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in weights.values()],
            "shapes": [list(weight.shape) for weight in weights.values()],
        }
        await self.tell("/start_weight_update")
        await self.meet(lambda: self.cast(weights), living, "/update_weights", [{"update_info": info}] * len(living))
        await self.tell("/finish_weight_update")
        await self.tell(FORGET)

    async def open(self, servers: list[Server]) -> None:
        """A group of its own for these servers; one server may be several workers."""
        from vllm.distributed.weight_transfer.nccl_common import trainer_init
        from vllm.utils.network_utils import get_ip, get_open_port

        self.members, self.group = [], None  # until all are in it
        answers = await asyncio.gather(*(self.call(server, "/get_world_size") for server in servers))
        sizes = [int(answer["world_size"]) for answer in answers]
        group = {"master_address": get_ip(), "master_port": get_open_port(), "world_size": 1 + sum(sizes)}
        infos = [{"init_info": group | {"rank_offset": 1 + sum(sizes[:i])}} for i in range(len(sizes))]
        self.group = await self.meet(lambda: trainer_init(group), servers, "/init_weight_transfer_engine", infos)
        self.members = servers

    def cast(self, weights: Mapping[str, Any]) -> None:
        """One by one, which every vLLM we know takes unless told otherwise."""
        import torch

        stream = torch.cuda.current_stream()
        for weight in weights.values():
            self.group.broadcast(weight.to(self.device).contiguous(), src=0, stream=stream)
        stream.synchronize()

    async def meet(self, work: Callable[[], Any], servers: list[Server], path: str, bodies: Sequence[Any]) -> Any:
        """Our end beside theirs. NCCL waits for ever: the first end that fails is heard, and our thread is left."""
        import torch

        done: Future[Any] = Future()

        def run() -> None:
            try:
                torch.cuda.set_device(self.device)  # which each thread has its own
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        done.set_running_or_notify_cancel()  # who stops waiting does not stop NCCL
        threading.Thread(target=run, daemon=True).start()
        theirs = (self.call(server, path, body, most=1) for server, body in zip(servers, bodies, strict=True))
        try:
            return (await asyncio.gather(asyncio.wrap_future(done), *theirs))[0]
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(
                f"NCCL failed ({short(str(error))}): see it with NCCL_DEBUG=INFO, or {INSTEAD}"
            ) from error

    async def tell(self, path: str) -> None:
        await asyncio.gather(*(self.call(server, path, {}) for server in self.members))

    async def call(self, server: Server, path: str, body: Any = None, most: int = TRIES) -> Any:
        try:
            reply = await self.engine.fleet.send(server, path, body, most)
        except Lost as error:  # the others' group cannot go on without it
            raise EngineError(f"{error}, while weights were sent: repeat the command, or {INSTEAD}") from error
        if reply.status == 404:
            raise EngineError(
                f"{server.url} has no {path.partition('?')[0]}: start it with weight_sync=nccl, which is vLLM's "
                f"VLLM_SERVER_DEV_MODE=1 and {FLAGS[0]} '{FLAGS[1]}', or {INSTEAD}"
            )
        if not reply.ok or dig(content(reply), "success") is False:
            raise EngineError(f"{server.url} took no weights by NCCL ({short(said(reply))}): read {LOGS}, or {INSTEAD}")
        return content(reply)
