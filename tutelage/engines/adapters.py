"""Several models through one: a base and its adapters share one copy of the weights, and take turns to speak."""

import contextlib
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

from tutelage import models
from tutelage.engines import sync
from tutelage.engines.fleet import Fleet
from tutelage.engines.local import TransformersEngine
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import ModelError


def share(names: Sequence[str], device: str, dtype: str, cache_gb: float | None) -> dict[str, TransformersEngine]:
    """An engine for each name. Whole models that are not one another's base are loaded each for itself."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(models.base(name), []).append(name)
    engines: dict[str, TransformersEngine] = {}
    for base, members in families.items():
        model, _, revision = models.load(base, device, dtype)
        lock = threading.Lock()
        adapters = [name for name in members if name != base]
        for number, name in enumerate(adapters):
            model = _adapted(model, name, f"adapter{number}")
        for name in members:
            voice: Any = contextlib.nullcontext
            own = revision
            if name != base:
                voice = partial(_speaking, model, f"adapter{adapters.index(name)}")
                own = f"{models.fingerprint(models.locate(name))}-{revision}"  # as models.load has it
            elif adapters:
                voice = model.disable_adapter
            engines[name] = TransformersEngine(
                model, models.tokenizer(name), name=name, revision=own, cache_gb=cache_gb, voice=voice, lock=lock
            )
    return engines


@contextlib.asynccontextmanager
async def served(name: str, fleet: Fleet) -> AsyncIterator[VLLMEngine]:
    """An engine for a name on servers; an adapter in a folder that they do not have is loaded while it is needed."""
    await fleet.connect()
    base = name
    if not all(name in server.models for server in fleet.servers):
        with contextlib.suppress(ModelError):  # a name of nothing here either: connecting says which ones there are
            base = models.base(name)
    engine = await VLLMEngine(base, fleet).connect()
    if base == name:
        yield engine
        return
    folder = models.locate(name)
    revision = f"{models.fingerprint(folder)}-{engine.revision}"
    await sync.lora(engine, folder, uuid.uuid4().hex[:8])  # other runs may have loaded it for themselves
    engine.name, engine.revision = name, revision
    try:
        yield engine
    finally:
        await sync.unload(engine, engine.model, folder)


def _adapted(model: Any, name: str, called: str) -> Any:
    """One more adapter on a model, which becomes PEFT's with its first one."""
    from peft import PeftModel

    folder = str(models.locate(name))
    try:
        with models.quiet():
            if isinstance(model, PeftModel):
                model.load_adapter(folder, adapter_name=called)
            else:
                model = PeftModel.from_pretrained(model, folder, adapter_name=called)
    except Exception as error:  # whatever a damaged adapter, or one of another base, makes the libraries raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"cannot load the adapter {name!r} from {folder}: {reason}") from error
    return model.eval()


@contextlib.contextmanager
def _speaking(model: Any, called: str) -> Iterator[None]:
    model.set_adapter(called)
    yield
