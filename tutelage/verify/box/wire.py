"""Values between two processes that do not trust each other: plain data crosses, objects stay where they are."""

import builtins
import importlib
import json
import os
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_BYTES = 8 << 20  # of one message
NONSENSE = "it talks nonsense"
SMALL = 1 << 53  # larger integers cross in hexadecimal, which takes no quadratic time to read
SERIES = {kind.__name__: kind for kind in (list, tuple, set, frozenset, deque)}
# What else is data: its module, which need not be loaded as long as nobody uses it, and what it is made from.
MADE = {
    "range": ("builtins", "start stop step"),
    "slice": ("builtins", "start stop step"),
    "Fraction": ("fractions", "numerator denominator"),
    "datetime": ("datetime", "year month day hour minute second microsecond"),
    "date": ("datetime", "year month day"),
    "timedelta": ("datetime", "days seconds microseconds"),
    "Decimal": ("decimal", ""),  # from its text
}

Keep = Callable[[Any], int]
Find = Callable[[int], Any]


class Ended(Exception):
    """The other side is gone, or does not keep to the protocol: then its words say so."""


class Channel:
    """Whole messages over a pair of file descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing

    def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        if len(body) > MAX_BYTES:
            raise ValueError("too large a value")
        view = memoryview(struct.pack("<I", len(body)) + body)
        try:
            while view:
                view = view[os.write(self._writing, view) :]
        except OSError:
            raise Ended from None

    def receive(self) -> Any:
        (length,) = struct.unpack("<I", self._exactly(4))
        if length > MAX_BYTES:
            raise Ended(NONSENSE)
        try:
            return json.loads(self._exactly(length))
        except (ValueError, RecursionError):
            raise Ended(NONSENSE) from None

    def _exactly(self, length: int) -> bytes:
        received = b""
        while len(received) < length:
            chunk = os.read(self._reading, length - len(received))
            if not chunk:
                raise Ended
            received += chunk
        return received


def encode(value: Any, keep: Keep) -> Any:
    """As JSON. Subclasses become what they are made of; what is not data is kept, and its number crosses."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value) if -SMALL < value < SMALL else ["int", hex(value)]
        case float():
            return float(value)
        case complex():
            return ["complex", value.real, value.imag]
        case bytes() | bytearray():
            return ["bytes", bytes(value).hex()]
        case list() | tuple() | set() | frozenset() | deque():
            name = next(name for name, kind in SERIES.items() if isinstance(value, kind))
            return [name, *(encode(item, keep) for item in value)]
        case dict():
            return ["dict", *([encode(key, keep), encode(item, keep)] for key, item in value.items())]
        case type() if getattr(builtins, (name := value.__name__), None) is value:
            return ["type", name]
    for name, (module, parts) in MADE.items():
        kind = getattr(sys.modules.get(module), name, None)
        if kind and isinstance(value, kind) and getattr(value, "tzinfo", None) is None:
            made = [getattr(value, part) for part in parts.split()] or [str(value)]
            return [name, *(encode(part, keep) for part in made)]
    return ["object", keep(value)]


def decode(data: Any, find: Find) -> Any:
    """What `encode` gave; anything else is a ValueError, so that a liar gains nothing."""
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("not a value")
        return data
    kind, *items = data
    match kind:
        case "list" | "tuple" | "set" | "frozenset" | "deque":
            return SERIES[kind](decode(item, find) for item in items)
        case "dict":
            return {decode(key, find): decode(item, find) for key, item in items}
        case "int":
            return int(items[0], 16)
        case "complex":
            return complex(*items)
        case "bytes":
            return bytes.fromhex(items[0])
        case "type" if isinstance(getattr(builtins, items[0], None), type):
            return getattr(builtins, items[0])
        case "object":
            return find(items[0])
        case str() if kind in MADE:
            try:
                return getattr(importlib.import_module(MADE[kind][0]), kind)(*(decode(item, find) for item in items))
            except ArithmeticError:
                pass  # no such number, no such day
    raise ValueError("not a value")
