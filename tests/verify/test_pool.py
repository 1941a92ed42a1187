"""A check that hangs, a worker that dies and a parent that dies: none of them stops the rest."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tutelage.verify.pool import Pool

EASY = {"kind": "math", "gold": "x+1", "answer": "1+x"}
HANGS = {"kind": "math", "gold": "1", "answer": "9^{9^{9^{9^9}}}"}
CORRECT = {"outcome": "correct", "why": "", "score": 1.0}


@pytest.fixture
def pool():
    pool = Pool(size=1, limit=1.0)
    yield pool
    pool.close()


def only_worker(pool: Pool):
    (worker,) = pool._workers
    return worker.process


def gone(pid: int, within: float = 5.0) -> bool:
    """Has the process ended? A zombie counts as one that has not."""
    deadline = time.monotonic() + within
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_hanging_check_times_out_and_the_next_one_is_answered(pool):
    assert pool.ask(EASY) == CORRECT
    hanging = only_worker(pool).pid
    start = time.monotonic()
    assert pool.ask(HANGS) == {"outcome": "unparsed", "why": "timed out", "score": 0.0}
    assert time.monotonic() - start < 3
    assert gone(hanging)
    assert pool.ask(EASY) == CORRECT


def test_a_worker_killed_while_idle_is_replaced(pool):
    assert pool.ask(EASY) == CORRECT
    killed = only_worker(pool).pid
    os.kill(killed, signal.SIGKILL)
    time.sleep(0.1)
    assert pool.ask(EASY) == CORRECT
    assert only_worker(pool).pid != killed and gone(killed)


def test_a_worker_killed_while_busy_leaves_its_check_unparsed(pool):
    pool.ask(EASY)
    with ThreadPoolExecutor() as threads:
        check = threads.submit(pool.ask, HANGS)
        time.sleep(0.3)
        os.kill(only_worker(pool).pid, signal.SIGKILL)
        assert check.result(timeout=5)["outcome"] == "unparsed"
    assert pool.ask(EASY) == CORRECT


def test_close_wakes_those_who_wait_and_leaves_no_process(pool):
    pool.ask(EASY)
    pid = only_worker(pool).pid
    with ThreadPoolExecutor() as threads:
        check = threads.submit(pool.ask, HANGS)
        time.sleep(0.3)
        pool.close()
        assert check.result(timeout=5)["outcome"] == "unparsed"
    assert gone(pid) and not pool._workers


def test_many_threads_share_the_workers_and_get_their_own_verdicts():
    pool = Pool(size=2)

    def right(number: int) -> bool:
        outcome = pool.ask({"kind": "math", "gold": "x+3", "answer": f"x+{number % 5}"})["outcome"]
        return (outcome == "correct") is (number % 5 == 3)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(right, range(40)))
    assert len(pool._workers) <= 2
    pool.close()


def test_a_forked_child_starts_workers_of_its_own(pool):
    assert pool.ask(EASY) == CORRECT
    parents = only_worker(pool).pid
    child = os.fork()
    if child == 0:
        fine = pool.ask(EASY) == CORRECT and only_worker(pool).pid != parents
        pool.close()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.ask(EASY) == CORRECT and only_worker(pool).pid == parents


PARENT = """
import sys, threading, time
from tutelage.verify.pool import Pool
pool = Pool(limit=2.0)
pool.ask({"kind": "math", "gold": "x+1", "answer": "1+x"})
if sys.argv[1] == "busy":
    hangs = {"kind": "math", "gold": "1", "answer": "9^{9^{9^{9^9}}}"}
    threading.Thread(target=pool.ask, args=[hangs]).start()
    time.sleep(0.3)
print(*[worker.process.pid for worker in pool._workers], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("state", ["idle", pytest.param("busy", marks=pytest.mark.slow)])
def test_workers_do_not_outlive_a_killed_parent(state):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, state],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    with parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    assert gone(worker, within=6)
