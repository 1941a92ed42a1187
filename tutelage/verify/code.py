"""Programs as answers: found in a reply, examined in a sandbox, told what went wrong but not what was expected."""

import os
import re
import sys
import textwrap
import threading
from collections.abc import Mapping

from tutelage.problem import Problem, Verdict
from tutelage.verify import extract, sandbox

MAX_CHARS = 50_000
MAX_REPLY = 20 * MAX_CHARS  # a program may stand behind much else
FENCE = re.compile(  # possessive: a line that never ends is read once
    r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([\w+-]*+)[^\n`]*+\n(.*?)(?:^[ \t]*+\1[ \t]*+$|\Z)", re.M | re.S
)
LANGUAGES = ("python", "py", "python3", "")
BODY = re.compile(r"^[ \t]*(?:return|yield|raise)\b", re.M)
OUTSIDE = re.compile(r"^(?![ \t\n)\]}#@]|def |class |import |from )", re.M)  # prose, or a line of a next program

_slots = threading.Semaphore(os.cpu_count() or 1)
_told = threading.Lock()  # taken by whoever tells of walls that are not whole, and never given back


def _forget() -> None:
    global _slots
    _slots = threading.Semaphore(os.cpu_count() or 1)  # a forked child must not wait for its parent's threads


os.register_at_fork(after_in_child=_forget)


def check(problem: Problem, reply: str) -> Verdict:
    """Correct is a program that passes all tests; the score of any other is the share it passes."""
    meta = problem.meta
    if not meta.get("tests") or not meta.get("entry"):
        return Verdict("unparsed", None, "the problem has no tests to hold against a program")
    if len(reply) > MAX_REPLY:
        return Verdict("unparsed", reply[: extract.MAX_BARE], "too long")
    prompt, entry = str(meta.get("prompt", "")), str(meta["entry"])
    found, whole = program(reply, entry)
    if found is None:
        return Verdict("unparsed", None, "no program found")
    if len(found) > MAX_CHARS:
        return Verdict("unparsed", found[: extract.MAX_BARE], "too long")
    paper = {"entry": entry, "prompt": prompt, "setup": str(meta.get("setup", "")), "tests": str(meta["tests"])}
    with _slots:
        report = sandbox.examine(candidates(found, prompt, entry), paper)
    if report.gap and report.calls and _told.acquire(blocking=False):
        held = "limits and Python's own hooks hold mistakes, but no attacker (docs/guides/benchmarks.md)"
        print(f"tutelage: no walls around a program's {report.gap} here: {held}", file=sys.stderr)
    if report.unusable:
        return Verdict("unparsed", found, f"the tests could not be held: {report.unusable}")
    if not whole and (report.stopped or {}).get("type") in ("SyntaxError", "IndentationError"):
        return Verdict("unparsed", None, "no program found")
    if report.score == 1:
        return Verdict("correct", found)
    return Verdict("incorrect", found, _why(report, problem.question), report.score)


def program(reply: str, entry: str) -> tuple[str | None, bool]:
    """The program a reply settles on, and whether it was marked as one.

    In solution tags, else in the last fenced block that defines what is asked for, else in the last one, else all of a
    reply that defines it or goes on with its body.
    """
    text = extract.after_thinking(reply)
    tagged = extract.tagged_in(text)
    text = text if tagged is None else tagged
    blocks = [block[3] for block in FENCE.finditer(text) if block[2].lower() in LANGUAGES]
    if blocks:
        return next((block for block in reversed(blocks) if _defines(block, entry)), blocks[-1]).rstrip(), True
    if tagged is not None or _defines(text, entry) or BODY.search(text):
        return text.strip("\n").rstrip() or None, tagged is not None
    return None, False


def candidates(found: str, prompt: str, entry: str) -> list[str]:
    """What the program may be meant to be, the likeliest first: the prompt's helpers belong to each."""
    if _defines(found, entry) or not prompt:
        return [f"{prompt}\n\n{found}\n"]
    body = found[: cut.start()] if (cut := OUTSIDE.search(found)) else ""
    indented = textwrap.indent(textwrap.dedent(found), "    ")
    first, _, rest = found.partition("\n")
    meant = (found, body, indented, f"    {first.strip()}\n{rest}")  # the last: tags strip the first line
    return [prompt + text + "\n" for text in meant if text.strip()]


def _defines(text: str, entry: str) -> bool:
    return bool(
        re.search(rf"^[ \t]*(?:async\s+def|def|class)\s+{re.escape(entry)}\b|^{re.escape(entry)}\s*=", text, re.M)
    )


def _why(report: sandbox.Report, question: str) -> str:
    """What a program can be told of its failure: how it failed, and the call only where the question shows it.

    The message of an error is the program's own: one that puts its arguments there is shown them.
    """
    total, right = len(report.calls), len(report.passed - report.failed.keys())
    if not report.failed:
        return f"{_met(report.stopped or {})}; {right} of {total} tests passed"
    number = min(report.failed)
    call = report.calls[number]
    shown = call and _squeezed(call) in _squeezed(question)
    which = f"test {number + 1}" + (f", {call}," if shown else "")
    return f"{right} of {total} tests passed; {which}: {_met(report.failed[number])}"


def _met(error: Mapping[str, str]) -> str:
    kind, words, line = (error.get(part, "") for part in ("type", "words", "line"))
    if kind == "AssertionError" and not line:
        return "the result is wrong"
    told = ": ".join(part for part in (kind, " ".join(words.split())) if part)
    return f"{told} (in the line: {line})" if line else told


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text).replace('"', "'")
