"""A frozen engine remembers: the same request is answered from disk, and asked once however many wait for it."""

import asyncio
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tutelage.engines.base import Engine, Message, Sample, Sampling, Wrapper


class Memo(Wrapper):
    """Wraps an engine whose weights do not change; keyed by model, revision, sampling, prompt, n and seed."""

    def __init__(self, engine: Engine, path: Path):
        super().__init__(engine)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._store = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._store.execute("PRAGMA journal_mode=WAL")
        self._store.execute("PRAGMA synchronous=NORMAL")
        self._store.execute("CREATE TABLE IF NOT EXISTS samples (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self._running: dict[str, asyncio.Task[list[Sample]]] = {}
        self._waiting: Counter[asyncio.Task[list[Sample]]] = Counter()
        self.asked = self.shared = self.remembered = 0

    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        what = [self.name, self.revision, asdict(sampling), list(messages), n, seed]
        key = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16).hexdigest()
        if key in self._running:
            self.shared += 1
            return await self._wait(self._running[key])
        row = self._store.execute("SELECT value FROM samples WHERE key = ?", (key,)).fetchone()
        if row is not None:
            self.remembered += 1
            return [Sample.from_dict(sample) for sample in json.loads(row[0])]
        self.asked += 1
        task = self._running[key] = asyncio.create_task(self._fetch(key, messages, sampling, n, seed))
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return await self._wait(task)

    async def _fetch(
        self, key: str, messages: Sequence[Message], sampling: Sampling, n: int, seed: int
    ) -> list[Sample]:
        samples = await self.engine.generate(messages, sampling, n, seed)
        value = json.dumps([vars(sample) for sample in samples], default=list)
        self._store.execute("INSERT OR REPLACE INTO samples VALUES (?, ?)", (key, value))
        return samples

    async def _wait(self, task: asyncio.Task[list[Sample]]) -> list[Sample]:
        """Whoever stops waiting leaves the others their answer; when nobody waits any more, the work stops."""
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                task.cancel()

    async def close(self) -> None:
        self._store.close()
