"""Rows that ask for a program: the question is public, the tests are not."""

import ast
import builtins
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def humaneval_answer(row: Row) -> str:
    """The whole function: the prompt, and the body that goes on with it."""
    return str(row["prompt"]) + str(row["canonical_solution"])


def humaneval(row: Row) -> dict[str, str]:
    entry = str(row["entry_point"])
    # Replies may go on with the prompt, so its last newline counts.
    return {"entry": entry, "prompt": str(row["prompt"]), "setup": "", "tests": f"{row['test']}\ncheck({entry})\n"}


def mbpp_question(row: Row) -> str:
    """The task and its first test, without which nobody would know what to call the function; the others are kept."""
    return f"{_mbpp_task(row)}\n\nYour code should pass this test:\n\n{_mbpp_tests(row)[0]}"


def mbpp(row: Row) -> dict[str, str]:
    tests, imports = _mbpp_tests(row), row.get("test_imports")
    setup = "\n".join([*(imports if imports is not None else []), row.get("test_setup_code") or ""])
    return {"entry": _called(tests[0]), "prompt": "", "setup": setup, "tests": "\n".join(tests)}


def _mbpp_task(row: Row) -> str:
    """`text` in the full set, `prompt` in the sanitized one."""
    return str(row.get("text") or row["prompt"]).strip()


def _mbpp_tests(row: Row) -> list[str]:
    challenge = row.get("challenge_test_list")
    return [str(test).strip() for test in [*row["test_list"], *(challenge if challenge is not None else [])]]


def _called(test: str) -> str:
    """The function a test is about: the first it calls that Python does not have."""
    for part in ast.walk(ast.parse(test)):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and not hasattr(builtins, part.func.id):
            return part.func.id
    raise ValueError("the first test calls no function")
