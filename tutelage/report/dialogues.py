"""What students show in dialogues with feedback, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.table import Table

from tutelage.metrics import Estimate
from tutelage.report.terminal import shown
from tutelage.turns import SPECIFIC, metrics

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


def students(cells: Sequence[Cell], max_turns: int) -> Table:
    """A row for each student and benchmark, values with their intervals; "– null" is what is left of the one before
    when a control is subtracted."""
    known = metrics(max_turns)
    names = list(dict.fromkeys(["acc@1", f"acc@{max_turns}", *SPECIFIC]))
    result = Table("student", "benchmark", title="dialogues with feedback", title_justify="left")
    result.add_column("problems", justify="right")
    controls = list(cells[0].specific)
    for name in names:
        result.add_column(known[name].label, justify="right")
        for control in controls if name in SPECIFIC else ():
            result.add_column(f"– {control}", justify="right")
    for cell in cells:
        values = []
        for name in names:
            values.append(_cell(cell.taught[name], known[name].unit))
            if name in SPECIFIC:
                values += [_cell(cell.specific[control].get(name), "points") for control in controls]
        result.add_row(cell.student, cell.benchmark, str(cell.problems), *values)
    return result


def _cell(found: Estimate | None, unit: str) -> str:
    if found is None or found.value is None:
        return "–"
    value, low, high = (shown(each, unit) for each in (found.value, found.low, found.high))  # type: ignore[arg-type]
    return f"{value}\n[{low.rstrip(' %ps')} … {high.rstrip(' %ps')}]"
