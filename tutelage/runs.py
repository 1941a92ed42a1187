"""One folder for each run: its config, its episodes as they end, its metrics. The same command finds it again."""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tutelage.errors import ConfigError
from tutelage.files import lock, point, write
from tutelage.lessons.episode import Episode


class Run:
    """A context: locked while open, so that two processes never write one run."""

    def __init__(self, results: Path, name: str, config: Mapping[str, Any], identity: Mapping[str, Any]):
        """`identity` is what the numbers depend on: it names the folder, so a changed model is another run."""
        text = json.dumps(identity, sort_keys=True, default=str)
        self.folder = results / f"{name}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
        self.config = config
        self.episodes: dict[str, Episode] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._stack.enter_context(lock(self.folder / ".lock", wait=False))
        except BlockingIOError:
            raise ConfigError(
                f"another process is writing {self.folder}: wait for it, or add results_dir=elsewhere"
            ) from None
        write(self.folder / "config.yaml", yaml.safe_dump(dict(self.config), sort_keys=False))
        point(self.folder.parent / "latest_run", self.folder)
        self.episodes = {episode.uid: episode for episode in self._recover()}
        # Unbuffered: a line that was written is on its way to the disk before the next one is asked for.
        self._file = self._stack.enter_context(self._path.open("ab", buffering=0))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def _path(self) -> Path:
        return self.folder / "episodes.jsonl"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.json"

    def _recover(self) -> list[Episode]:
        """What an earlier process finished; a line it was killed in is cut off."""
        if not self._path.is_file():
            return []
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._path, len(whole))
        return [Episode.from_json(line) for line in whole.decode().splitlines()]

    def reset(self) -> None:
        """Forget the episodes and metrics of an earlier run."""
        os.truncate(self._path, 0)
        self.metrics.unlink(missing_ok=True)
        self.episodes.clear()

    def add(self, episode: Episode) -> None:
        line = f"{episode.to_json()}\n".encode()
        size = self._path.stat().st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._path, size)
            raise
        self.episodes[episode.uid] = episode

    def finish(self, metrics: Mapping[str, Any]) -> None:
        os.fsync(self._file.fileno())
        write(self.metrics, json.dumps(metrics, indent=2) + "\n")
