"""Processes that belong to one run: whatever happens to it, none of them stays, and nobody else's is touched.

Every process of a run carries the run's mark in its environment, and so does all that it starts, wherever it may
hide from process groups and sessions. A guard of its own outlives the run and ends what is marked, even when the run
itself was killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

MARK = "TUTELAGE_RUN"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 20.0  # seconds to leave politely


class Run:
    """Starts processes and answers for their end."""

    def __init__(self, grace: float = GRACE):
        self.mark, self.grace = uuid.uuid4().hex, grace
        # The guard reads from us until we are gone, in whatever way.
        self._guard = subprocess.Popen(
            [sys.executable, __file__, self.mark, str(grace)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # the Ctrl-C that ends us must not end it
            env={name: value for name, value in os.environ.items() if name != MARK},
        )

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, log: IO[bytes] | None = None
    ) -> "subprocess.Popen[bytes]":
        """A process with our mark, in a session of its own: signals reach it through us only."""
        return subprocess.Popen(
            argv,
            # vLLM renames its processes, and that would wipe what they carry.
            env={**(os.environ if environment is None else environment), MARK: self.mark, "SPT_NOENV": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,
        )

    def close(self) -> None:
        """End everything that is ours, then the guard; further signals must not stop us half-way."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
        sweep(self.mark, self.grace)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        for number, handler in before.items():
            signal.signal(number, handler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def marked(mark: str) -> list[int]:
    """The living processes with a mark; ones that only wait to be collected by their parent do not count."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue  # somebody else's, or gone meanwhile
    return found


def sweep(mark: str, grace: float) -> None:
    """Ask all with the mark to leave, and after a while make them."""
    deadline = time.monotonic() + grace
    asked: set[int] = set()
    while alive := marked(mark):
        late = time.monotonic() > deadline
        for process in alive:
            if late or process not in asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
            asked.add(process)
        time.sleep(0.05)


def guard(mark: str, grace: float) -> None:
    """Wait for the end of the process that holds the other side of our input."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    for _ in range(2):  # one that was just being started may show a moment later
        sweep(mark, grace)
        time.sleep(0.5)


if __name__ == "__main__":
    guard(sys.argv[1], float(sys.argv[2]))
