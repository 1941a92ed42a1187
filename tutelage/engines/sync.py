"""New weights for servers that run: an adapter under a name of its own, or a whole model from a folder."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tutelage import models
from tutelage.engines.fleet import Lost, Server
from tutelage.engines.http import content, dig, said, short
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import EngineError

RANK = re.compile(r"LoRA rank (\d+) is greater than max_lora_rank (\d+)")

# Keys and values of the old weights would be taken for those of the new ones.
FORGET = "/reset_prefix_cache?reset_running_requests=true"


def adapter_name(base: str, version: str | int) -> str:
    """What servers call an adapter at this version; every process can work it out without asking."""
    return f"{base}@{version}"


async def lora(engine: VLLMEngine, folder: Path, version: str | int) -> None:
    """All servers load the adapter in `folder`, and the engine speaks with it from now on.

    Each version has its own name. Loading in place instead would keep key/values that the old weights left in the
    prefix cache, and make vLLM read the folder again at every step and die when it is gone (both seen with 0.32, and in
    the source of 0.26). And a process that missed a sync gets an error here, where in place it would get wrong weights.
    """
    name, old = adapter_name(engine.name, version), engine.model

    async def load(server: Server) -> None:
        await engine.fleet.refresh(server)
        if name in server.models:
            raise EngineError(f"{server.url} has a {name} already: give each sync a version of its own")
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        # A connection may be lost after the server took it: asked again, it says so.
        await _post(engine, server, "/v1/load_lora_adapter", body, folder, fine="already been loaded")

    await _everywhere(engine, load)
    follow(engine, folder, version)
    if old not in (name, engine.name):
        await unload(engine, old, folder)


async def unload(engine: VLLMEngine, name: str, folder: Path) -> None:
    """All servers forget an adapter."""

    async def forget(server: Server) -> None:
        await _post(engine, server, "/v1/unload_lora_adapter", {"lora_name": name}, folder, fine="cannot be found")

    await _everywhere(engine, forget)


def follow(engine: VLLMEngine, folder: Path, version: str | int) -> None:
    """For the processes that did not sync themselves: speak with the adapter that another one has loaded."""
    engine.model = adapter_name(engine.name, version)
    reread(engine, folder, version)


async def disk(engine: VLLMEngine, folder: Path, version: str | int) -> None:
    """All servers read all weights anew from `folder`, which holds the same architecture."""
    if not (folder / "config.json").is_file():  # asked to read this, a server would break
        raise EngineError(f"{folder} holds no saved model, so no server can load it")

    async def check(server: Server) -> None:
        info = await engine.fleet.send(server, "/server_info")
        if tied(folder) and "device_config=cpu" in info.text:
            raise EngineError(
                f"{server.url} runs on a CPU, where vLLM would keep the old output layer of {folder}, which is tied to "
                "its embeddings: train an adapter instead, lora_r=16"
            )

    async def load(server: Server) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}}
        await _post(engine, server, "/collective_rpc", body, folder)
        await _post(engine, server, FORGET, {}, folder)

    await _everywhere(engine, check)
    await _everywhere(engine, load)
    reread(engine, folder, version)


def reread(engine: VLLMEngine, folder: Path, version: str | int) -> None:
    """For the processes that did not sync themselves: the servers' weights are others now."""
    engine.revision = f"{models.fingerprint(folder)}-{version}"


def tied(folder: Path) -> bool:
    """Is the output layer the embedding itself?"""
    return bool(json.loads((folder / "config.json").read_text()).get("tie_word_embeddings"))


async def _everywhere(engine: VLLMEngine, work: Callable[[Server], Awaitable[None]]) -> None:
    """On every living server; one that dies is out of the fleet, and needs no weights."""

    async def on(server: Server) -> None:
        try:
            await work(server)
        except Lost:
            return

    await asyncio.gather(*(on(server) for server in engine.fleet.living()))
    engine.fleet.living()  # raises when that was the last one


async def _post(engine: VLLMEngine, server: Server, path: str, body: Any, folder: Path, fine: str = "") -> None:
    reply = await engine.fleet.send(server, path, body)
    words = said(reply)
    if reply.ok and dig(content(reply), "success") is not False:
        return
    if fine and fine in words:
        return
    if ranks := RANK.search(words):
        rank, limit = ranks.groups()
        raise EngineError(
            f"the adapter in {folder} has rank {rank} and {server.url} takes at most {limit}: train with "
            f"lora_r={limit}, or start the server with --max-lora-rank {rank}"
        )
    if "No adapter found" in words:
        raise EngineError(
            f"{server.url} cannot read an adapter in {folder}: use a folder that the server's machine sees too"
        )
    if reply.status == 404:
        raise EngineError(
            f"{server.url} has no {path.partition('?')[0]}: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 "
            "VLLM_SERVER_DEV_MODE=1 and --enable-lora"
        )
    raise EngineError(f"{server.url} did not take the weights in {folder}: {short(words)}")
