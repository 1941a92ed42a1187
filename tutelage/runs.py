"""One folder for each run: its config, its episodes as they end, its metrics. The same command finds it again."""

import contextlib
import errno
import hashlib
import json
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tutelage.errors import ConfigError, PromptTooLong, Refused
from tutelage.files import lock, point, write
from tutelage.lessons.episode import Episode


class Skipped:
    """Problems on which no lesson could be held: a run goes on without them, and names them."""

    def __init__(self) -> None:
        self.too_long: dict[str, str] = {}  # why, by problem
        self.refused: dict[str, str] = {}
        self.ended: list[str] = []  # why lessons ended early

    @contextlib.contextmanager
    def over(self, uid: str) -> Iterator[None]:
        """A lesson on this problem: if it cannot be held, it is left out."""
        try:
            yield
        except PromptTooLong as error:
            self.too_long.setdefault(uid, str(error))
        except Refused as error:
            self.refused.setdefault(uid, str(error))

    def note(self, episode: Episode) -> None:
        """A dialogue that an endpoint would not go on with counts, and the user is told."""
        if why := episode.meta.get("refused"):
            self.ended.append(why)

    def report(self) -> dict[str, list[str]]:
        """The problems by reason; the user reads of them here."""
        if self.ended:
            print(f"{len(self.ended)} dialogues ended early, refused ({self.ended[0]})", file=sys.stderr)
        for words, why in (("too long for a context", self.too_long), ("refused", self.refused)):
            if why:
                first = next(iter(why.values()))
                print(f"{len(why)} problems left out, {words}: {', '.join(sorted(why))} ({first})", file=sys.stderr)
        return {"too_long": sorted(self.too_long), "refused": sorted(self.refused)}


class Run:
    """A context: locked while open, so that two processes never write one run."""

    def __init__(
        self,
        results: Path,
        name: str,
        config: Mapping[str, Any],
        identity: Mapping[str, Any],
        overwrite: bool = False,
        key: Callable[[Episode], Hashable] = lambda episode: episode.uid,
    ):
        """`identity` is what the numbers depend on: it names the folder, so a changed model is another run.

        `key` tells lessons apart: by their problem, where each has one.
        """
        text = json.dumps(identity, sort_keys=True, default=str)
        self.folder = results / f"{name}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
        self.config, self.overwrite, self.key = config, overwrite, key
        self.done: set[Hashable] = set()  # the lessons that were held, by their keys

    def __enter__(self) -> "Run":
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock(self.folder / ".lock", wait=False))
            except BlockingIOError:
                raise ConfigError(
                    f"another process is writing {self.folder}: wait for it, or add results_dir=elsewhere"
                ) from None
            write(self.folder / "config.yaml", yaml.safe_dump(dict(self.config), sort_keys=False))
            point(self.folder.parent / "latest_run", self.folder)
            if self.overwrite:
                self._path.unlink(missing_ok=True)
                self.metrics.unlink(missing_ok=True)
            self._mend()
            self.done = {self.key(episode) for episode in self.episodes()}
            # Unbuffered: a line that was written is on its way to the disk before the next one is asked for.
            self._file = stack.enter_context(self._path.open("ab", buffering=0))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def _path(self) -> Path:
        return self.folder / "episodes.jsonl"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.json"

    def _mend(self) -> None:
        """Cut off a line that an earlier process was killed in."""
        if self._path.is_file():
            with self._path.open("r+b") as file:
                end = file.seek(0, os.SEEK_END)
                while end and (file.seek(end - 1), file.read(1))[1] != b"\n":
                    end -= 1
                file.truncate(end)

    def episodes(self) -> Iterator[Episode]:
        """The lessons of this run, read from the disk one by one: they hold every token and would fill the memory."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield Episode.from_json(line.decode())
                except (ValueError, KeyError, TypeError) as error:
                    raise ConfigError(f"{self._path} is damaged at line {number}: add overwrite=true") from error

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
        self.done.add(self.key(episode))

    def finish(self, metrics: Mapping[str, Any]) -> None:
        os.fsync(self._file.fileno())
        write(self.metrics, json.dumps(metrics, indent=2) + "\n")
