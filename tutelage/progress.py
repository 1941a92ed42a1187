"""A progress bar with rate and ETA on a terminal; a line now and then in a log."""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

EVERY_SECONDS = 15.0


class Progress:
    """Counts items and the tokens they took."""

    def __init__(self, what: str, total: int, done: int = 0):
        self.what, self.total, self.done, self.tokens = what, total, done, 0
        self.first = done
        self.console = Console(stderr=True)
        self.bar = Bar(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self) -> Self:
        self.began = self.spoke = time.monotonic()
        if self.done:
            print(f"{self.done} of {self.total} {self.what} were done before; going on", file=sys.stderr)
        if self.console.is_terminal:
            self.bar.start()
            self.task = self.bar.add_task(self.what, total=self.total, completed=self.done, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def advance(self, tokens: int = 0) -> None:
        self.done += 1
        self.tokens += tokens
        now = time.monotonic()
        if self.console.is_terminal:
            self.bar.update(self.task, completed=self.done, rate=self._rate(now))
        elif now - self.spoke > EVERY_SECONDS or self.done == self.total:
            self.spoke = now
            left = (self.total - self.done) * (now - self.began) / (self.done - self.first)
            line = f"{self.done}/{self.total} {self.what}, {self._rate(now)}, {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)

    def _rate(self, now: float) -> str:
        seconds = max(1e-9, now - self.began)
        spoken = f", {self.tokens / seconds:.0f} tokens/s" if self.tokens else ""
        return f"{(self.done - self.first) / seconds:.2f} {self.what}/s{spoken}"
