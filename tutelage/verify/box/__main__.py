"""One examination, watched from its beginning to its end: python -s -S -P box TESTS < PLAN > RESULTS

This process only waits. Its child holds the tests (and is the first process of its own namespace, so that all ends
with it); its grandchild is the program, which never sees the tests, the results or the plan's other half.
"""

import json
import os
import signal
import sys
from typing import Any

import walls
from exam import examine
from program import answer
from wire import Channel

TIME_OUT = 124


def main() -> int:
    plan = json.load(sys.stdin)
    paths = [path for path in sys.path[1:] if os.path.isdir(path)]
    del sys.path[0]  # this folder, which nobody inside will need or find
    walls.adopt()
    apart = plan["walls"] and walls.part()
    user = walls.STRANGER + os.getpid()
    child = os.fork()
    if not child:
        _inside(plan, paths, user, apart, int(sys.argv[1]))
    for descriptor in (0, 1, int(sys.argv[1])):
        os.close(descriptor)
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, plan["wall"])
    try:
        os.waitpid(child, 0)
        return 0
    except TimeoutError:
        return TIME_OUT
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _end_all()


def _late(*_: Any) -> None:
    raise TimeoutError


def _inside(plan: dict[str, Any], paths: list[str], user: int, apart: bool, tests: int) -> None:
    """Never returns. First the walls, then the program is let go of, and only then the tests are read."""
    try:
        results, nowhere = os.dup(1), os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        os.chdir(plan["folder"])
        folder = "/" if apart and walls.enclose(plan["folder"], paths) else plan["folder"]
        walls.drop(user)
        to_tests, from_program = os.pipe()
        to_program, from_tests = os.pipe()
        program = os.fork()
        theirs = (to_tests, from_tests, results, tests) if not program else (to_program, from_program)
        for descriptor in theirs:
            os.close(descriptor)
        walls.tie()
        # Without a namespace nothing would end a child that hides, so there must be none.
        walls.limit(plan["seconds"], plan["memory"], walls.PROCESSES if apart else 0)
        if plan["belt"]:
            walls.buckle(folder, paths)
        if not program:
            answer(Channel(to_program, from_program), plan["programs"])
            os._exit(0)
        os.write(results, json.dumps(["walls", -1, [apart, folder == "/"]]).encode() + b"\n")
        with os.fdopen(tests, encoding="utf-8") as paper:
            examine(Channel(to_tests, from_tests), program, json.load(paper), results)
    finally:
        os._exit(0)


def _end_all() -> None:
    """Nothing of this examination stays: our children are ended until there are none, orphans among them."""
    while True:
        for folder in os.listdir("/proc"):
            if folder.isdigit() and _parent(folder) == os.getpid():
                os.kill(int(folder), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    os._exit(main())
