"""What students show in dialogues with feedback, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from rich import box
from rich.markup import escape
from rich.table import Table

from tutelage.metrics import Estimate
from tutelage.metrics.turns import SPECIFIC, metrics
from tutelage.report.terminal import shown

ABREAST = 4  # students that a terminal of 80 columns has room for, side by side

Found = Mapping[str, Estimate]


class Cell(Protocol):
    """One student on one benchmark."""

    @property
    def student(self) -> str: ...
    @property
    def benchmark(self) -> str: ...
    @property
    def problems(self) -> int: ...
    @property
    def taught(self) -> Found: ...
    @property
    def specific(self) -> Mapping[str, Found]: ...


def students(cells: Sequence[Cell], max_turns: int) -> Iterator[Table]:
    """A table for each benchmark, a column for each student, values above their intervals; "– null" is what is left of
    the one before when a control is subtracted."""
    for benchmark in dict.fromkeys(cell.benchmark for cell in cells):
        shown = [cell for cell in cells if cell.benchmark == benchmark]
        for start in range(0, len(shown), ABREAST):
            yield _abreast(shown[start : start + ABREAST], max_turns)


def _abreast(cells: Sequence[Cell], max_turns: int) -> Table:
    known = metrics(max_turns)
    controls = list(dict.fromkeys(control for cell in cells for control in cell.specific))
    title = f"dialogues with feedback: {escape(cells[0].benchmark)}"
    result = Table("", title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for cell in cells:
        result.add_column(escape(cell.student), justify="right", overflow="fold")
    result.add_row("problems", *(str(cell.problems) for cell in cells))
    early = [
        name
        for name in ("overflow", "refused")
        if any(cell.taught[name].value for cell in cells if name in cell.taught)
    ]
    for name in dict.fromkeys(["acc@1", f"acc@{max_turns}", *SPECIFIC, *early]):
        result.add_row(name, *(_value(cell.taught.get(name), known[name].unit) for cell in cells))
        for control in controls if name in SPECIFIC else ():
            result.add_row(
                f"– {control}", *(_value(cell.specific.get(control, {}).get(name), "points") for cell in cells)
            )
    return result


def _value(found: Estimate | None, unit: str) -> str:
    if found is None or found.value is None:
        return "–"
    value, low, high = (shown(each, unit) for each in (found.value, found.low, found.high))  # type: ignore[arg-type]
    return f"{value}\n[{low.rstrip(' %ps')}…{high.rstrip(' %ps')}]"
