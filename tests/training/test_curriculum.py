"""What is trained on: ratings survive a crash, and nothing is chosen by chance."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tutelage.composing import compose
from tutelage.errors import DataError
from tutelage.problem import Problem
from tutelage.training.config import Train
from tutelage.training.curriculum import asked, rated, within
from tutelage.training.rollout import Rollout

PROBLEMS = [Problem(f"What is {n} + 1?", "", str(n + 1), kind="number") for n in range(5)]


class Rater:
    """A course whose student solves each problem as often as it is told, and whose machine may die."""

    def __init__(self, rates: dict[str, float], dies_at: int | None = None):
        self.rates, self.dies_at = rates, dies_at
        self.asked: list[str] = []

    async def rate(self, problem: Problem) -> float:
        if len(self.asked) == self.dies_at:
            raise MemoryError
        self.asked.append(problem.uid)
        return self.rates[problem.uid]


def rating(course: Any, folder: Path, problems: list[Problem] = PROBLEMS) -> list[float]:
    with asyncio.Runner() as runner:
        return rated(problems, Rollout([], course, 0, Path(), runner, contextlib.nullcontext()), folder)


def test_a_crash_loses_no_rating(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even one that tears the last line; the first rating stays, whatever the student has become."""
    rates = {problem.uid: place / 4 for place, problem in enumerate(PROBLEMS)}
    first, second = Rater(rates, dies_at=3), Rater({uid: rate + 1 for uid, rate in rates.items()})
    with pytest.raises(MemoryError):
        rating(first, tmp_path)
    [file] = tmp_path.glob("curriculum*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-2])
    assert rating(second, tmp_path, PROBLEMS[::-1]) == [2.0, 1.75, 1.5, 0.25, 0.0]
    assert first.asked == [problem.uid for problem in PROBLEMS[:3]]
    assert second.asked == [problem.uid for problem in PROBLEMS[:1:-1]]
    assert "problems rated" in capsys.readouterr().err
    assert rating(Rater({}), tmp_path) == [0.0, 0.25, 1.5, 1.75, 2.0]
    assert "problems rated" not in capsys.readouterr().err


def test_what_other_processes_rated_is_known(tmp_path: Path) -> None:
    """A run may be taken up with fewer of them."""
    for rank, problem in enumerate(PROBLEMS):
        (tmp_path / f"curriculum.{rank}.jsonl").write_text(f'["{asked(problem)}", {rank}]\n')
    assert rating(Rater({}), tmp_path) == [0, 1, 2, 3, 4]
    mended = replace(PROBLEMS[0], answer="77")  # judged by another answer, it is solved as often as it is
    assert rating(Rater({mended.uid: 0.5}), tmp_path, [mended, *PROBLEMS[1:]]) == [0.5, 1, 2, 3, 4]


def test_without_an_answer_nobody_can_be_rated(tmp_path: Path) -> None:
    open_ended = SimpleNamespace(answer="")
    with pytest.raises(DataError, match=r"1 of 6 problems have no final answer .*: type min_baseline=0 max_baseline=1"):
        rating(Rater({}), tmp_path, [*PROBLEMS, open_ended])  # type: ignore[list-item]


def test_of_what_is_neither_known_nor_hopeless(capsys: pytest.CaptureFixture[str]) -> None:
    config = compose(Train, ["run=student_rl2f"])
    assert within(PROBLEMS, [0.0, 0.1, 0.5, 0.9, 1.0], config) == PROBLEMS[1:4]
    assert "curriculum: 3 of 5 problems, solved 10% to 90% of the time" in capsys.readouterr().err
    with pytest.raises(DataError, match="solves 0% to 5% of these problems alone: widen min_baseline"):
        within(PROBLEMS[:2], [0.0, 0.05], config)
