"""The method can be read, tested and reused without a GPU stack."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "trl", "datasets", "sympy", "reasoning_gym")


@pytest.mark.parametrize(
    "module",
    [
        "problem",
        "lessons",
        "verify",
        "metrics",
        "rewards",
        "data",
        "config",
        "cli",
        "evaluate",
        "runs",
        "dialogues",
        "exam",
    ],
)
def test_no_heavy_import(module: str) -> None:
    script = f"import sys, tutelage.{module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
