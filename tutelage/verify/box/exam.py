"""The tests' side of an examination: it calls the program and judges, and nothing of the program runs here."""

import ast
import builtins
import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from wire import NONSENSE, Channel, Ended, decode, encode

MAX_WORDS = 200  # of whatever the program says of itself
Note = Callable[..., None]


def examine(channel: Channel, program: int, paper: dict[str, str], results: int) -> None:
    """Hold the tests of `paper` against the program, and write how each went, line by line."""
    noted: set[tuple[Any, ...]] = set()

    def note(event: str, number: int = -1, error: Any = None) -> None:
        if (event, number) not in noted:  # a test in a loop is one test
            noted.add((event, number))
            os.write(results, json.dumps([event, number, error]).encode() + b"\n")

    entry = paper["entry"]
    try:
        own: dict[str, Any] = {"__name__": "tests"}
        exec(compile(paper["prompt"], "prompt.py", "exec"), own)
        numbering = Numbering(entry)
        setup = ast.parse(paper["setup"])
        tests = ast.fix_missing_locations(numbering.visit(ast.parse(paper["tests"])))
        used = {part.id for tree in (setup, tests) for part in ast.walk(tree) if isinstance(part, ast.Name)}
        steps = [compile(tree, "tests.py", "exec") for tree in (setup, tests)]
    except Exception as error:
        return note("unusable", error=f"{type(error).__name__}: {error}"[:MAX_WORDS])
    note("tests", len(numbering.calls), numbering.calls)
    link = Link(channel, program)
    try:
        names = link.names()
        if entry not in names:
            raise Failed({"type": "", "words": f"it defines no {entry}", "line": ""})
        for name in used | {entry}:
            # Names that are everybody's, the tests' own or a module's are not the program's to give.
            if name in sys.stdlib_module_names and name not in own:
                own[name] = importlib.import_module(name)
            elif name == entry or (name in names and name not in own and not hasattr(builtins, name)):
                own[name] = link.ask(None, "get", name)
    except Failed as failed:
        return note("stopped", error=failed.described)
    own["__test__"] = lambda number: Test(number, note)
    try:
        for step in steps:
            exec(step, own)
    except Unusable as error:
        return note("unusable", error=str(error))
    except Exception as error:
        if isinstance(error, ImportError) and not isinstance(error, Failed):
            return note("unusable", error=f"{error}"[:MAX_WORDS])
        return note("stopped", error=described(error))
    note("done")


class Numbering(ast.NodeTransformer):
    """Every `assert` becomes a test of its own, so that one that fails does not hide those behind it."""

    def __init__(self, entry: str) -> None:
        self.entry, self.calls = entry, list[str]()  # the call that each test makes, as it is written

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if isinstance(node.test, ast.Constant):
            return node  # proves nothing
        calls = (part for part in ast.walk(node.test) if isinstance(part, ast.Call))
        made = next((call for call in calls if ast.unparse(call.func) in (self.entry, "candidate")), None)
        self.calls.append(f"{self.entry}({', '.join(map(ast.unparse, made.args))})" if made else "")
        number = ast.Constant(len(self.calls) - 1)
        held = ast.withitem(ast.Call(ast.Name("__test__", ast.Load()), [number], []))
        return ast.copy_location(ast.With([held], [node]), node)


class Test:
    """Notes how one assertion went; the tests go on in any case."""

    def __init__(self, number: int, note: Note) -> None:
        self._number, self._note = number, note

    def __enter__(self) -> None:
        self._note("begun", self._number)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            self._note("passed", self._number)
        elif isinstance(error, Exception):
            self._note("failed", self._number, described(error))
        return isinstance(error, Exception)


class Failed(Exception):
    """A call raised on the program's side, or found nobody there."""

    described: dict[str, str]

    def __init__(self, described: dict[str, str]) -> None:
        Exception.__init__(self, described["type"])  # not that of a ValueError or the like that it may be as well
        self.described = described


class Unusable(BaseException):
    """The tests ask for what cannot be done here. No program is to blame, so no test may catch it as a failure."""


def described(error: Exception) -> dict[str, str]:
    """An error of the tests' own has no words: an assertion's message may tell what was expected."""
    return getattr(error, "described", None) or {"type": type(error).__name__, "words": "", "line": ""}


class Link:
    """Asks the program's side."""

    def __init__(self, channel: Channel, program: int) -> None:
        self._channel, self._program, self._over = channel, program, ""

    def ask(self, number: int | None, act: str, *given: Any, **named: Any) -> Any:
        request = {"object": number, "act": act, "given": encode(list(given), _number), "named": encode(named, _number)}
        reply = self._exchange(request)
        try:
            for mine, theirs in zip(given, decode(reply.get("changed", ["list"]), self._thing), strict=False):
                _update(mine, theirs)
            return decode(reply["value"], self._thing)
        except (LookupError, TypeError, ValueError, RecursionError):
            raise Failed({"type": "", "words": NONSENSE, "line": ""}) from None

    def names(self) -> list[str]:
        """What the program defines, once it has run."""
        return list(map(str, self._exchange(None)["names"]))

    def _exchange(self, request: Any) -> dict[str, Any]:
        try:
            if self._over:
                raise Ended
            if request is not None:
                self._channel.send(request)
            reply = self._channel.receive()
        except Ended as ended:
            self._over = self._over or str(ended) or self._how()
            raise Failed({"type": "", "words": self._over, "line": ""}) from None
        if not isinstance(reply, dict) or "error" in reply:
            raise _failure(reply)
        return reply

    def _thing(self, number: Any) -> "Remote":
        return Remote(self, int(number))

    def _how(self) -> str:
        """How the program's process ended."""
        for _ in range(50):
            done, status = os.waitpid(self._program, os.WNOHANG)
            if done and os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
                stopped = number in (signal.SIGXCPU, signal.SIGKILL)
                return "it ran out of time" if stopped else f"it crashed with {signal.Signals(number).name}"
            if done:
                break
            time.sleep(0.01)
        return "it ended before it answered"


def _failure(reply: Any) -> Failed:
    """An exception that tests may expect: a Failed that is a ValueError too, if that is what was raised."""
    error = reply.get("error") if isinstance(reply, dict) else None
    error = error if isinstance(error, dict) else {}
    told = {part: _readable(error.get(part, "")) for part in ("type", "words", "line")}
    meant = getattr(builtins, told["type"], None)
    if isinstance(meant, type) and issubclass(meant, Exception):
        with contextlib.suppress(TypeError):  # a few cannot be made like this
            made: Any = type(told["type"], (Failed, meant), {})
            return made(told)
    return Failed(told)


def _readable(words: Any) -> str:
    """Half a character, which a program may well say, could be written to no file."""
    return str(words)[:MAX_WORDS].encode("utf-8", "replace").decode()


class Remote:
    """Something that lives on the program's side. It equals nothing else: that would be the program's own word."""

    def __init__(self, link: Link, number: int) -> None:
        vars(self).update(_link=link, _number=number)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._link.ask(self._number, "call", *given, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._link.ask(self._number, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask(self._number, "set", name, value)

    def __iter__(self) -> Any:
        return iter(self._link.ask(self._number, "list"))

    def __len__(self) -> Any:
        return self._link.ask(self._number, "len")

    def __getitem__(self, key: Any) -> Any:
        return self._link.ask(self._number, "item", key)

    def __next__(self) -> Any:
        return self._link.ask(self._number, "next")

    def __bool__(self) -> Any:
        return self._link.ask(self._number, "bool")

    def __str__(self) -> Any:
        return self._link.ask(self._number, "str")


def _number(thing: Any) -> int:
    if isinstance(thing, Remote):
        return vars(thing)["_number"]
    raise Unusable(f"a {type(thing).__name__} cannot be given to a program")


def _update(mine: Any, theirs: Any) -> None:
    """What the program did to a list, a queue, a dictionary or a set that it was given."""
    if type(mine) is type(theirs) and isinstance(mine, list | deque | dict | set):
        mine.clear()
        (mine.extend if isinstance(mine, list | deque) else mine.update)(theirs)
