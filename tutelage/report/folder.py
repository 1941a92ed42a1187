"""A run's folder, whatever wrote it and however far it got, as figures and pages are made from it."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tutelage import exam
from tutelage.composing import words
from tutelage.errors import ConfigError
from tutelage.lessons import Episode
from tutelage.metrics import Estimate, from_dict
from tutelage.report.lessons import Lessons, rows

Found = dict[str, Estimate]


@dataclass
class Record:
    """All that is known of a run."""

    folder: Path
    config: dict[str, Any]
    logs: list[dict[str, Any]]  # a trainer's, by step
    evaluations: dict[int, Found]  # of held-out lessons while training, by step
    best: int | None  # the step whose weights were kept
    metrics: dict[str, Any]
    cells: list[exam.Cell]  # students on benchmarks
    lessons: Lessons

    @property
    def max_turns(self) -> int:
        return int(self.metrics.get("max_turns") or self.config.get("max_turns") or 1)

    @property
    def estimates(self) -> Found | None:
        """What one evaluation found; other commands leave counts."""
        found = {name: value for name, value in self.metrics.items() if name != "left_out"}
        parts = {"value", "low", "high"}
        if found and all(isinstance(value, dict) and value.keys() == parts for value in found.values()):
            return from_dict(found)
        return None


def read(folder: Path, keep: int) -> Record:
    """A run, with at most so many of its lessons."""
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}: type the one that a command named in its last line")
    place = folder.resolve()
    config = _yaml(place / "config.yaml")
    metrics = _json(place / "metrics.json")
    lessons, sums = gathered(place, config, keep, summed="max_turns" in config and "students" not in metrics)
    evaluations = {line.pop("step"): from_dict(line) for line in _lines(place / "evaluations.jsonl") if "step" in line}
    found = [
        exam.Cell.from_dict(student, benchmark, data)
        for student, by_benchmark in metrics.get("students", {}).items()
        for benchmark, data in by_benchmark.items()
    ]
    if sums:
        roles = [config.get("hints", "llm"), *words(str(config.get("controls") or ""))]
        how = {"max_turns": config["max_turns"], "seed": config.get("seed", 0)}
        sums = exam.ordered(sums, *(words(str(config.get(name) or "")) for name in ("student", "benchmarks")))
        found = exam.cells(sums, list(dict.fromkeys(roles)), **how)
    best = _json(place / "best.json").get("step")
    record = Record(place, config, history(place), evaluations, best, metrics, found, lessons)
    if not (record.logs or evaluations or metrics or lessons.count):
        within = folder / "latest_run"
        cure = f"type tutelage figures {within}" if within.exists() else "type the folder of a run that got further"
        raise ConfigError(f"{folder} holds nothing of a run (lessons, metrics, a checkpoint): {cure}")
    return record


def gathered(folder: Path, config: dict[str, Any], keep: int, summed: bool) -> tuple[Lessons, exam.Sums]:
    """All lessons in one pass; the dialogues of a run that has not summed them up itself are."""
    lessons = Lessons(keep)
    sums: exam.Sums = {}
    place = {
        "student": str(config.get("student", "student")),
        "benchmark": Path(str(config.get("dataset_id_or_path", "benchmark"))).stem,
    }
    for path in sorted(folder.glob("episodes*.jsonl")):  # one for each process of a training
        for row in rows(path):
            try:
                if row is None:
                    raise ValueError
                if summed and row["lesson"] == "feedback" and "step" not in row["meta"]:
                    row["meta"] = place | row["meta"]
                    exam.add(sums, Episode.from_dict(row), config["max_turns"])
                lessons.add(row)
            except (ValueError, KeyError, TypeError, AttributeError):
                lessons.unreadable += 1
    return lessons, sums


def history(folder: Path) -> list[dict[str, Any]]:
    """The trainer's log up to its last whole checkpoint."""
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda path: _step(path.parent), reverse=True)
    return next((logs for state in states if (logs := _json(state).get("log_history"))), [])


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def _json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _yaml(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [row for row in rows(path) if row is not None] if path.is_file() else []
