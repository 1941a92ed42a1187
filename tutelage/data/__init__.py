"""Data: rows of any source in any known format → Problems."""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from tutelage.data.formats import COLUMNS, FORMATS, Format, Row, Tags, absent, detect
from tutelage.data.generated import generate
from tutelage.data.sources import Unreadable, rows
from tutelage.data.split import split
from tutelage.data.values import Unusable
from tutelage.errors import ConfigError, DataError, nearest
from tutelage.problem import Problem

__all__ = ["FORMATS", "Dataset", "Format", "Rejected", "Tags", "load", "rows", "split"]

FIRST = 20  # rows that are looked at to tell the format

# what others call our columns, to name the likely one when ours is missing
_OTHER_NAMES = {
    "question": ("problem", "prompt", "input", "instruction", "query", "problem_text"),
    "solution": ("rationale", "output", "response", "explanation", "completion"),
    "answer": ("final_answer", "ground_truth", "final", "target", "answerKey", "label"),
}


@dataclass(frozen=True)
class Rejected:
    """A row that became no Problem; rows are counted from 1."""

    row: int
    why: str


@dataclass
class Dataset:
    """The problems of one source, and what became of the other rows."""

    problems: list[Problem]
    rejected: list[Rejected] = field(default_factory=list)
    format: str = ""
    source: str = ""
    duplicates: int = 0
    tags: Tags = field(default_factory=Tags)

    @property
    def unused(self) -> Counter[str]:
        """Why rows became no problem."""
        repeated = Counter({"the same question as another row": self.duplicates})
        return Counter(rejected.why for rejected in self.rejected) + repeated


def load(
    source: str,
    *,
    format: str | Mapping[str, Any] = "auto",
    columns: Mapping[str, str | None] | None = None,
    tasks: Sequence[str | Mapping[str, Any]] | None = None,
    size: int | None = None,
    split: str = "train",
    data_files: str | Sequence[str] | None = None,
    needs_answer: bool | None = None,
    repeats: bool = False,
    seed: int = 42,
) -> Dataset:
    """The problems of a file, a folder, a hub id, or "generated" (from `tasks`; 1000, or `size` of them).

    `columns` names other columns for a format's parts; `needs_answer=False` keeps rows without a final
    answer, for lessons that check none; `repeats=True` keeps a question for each of its reasoning traces.
    """
    if source == "generated":
        problems = generate(tasks or [], 1000 if size is None else size, seed)
        return Dataset(problems, format="task", source=source)
    read = rows(source, split=split, data_files=data_files)
    first = list(islice(read, FIRST))
    readable = [row for row in first if not isinstance(row, Unreadable)]
    name, chosen = _format(format, columns or {}, readable)
    if needs_answer is not None:
        chosen = replace(chosen, needs_answer=needs_answer)
    if readable:
        _require(chosen, readable, source)
    dataset = Dataset([], format=name, source=source, tags=chosen.tags)
    _fill(dataset, chosen, chain(first, read), repeats)
    return dataset


def _format(
    format: str | Mapping[str, Any], columns: Mapping[str, str | None], first: Sequence[Row]
) -> tuple[str, Format]:
    if isinstance(format, Mapping):
        return "custom", Format.from_config(format).reading(columns)
    name = detect(first) or "standard" if format == "auto" else format
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}: {nearest(name, [*FORMATS, 'auto'])}")
    return name, FORMATS[name].reading(columns)


def _fill(dataset: Dataset, format: Format, read: Iterable[Row | Unreadable], repeats: bool) -> None:
    seen: set[tuple[str, str]] = set()
    number = 0
    for number, row in enumerate(read, start=1):
        try:
            if isinstance(row, Unreadable):
                raise Unusable(row.why)
            problem = format.problem(row)
        except Unusable as reason:
            dataset.rejected.append(Rejected(number, str(reason)))
            continue
        mark = problem.uid, problem.reasoning_trace if repeats else ""
        if mark in seen:
            dataset.duplicates += 1
            continue
        seen.add(mark)
        dataset.problems.append(problem)
    if not number:
        raise DataError(f"{dataset.source} holds no rows: type dataset_id_or_path=<another source>")
    if not dataset.problems:
        reasons = Counter(rejected.why for rejected in dataset.rejected).most_common(3)
        listed = "; ".join(f"{why} ({count} rows)" for why, count in reasons)
        raise DataError(
            f"none of the {number} rows of {dataset.source} can be used as {dataset.format}: {listed}; "
            f"type format=<{', '.join(FORMATS)}> or columns.answer=<column>"
        )


def _require(format: Format, first: Sequence[Row], source: str) -> None:
    """The columns a format reads must be there, or the user learns what to type."""
    columns = list(dict.fromkeys(column for row in first for column in row))
    missing = absent(format.needs, columns)
    part = next((part for part in COLUMNS if missing and getattr(format, part) == missing[0]), None)
    finals = [column for column in (format.solution, format.answer) if column]
    if not missing and format.needs_answer and absent(finals, columns) == finals:
        missing, part = ["answer"], "answer"  # a solution would do too: an answer can be read out of it
    if missing:
        hint = f"columns.{part}={_likely(part, columns)}" if part else "format=auto"
        listed = ", ".join(columns)
        raise DataError(f"{source} has no column {missing[0]!r} (its columns: {listed}): type {hint}")


def _likely(part: str, columns: Sequence[str]) -> str:
    named = [name for name in _OTHER_NAMES.get(part, ()) if name in columns]
    return (named or difflib.get_close_matches(part, columns, n=1) or ["<column>"])[0]
