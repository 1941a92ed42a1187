"""Programs nobody vouches for, examined by tests in a sandbox: a fresh one for every examination."""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 5.0  # of processor time; on a busy machine the clock on the wall is no judge
PATIENCE = 3  # times as long may pass on the wall
MEMORY = 512 << 20  # bytes of address space
GRACE = 20.0  # for a busy machine to start a process and to end it
BOX = Path(__file__).parent / "box"
TIME_OUT = 124


@dataclass
class Report:
    """How an examination went: which tests passed, what each other one met, and why it stopped, if it did."""

    calls: list[str] = field(default_factory=list)  # what each test calls, as far as it can be told
    passed: set[int] = field(default_factory=set)
    failed: dict[int, dict[str, str]] = field(default_factory=dict)
    stopped: dict[str, str] | None = None
    unusable: str = ""  # the tests themselves are broken, or could not be held
    walls: tuple[bool, bool] = (False, False)  # processes and network apart; files apart

    @property
    def score(self) -> float:
        """The share of tests that passed; whoever stops the tests behind the last one fails one more."""
        right = len(self.passed - self.failed.keys())
        return right / (len(self.calls) + (self.stopped is not None and right == len(self.calls)))

    @property
    def gap(self) -> str:
        """What no wall stood around."""
        return " and ".join(
            what for what, apart in zip(("processes and network", "files"), self.walls, strict=True) if not apart
        )


def examine(
    programs: Sequence[str],
    paper: Mapping[str, str],
    seconds: float = SECONDS,
    walls: bool = True,
    belt: bool = True,
) -> Report:
    """Hold the tests of `paper` (entry, prompt, setup, tests) against the first of the programs that is Python."""
    with tempfile.TemporaryDirectory(prefix="tutelage-", ignore_cleanup_errors=True) as folder:
        if os.geteuid() == 0:
            os.chmod(folder, 0o777)  # inside, it is used by a user without a name
        plan = {
            "programs": list(programs),
            "folder": os.path.realpath(folder),
            "seconds": math.ceil(seconds),
            "wall": PATIENCE * seconds,
            "memory": MEMORY,
            "walls": walls,
            "belt": belt,
        }
        try:
            ended, lines = _run(plan, paper, PATIENCE * seconds + GRACE)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Report(unusable=f"the sandbox failed: {type(error).__name__}")
    return _report(ended, lines)


def _run(plan: Mapping[str, Any], paper: Mapping[str, str], wait: float) -> tuple[int, bytes]:
    with _file(plan) as plan_file, _file(paper) as paper_file:
        # The environment is ours alone, so it may be read: sets then have one order, and verdicts repeat.
        environment = {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", "-X", "utf8", str(BOX), str(paper_file.fileno())],
            stdin=plan_file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=[paper_file.fileno()],
            start_new_session=True,
        )
        with process:
            try:
                lines, _ = process.communicate(timeout=wait)
                return process.returncode, lines
            except BaseException:
                process.kill()  # what is inside ends with it
                raise


def _file(content: Mapping[str, Any]) -> Any:
    """A file without a name, to be read from its beginning."""
    file = os.fdopen(os.memfd_create("tutelage"), "w+", encoding="utf-8")
    json.dump(content, file)
    file.seek(0)
    return file


def _report(ended: int, lines: bytes) -> Report:
    report, begun, done = Report(), -1, False
    for line in lines.splitlines():
        try:
            heard = json.loads(line)
        except ValueError:  # killed in the middle of a line
            break
        event, number, what = heard
        match event:
            case "walls":
                report.walls = tuple(what)
            case "tests":
                report.calls = what
            case "begun":
                begun = number
            case "passed":
                report.passed.add(number)
            case "failed":
                report.failed[number] = what
            case "stopped":
                report.stopped = what
            case "unusable":
                report.unusable = what
            case "done":
                done = True
    if not report.unusable and not report.calls:
        report.unusable = "there are no tests" if done else "the sandbox did not start"
    elif not done and not report.unusable and report.stopped is None:
        told = {"type": "", "words": "it ran out of time" if ended == TIME_OUT else "the tests broke off", "line": ""}
        report.stopped = told
        if begun >= 0 and begun not in report.passed:
            report.failed.setdefault(begun, told)
    return report
