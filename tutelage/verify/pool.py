"""The client of the worker processes: started when first needed, ended when they take too long."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WORKERS = 2
LIMIT = 5.0  # seconds for one check
LOAD_LIMIT = 60.0  # seconds for a worker to start and import what the check needs
ROOT = Path(__file__).parents[2]


class Worker:
    """One process and the socket that is both its stdin and its stdout."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tutelage.verify.worker"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                # Threads of a BLAS nobody uses here would each reserve address space, which is limited.
                env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        self._received = b""

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The worker's reply. The clock for `limit` starts when the worker says so, after its imports."""
        try:
            deadline = time.monotonic() + LOAD_LIMIT
            self._socket.settimeout(LOAD_LIMIT)
            self._socket.sendall(json.dumps(request | {"limit": limit}, default=str).encode() + b"\n")
            reply = self._receive(deadline)
            return self._receive(time.monotonic() + limit) if "started" in reply else reply
        except BaseException:
            self.end()  # whatever happened, this worker is in the middle of something
            raise

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()  # first: a thread that waits for this worker wakes at the end of the stream
        self.process.wait()
        self._socket.close()

    def abandon(self) -> None:
        """Let go of another process's worker, which can then see its stdin end when that process ends."""
        self._socket.close()


class Pool:
    """At most `size` workers, shared by all threads of this process."""

    def __init__(self, size: int = WORKERS, limit: float = LIMIT) -> None:
        self._size, self._limit = size, limit
        self._workers: set[Worker] = set()
        self._forget()
        # A forked child holds copies of the sockets; using them, it would read its parent's verdicts.
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        for worker in self._workers:
            worker.abandon()
        self._workers = set()
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self._size)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's {"outcome", "why", "score"}; unparsed if a check cannot be finished. Never hangs or raises."""
        try:
            with self._borrowed() as worker:
                return worker.ask(request, self._limit)
        except TimeoutError:
            return {"outcome": "unparsed", "why": "timed out", "score": 0.0}
        except (OSError, ValueError) as failure:
            why = f"the verifier process died: {type(failure).__name__}"
            return {"outcome": "unparsed", "why": why, "score": 0.0}

    def close(self) -> None:
        """End all workers. The pool stays usable: the next check starts new ones."""
        with self._lock:
            workers, self._workers, self._idle = self._workers, set(), []
        for worker in workers:
            worker.end()

    @contextmanager
    def _borrowed(self) -> Iterator[Worker]:
        with self._slots:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
                if worker is None or not worker.alive:
                    self._workers -= {worker}
                    worker = Worker()
                    self._workers.add(worker)
            try:
                yield worker
            finally:
                with self._lock:
                    if worker.alive and worker in self._workers:
                        self._idle.append(worker)
                    else:
                        self._workers.discard(worker)
