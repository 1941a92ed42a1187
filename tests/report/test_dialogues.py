"""The tables of dialogues with feedback can be read in a narrow terminal."""

from rich.console import Console

from tutelage.exam import Cell
from tutelage.metrics import Estimate
from tutelage.report import students

CONTROLS = ("null", "shuffled", "independent")
LEFT = Estimate(-0.123, -0.255, -0.101)


def cell(student: str, benchmark: str) -> Cell:
    taught = {name: Estimate(0.4567, 0.4012, 0.5123) for name in ("acc@1", "acc@5", "csr", "plasticity")}
    specific = {name: {"gain": LEFT, "csr": LEFT, "plasticity": Estimate(None, None, None)} for name in CONTROLS}
    return Cell(student, benchmark, 200, taught | {"gain": LEFT}, {}, specific)


def test_four_students_fit_80_columns() -> None:
    names = ["base", "results/sft", "results/rlvr", "results/rl2f", "another/folder"]
    tables = list(students([cell(name, mark) for name in names for mark in ("math", "maze")], 5))
    assert [str(table.title) for table in tables] == [
        f"dialogues with feedback: {mark}" for mark in ("math", "math", "maze", "maze")
    ]
    console = Console(width=80)
    with console.capture() as seen:
        console.print(tables[0])
    lines = [line.split() for line in seen.get().splitlines()]
    # Nothing is broken off: every name, value and interval stands whole on a line.
    assert names[:4] in lines and ["problems", *["200"] * 4] in lines
    assert lines.count(["gain", *["-12.3", "pp"] * 4]) == 1 and lines.count(["csr", *["45.7%"] * 4]) == 1
    for control in CONTROLS:
        assert lines.count(["–", control, *["-12.3", "pp"] * 4]) == 2
        assert lines.count(["–", control, *["–"] * 4]) == 1
    assert lines.count(["[40.1…51.2]"] * 4) == 4 and lines.count(["[-25.5…-10.1]"] * 4) == 7
