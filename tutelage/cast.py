"""Who speaks in a command: an engine for every name, and one model for all that share a base."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterable

from tutelage.config import Roles
from tutelage.engines import Engine
from tutelage.engines.memo import Memo
from tutelage.errors import ConfigError
from tutelage.files import cache_home

Place = tuple[str, str | None]  # a model's name and the endpoint that serves it; None: vLLM servers or this process


@contextlib.asynccontextmanager
async def roles(config: Roles, scores: bool = False) -> AsyncIterator[tuple[Engine, Engine, Engine]]:
    """Teacher, student, and the student behind its memory; one engine plays both roles where they are the same.

    A student that `scores` does it in this process: servers have log-probs of given texts at temperature 1 only.
    """
    student = (config.student, config.student_url)
    teacher = guide(config) or student
    memory = cache_home() / "samples.sqlite"
    async with contextlib.AsyncExitStack() as stack:
        if scores and config.engine == "vllm":
            from tutelage.engines.adapters import share

            spoken = await stack.enter_async_context(speakers(config, [teacher]))
            own = share([config.student], config.device, config.dtype, config.cache_gb)
            reader: Engine = await stack.enter_async_context(own[config.student])
        else:
            spoken = await stack.enter_async_context(speakers(config, [student, teacher]))
            reader = spoken[student]
        frozen = await stack.enter_async_context(Memo(reader, memory))
        yield spoken[teacher], reader, frozen


def guide(config: Roles) -> Place | None:
    """The teacher, where one is named."""
    if config.teacher is None and config.teacher_url is not None:
        raise ConfigError("teacher_url needs the served model's name: add teacher=…")
    return None if config.teacher is None else (config.teacher, config.teacher_url)


@contextlib.asynccontextmanager
async def speakers(config: Roles, places: Iterable[Place]) -> AsyncIterator[dict[Place, Engine]]:
    """Engines for these names: endpoints where a URL is given, else vLLM servers or models in this process."""
    wanted = list(dict.fromkeys(places))
    inside = [name for name, url in wanted if url is None]
    found: dict[Place, Engine] = {}
    async with contextlib.AsyncExitStack() as stack:
        if inside and config.engine == "vllm":
            from tutelage.engines.adapters import served
            from tutelage.engines.fleet import Fleet, addresses

            fleet = Fleet(addresses(config.vllm_host, config.vllm_port, config.vllm_servers))
            await stack.enter_async_context(fleet)
            for name in inside:
                found[name, None] = await stack.enter_async_context(served(name, fleet))
        elif inside:
            from tutelage.engines.adapters import share

            for name, engine in share(inside, config.device, config.dtype, config.cache_gb).items():
                found[name, None] = await stack.enter_async_context(engine)
        for name, url in wanted:
            if url is not None:
                from tutelage.engines.openai import OpenAIEngine

                key = os.environ.get(config.api_key_env)
                outside = OpenAIEngine(name, url, key, concurrency=config.requests)
                found[name, url] = await (await stack.enter_async_context(outside)).connect()
        yield found
