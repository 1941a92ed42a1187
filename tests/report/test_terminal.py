"""Tables say what was measured, in the units people read."""

import io

from rich.console import Console

from tutelage import report


def test_before_and_after_stand_side_by_side() -> None:
    def found(value: float | None) -> dict[str, dict[str, float | None]]:
        return {
            "apg": {"low": -0.05, "value": value, "high": 0.3},
            "reward": {"low": -1.0, "value": value, "high": 1.0},
        }

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.compared({"after 0 steps": found(0.125), "after 8 steps": found(None)}, 24))
    text = console.export_text()
    assert "what 24 held-out lessons show" in text
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert lines == [
        ["Reward", "0.12 [-1.00 … 1.00]", "– [-1.00 … 1.00]"],
        ["Performance gain (APG)", "+12.5 pp [-5.0 … +30.0]", "– [-5.0 … +30.0]"],
    ]
