"""A frozen engine remembers: the same request is answered from disk, and asked once however many wait for it."""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tutelage.engines.base import Engine, Message, Sample, Sampling


class Memo(Engine):
    """Wraps an engine whose weights do not change; keyed by model, revision, sampling, prompt, n and seed."""

    def __init__(self, engine: Engine, path: Path):
        self.engine, self.name, self.revision = engine, engine.name, engine.revision
        path.parent.mkdir(parents=True, exist_ok=True)
        self._store = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._store.execute("PRAGMA journal_mode=WAL")
        self._store.execute("PRAGMA synchronous=NORMAL")
        self._store.execute("CREATE TABLE IF NOT EXISTS samples (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self._running: dict[str, asyncio.Task[list[Sample]]] = {}
        self.asked = self.shared = self.remembered = 0

    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        what = [self.name, self.revision, asdict(sampling), list(messages), n, seed]
        key = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16).hexdigest()
        if key in self._running:
            self.shared += 1
            return await asyncio.shield(self._running[key])
        row = self._store.execute("SELECT value FROM samples WHERE key = ?", (key,)).fetchone()
        if row is not None:
            self.remembered += 1
            return [Sample.from_dict(sample) for sample in json.loads(row[0])]
        self.asked += 1
        task = asyncio.create_task(self.engine.generate(messages, sampling, n, seed))
        self._running[key] = task
        try:
            samples = await asyncio.shield(task)
            value = json.dumps([asdict(sample) for sample in samples])
            self._store.execute("INSERT OR REPLACE INTO samples VALUES (?, ?)", (key, value))
            return samples
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            del self._running[key]

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        return await self.engine.score(prompt, completion, temperature)

    def count(self, text: str, sample: Sample) -> int:
        return self.engine.count(text, sample)

    async def close(self) -> None:
        self._store.close()
