"""Explanations to imitate: the lesson's own prompt, its closing tag, and steps in other words than the solution's."""

from pathlib import Path

import pytest
import yaml

from tutelage import data
from tutelage.lessons import STYLES
from tutelage.lessons.leak import restated
from tutelage.problem import Problem
from tutelage.training.explained import row, rows, spoken
from tutelage.training.worked import Unfit

ARITHMETIC = yaml.safe_load((Path(__file__).parents[2] / "configs/data/arithmetic.yaml").read_text())["tasks"]


@pytest.mark.parametrize("tasks", [ARITHMETIC, ["basic_arithmetic"], ["products"]])
@pytest.mark.parametrize("name", STYLES)
def test_generated_explanations(tasks: list[object], name: str) -> None:
    style = STYLES[name]
    problems = data.load("generated", tasks=tasks, size=100, seed=7).problems  # type: ignore[arg-type]
    kept, dropped = rows(problems, style)
    assert not dropped and [one.uid for one in kept] == [problem.uid for problem in problems]
    for one, problem in zip(kept, problems, strict=True):
        assert one.prompt == style.ask(problem)
        explanation, closing, rest = one.completion.partition(f"{style.padding}{style.closing}")
        assert closing and not rest and problem.answer in explanation
        assert restated(explanation, problem.solution) < 1
    assert len({one.completion.split()[0] for one in kept}) > 1


def test_steps_are_told_one_by_one() -> None:
    problem = Problem("Calculate it.", "4 + 3 = 7\n7 - 12 = -5\nThe answer is -5.", "-5", kind="task")
    said = spoken(problem)
    assert "add 3 to 4" in said and "take 10 from 7" in said and "take 2 from -3" in said
    assert said.count("-5") == 2  # of the last step, and at the end
    assert said == spoken(problem)


def test_a_reasoning_trace_is_taken_as_it_is() -> None:
    problem = Problem("q", "s", "a", reasoning_trace=" Because.\n")
    assert row(problem, STYLES["bespoke"]).completion == "Because.\n\n<|end_of_explanation|>"


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (Problem("q", "", "a", reasoning_trace="t"), "no solution"),
        (Problem("q", "see </solution>", "a", reasoning_trace="t"), "its solution holds tags"),
        (Problem("q", "s", "a", reasoning_trace="it says </explanation> there"), "its reasoning_trace holds tags"),
        (Problem("q", "Just so.", "a"), "no reasoning_trace"),
    ],
)
def test_what_cannot_be_imitated_says_why(problem: Problem, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        row(problem, STYLES["r1"])
    assert rows([problem], STYLES["r1"])[1].total() == 1
