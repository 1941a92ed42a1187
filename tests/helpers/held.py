"""Tests held against a program in the sandbox."""

import textwrap
from typing import Any

from tutelage.verify.sandbox import Report, examine

TESTS = "assert f(1) == 11\nassert f(2) == 22\nassert f(3) == 33\nassert f(4) == 44"
RIGHT = "def f(x):\n    return 11 * x"


def hold(program: str, tests: str = TESTS, prompt: str = "", setup: str = "", **kwargs: Any) -> Report:
    paper = {"entry": "f", "prompt": prompt, "setup": setup, "tests": tests}
    return examine([textwrap.dedent(program)], paper, **{"seconds": 1, **kwargs})
