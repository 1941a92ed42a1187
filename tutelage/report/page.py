"""`tutelage figures`: the figures of a run, and one page that holds them, its tables, and lessons to read."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment
from rich.table import Table

from tutelage.files import write
from tutelage.metrics import to_dict
from tutelage.report.dialogues import students
from tutelage.report.figures import draw
from tutelage.report.folder import Record, read
from tutelage.report.terminal import compared, table

TEMPLATE = Path(__file__).with_name("page.html")


def report(folder: Path, keep: int) -> tuple[Path, str]:
    """Draw and write all that a run's folder can give; the page, and a line that says what it has and has not."""
    record = read(folder, keep)
    drawn, missing = draw(record)
    said = f"drawn: {', '.join(drawn).lower() or 'nothing'}"
    if missing:
        said += f"; not drawn: {', '.join(f'{title.lower()} ({why})' for title, why in missing.items())}"
    path = record.folder / "report.html"
    write(path, render(record, drawn, said))
    return path, said


def render(record: Record, drawn: Mapping[str, bytes], said: str) -> str:
    # Escaped wherever it stands: texts are a model's, and a model may write anything.
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE.read_text())
    lessons = record.lessons
    counts = {"lessons": lessons.count, "solved": lessons.solved, "leaked": lessons.leaked}
    return page.render(
        name=record.folder.name,
        what=what(record),
        said=said,
        figures={title: base64.b64encode(image).decode() for title, image in drawn.items()},
        tables=[html(found) for found in tables(record)],
        config=yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True) if record.config else "",
        counts=counts,
        judged=lessons.judged,
        unreadable=lessons.unreadable,
        lessons=lessons.sample.items(),
    )


def what(record: Record) -> str:
    if method := record.config.get("method"):
        return f"training ({method})"
    if record.cells:
        return "dialogues with feedback"
    return f"evaluation ({record.config['lesson']})" if "lesson" in record.config else "run"


def tables(record: Record) -> Iterator[Table]:
    """Everything measured, with its interval; the same tables that a terminal shows."""
    if record.cells:
        yield from students(record.cells, record.max_turns)
        for cell in record.cells:
            hints = str(record.config.get("hints", "hints"))
            columns = {hints: cell.taught} | cell.controls
            full = compared({name: to_dict(found) for name, found in columns.items()}, cell.problems)
            full.title = f"{cell.student} on {cell.benchmark}: {cell.problems} problems"
            yield full
    if record.evaluations:
        steps = dict.fromkeys([min(record.evaluations), record.best, max(record.evaluations)])
        known = {step: record.evaluations[step] for step in steps if step in record.evaluations}
        names = {step: f"step {step}{' (best)' * (step == record.best)}" for step in known}
        full = compared({names[step]: to_dict(found) for step, found in known.items()}, 0)
        full.title = "held-out lessons"
        yield full
    told = {"students"}
    if record.estimates:
        yield table(record.estimates, record.lessons.count)
        told |= record.estimates.keys()
    if counts := {name: value for name, value in record.metrics.items() if name not in told}:
        plain = Table("", "", title="counts")
        for name, value in counts.items():
            plain.add_row(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        yield plain


def html(found: Table) -> dict[str, Any]:
    """A terminal's table as words."""
    columns = [list(column.cells) for column in found.columns]
    return {
        "title": found.title,
        "head": [column.header for column in found.columns],
        "rows": list(zip(*columns, strict=True)),
    }
