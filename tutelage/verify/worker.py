"""A process for what may hang or run out of memory: JSON lines in on stdin, JSON lines out on stdout.

    {"kind": "math", "gold": "…", "answer": "…", "limit": 5.0}
    {"kind": "task", "task": "…", "entry": {…}, "answer": "…", "limit": 5.0}

is answered with {"started": true} once imports are done, then {"outcome": "…", "why": "…", "score": 0.5}.
"""

import json
import os
import re
import resource
import signal
import sys
from typing import Any, TextIO

from tutelage.problem import Outcome

MEMORY = 4 << 30  # bytes of address space, imports included (they need 0.3 GiB)
# Some of Reasoning Gym's scorers eval() the answer, and sympy's text parser does. This is a belt, not a jail.
FORBIDDEN = re.compile(
    r"os\.(system|exec|posix_spawn|fork|forkpty|kill|killpg|remove|rename|rmdir|mkdir|truncate|chmod|link|symlink)"
    r"|subprocess\.Popen|shutil\..*|socket\.(connect|bind)"
)


def main() -> None:
    # Libraries print, and eval("input()") reads: keep the pipes to ourselves and leave them /dev/null.
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_forbid)
    for line in requests:
        outcome, why, score = _answer(json.loads(line), replies)
        _send(replies, {"outcome": outcome, "why": why, "score": score})


def _answer(request: dict[str, Any], replies: TextIO) -> tuple[Outcome, str, float]:
    try:
        if request["kind"] == "task":
            from tutelage.verify import tasks

            tasks.scorer(request["task"])
        else:
            from tutelage.verify import symbolic
        _send(replies, {"started": True})
        # The default action of SIGALRM ends us even inside C code: an orphan never outlives its check.
        signal.setitimer(signal.ITIMER_REAL, request["limit"] + 1.0)
        if request["kind"] == "task":
            return tasks.judge(request["task"], request["entry"], request["answer"])
        outcome, why = symbolic.judge(request["gold"], request["answer"])
        return outcome, why, float(outcome == "correct")
    except Exception as failure:
        return "unparsed", f"{type(failure).__name__}: {failure}"[:200], 0.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _send(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def _forbid(event: str, args: tuple[Any, ...]) -> None:
    # `open` carries (path, mode, flags). The import system takes PermissionError for an unwritable cache.
    if FORBIDDEN.fullmatch(event) or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        raise PermissionError(f"{event} is not allowed in a verifier")


if __name__ == "__main__":
    main()
