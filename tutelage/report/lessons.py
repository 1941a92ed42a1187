"""The lessons of a run, read once and one by one: what they were worth, and a balanced few of them to read."""

import heapq
import json
import math
import random
from array import array
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

CHARS = 20_000  # of one text that are shown; what a model writes to its limit repeats itself

Row = dict[str, Any]


class Balanced:
    """At most `size` items, as many of each kind as there can be, and of each kind a uniform sample, in one pass.

    Every item draws a number and the lowest of each kind are kept. Where there is no room the largest kind gives up
    its highest, and takes nothing above that any more.
    """

    def __init__(self, size: int):
        self.size, self.seen, self._held = size, 0, 0
        self._chance = random.Random(0)
        self._kinds: dict[Hashable, list[tuple[float, int, Any]]] = {}
        self._bars: dict[Hashable, float] = {}

    def offer(self, kind: Hashable, make: Callable[[], Any]) -> None:
        drawn = self._chance.random()
        kept = drawn < self._bars.get(kind, 1.0)
        item = make() if kept else None  # which may fail, and then it was not seen
        self.seen += 1
        if not kept:
            return
        heapq.heappush(self._kinds.setdefault(kind, []), (-drawn, self.seen, item))
        self._held += 1
        if self._held > self.size:
            largest = max(self._kinds, key=lambda kind: len(self._kinds[kind]))
            self._bars[largest] = -heapq.heappop(self._kinds[largest])[0]
            self._held -= 1

    def items(self) -> list[Any]:
        """In the order they came."""
        held = (entry for kind in self._kinds.values() for entry in kind)
        return [item for _, _, item in sorted(held, key=lambda entry: entry[1])]


class Lessons:
    """What is kept of lessons: a few to read, and of the others some numbers each."""

    def __init__(self, size: int):
        self.sample = Balanced(size)
        self.solved = self.judged = self.leaked = self.unreadable = 0
        self.worths: dict[str, array[float]] = {}  # by what it is that is counted; 8 bytes a lesson
        self.steps: dict[int, list[float]] = {}  # of a training: the sum of rewards and how many

    @property
    def count(self) -> int:
        return self.sample.seen

    def add(self, row: Row) -> None:
        meta, right = row["meta"], solved(row)
        name, value = worth(row)
        kind = (*(meta.get(part) for part in ("student", "benchmark", "teacher")), right, row["leaked"])
        self.sample.offer(kind, lambda: light(row))
        self.judged += right is not None
        self.solved += bool(right)
        self.leaked += row["leaked"]
        if value is not None and math.isfinite(value):
            self.worths.setdefault(name, array("d")).append(value)
            if "step" in meta:
                total = self.steps.setdefault(meta["step"], [0.0, 0.0])
                total[0] += value
                total[1] += 1


def rows(path: Path) -> Iterator[Row | None]:
    """The lines of a log, None where one cannot be read; a last one without an end is still being written, or torn."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            yield row if isinstance(row, dict) else None


def solved(row: Row) -> bool | None:
    """Whether an answer was right, of those after teaching where there are any; None: nothing was answered."""
    right = _right(row["taught"] or row["alone"] or row["turns"])
    return any(right) if right else None


def worth(row: Row) -> tuple[str, float | None]:
    """What a lesson was worth, and what that is: its reward, or what an evaluation can say instead."""
    if "worth" in row["meta"]:
        return "reward of a lesson", row["meta"]["worth"]
    alone, taught = _right(row["alone"]), _right(row["taught"])
    if alone and taught:
        return "accuracy gained by a lesson", fmean(taught) - fmean(alone)
    if alone:
        return "share of a problem's answers that are right", fmean(alone)
    if (row.get("scores") or {}).get("solution"):
        return "log-prob of a solution's tokens after its explanation, on average", fmean(row["scores"]["solution"])
    return "", None


def _right(turns: list[Row]) -> list[bool]:
    return [turn["verdict"]["outcome"] == "correct" for turn in turns if turn["verdict"]]


def light(row: Row) -> Row:
    """What a person reads of a lesson; no tokens, and nothing that only a teacher's prompt holds."""
    meta = row["meta"]
    parts = {name: number(value) for name, value in (meta.get("reward") or {}).items()}
    said = [*row["turns"], *row["alone"]]
    if row["taught"] != row["alone"]:  # the same answers where nothing was taught
        said += row["taught"]
    return {
        **{name: meta.get(name) for name in ("student", "benchmark", "teacher", "step")},
        "worth": number(meta.get("worth")),
        "reward": parts,
        "uid": row["uid"],
        "question": cut(row["question"]),
        "answer": cut(row["answer"]),
        "solved": solved(row),
        "leaked": row["leaked"],
        "notes": [name for name in ("flagged", "overflow") if meta.get(name)] + ["malformed"] * row["malformed"],
        "turns": [spoken(turn) for turn in said],
    }


def spoken(turn: Row) -> Row:
    sample, verdict = turn["sample"], turn["verdict"] or {}
    return {
        "speaker": turn["speaker"],
        "act": turn["act"],
        "text": cut(sample["text"]),
        "tokens": sample["tokens"],
        "finish": sample["finish"],
        **{name: verdict.get(name) for name in ("outcome", "why")},
        "score": number(verdict.get("score")),
        "extracted": cut(verdict.get("extracted") or ""),
    }


def number(value: float | None) -> float | None:
    """JSON, as browsers read it, has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def cut(text: str) -> str:
    return text if len(text) <= CHARS else f"{text[:CHARS]} … ({len(text) - CHARS:,} more characters)"
