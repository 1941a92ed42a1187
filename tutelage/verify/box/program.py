"""The program's side of an examination: it answers calls, and all that ever leaves it is data."""

import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from wire import Channel, Ended, decode, encode

FILE = "solution.py"
MAX_WORDS = 200  # characters of an error's message, and of a line
ACTS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "list": list,
    "len": len,
    "item": operator.getitem,
    "next": next,
    "bool": bool,
    "str": str,
}


def answer(channel: Channel, programs: list[str]) -> None:
    """Run the first program that is Python, then do what is asked until nobody asks any more."""
    kept: list[Any] = []

    def keep(thing: Any) -> int:
        known = next((number for number, other in enumerate(kept) if other is thing), None)
        if known is None:
            kept.append(thing)
        return len(kept) - 1 if known is None else known

    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    source = programs[-1]
    try:
        source, code = _compiled(programs)
        exec(code, module.__dict__)
        channel.send({"names": list(vars(module))})
        while True:
            request = channel.receive()
            try:
                reply = _done(request, module, kept, keep)
            except BaseException as error:  # SystemExit too
                reply = {"error": _described(error, source)}
            try:
                channel.send(reply)
            except (ValueError, RecursionError, MemoryError) as error:
                channel.send({"error": _described(error, source)})
    except Ended:
        return
    except BaseException as error:
        channel.send({"error": _described(error, source)})


def _compiled(programs: list[str]) -> tuple[str, types.CodeType]:
    for program in programs[:-1]:
        try:
            return program, compile(program, FILE, "exec")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
    return programs[-1], compile(programs[-1], FILE, "exec")


def _done(request: dict[str, Any], module: Any, kept: list[Any], keep: Callable[[Any], int]) -> dict[str, Any]:
    target = module if request["object"] is None else kept[request["object"]]
    given = decode(request["given"], kept.__getitem__)
    if act := ACTS.get(request["act"]):
        value = act(target, *given)
    else:
        value = target(*given, **decode(request["named"], kept.__getitem__))
    reply = {"value": encode(value, keep)}
    after = encode(given, keep)
    return reply if after == request["given"] else reply | {"changed": after}


def _described(error: BaseException, source: str) -> dict[str, Any]:
    """The error's type, what it says, and the line of the program that it comes from."""
    number, trace = getattr(error, "lineno", None), error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == FILE:
            number = trace.tb_lineno
        trace = trace.tb_next
    lines = source.splitlines()
    line = lines[number - 1].strip()[:MAX_WORDS] if isinstance(number, int) and 0 < number <= len(lines) else ""
    try:
        words = str(getattr(error, "msg", error))[:MAX_WORDS]
    except BaseException:
        words = ""
    return {"type": type(error).__name__, "words": words, "line": line}
