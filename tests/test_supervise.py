"""Nothing of a run stays behind, however it ends; what is not the run's own stays."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tutelage.supervise import MARK, Run, marked, sweep

# Starts a child that leaves for a session of its own and ignores all polite requests.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write("ready")
time.sleep(60)
"""

OWNER = """
import sys, time
from tutelage.supervise import Run
with Run(grace=0.5) as run:
    run.start([sys.executable, "-c", sys.argv[1], sys.argv[2]])
    print(run.mark, flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def wait(condition: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.02)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process with another run's mark."""
    process = subprocess.Popen(["sleep", "60"], env=os.environ | {MARK: "somebody-else"})
    yield process
    process.kill()
    process.wait()


def test_closing_ends_grandchildren_in_their_own_sessions(tmp_path: Path, stranger: subprocess.Popen[bytes]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Run(grace=0.3) as run:
        run.start([sys.executable, "-c", STUBBORN, str(tmp_path / "ready")])
        wait((tmp_path / "ready").exists)
        assert len(marked(run.mark)) == 3
    assert marked(run.mark) == []
    assert signal.getsignal(signal.SIGINT) == before
    assert stranger.poll() is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_the_owner_ends_all(how: signal.Signals, tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, STUBBORN, str(tmp_path / "ready")], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    mark = owner.stdout.readline().strip()
    wait((tmp_path / "ready").exists)
    owner.send_signal(how)
    owner.wait(timeout=10)
    wait(lambda: not marked(mark))


def test_who_leaves_politely_is_not_killed(tmp_path: Path) -> None:
    polite = 'trap \'echo bye > "$0"; exit\' TERM; touch "$0.up"; while :; do sleep 0.05; done'
    process = subprocess.Popen(["bash", "-c", polite, str(tmp_path / "said")], env=os.environ | {MARK: "polite"})
    wait((tmp_path / "said.up").exists)
    sweep("polite", grace=5)
    process.wait()
    assert (tmp_path / "said").read_text() == "bye\n"
