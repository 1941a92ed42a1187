"""Worked lessons: the very prompt of the lesson, the tags it expects, and never the answer."""

from pathlib import Path

import pytest
import yaml

from tutelage import data
from tutelage.lessons import prompts
from tutelage.lessons.leak import leaks
from tutelage.problem import Problem
from tutelage.training import worked

ARITHMETIC = yaml.safe_load((Path(__file__).parents[2] / "configs/data/arithmetic.yaml").read_text())["tasks"]


def generated(solution: str, question: str = "Calculate it.") -> Problem:
    return Problem(question, solution, solution.rsplit(" ", 1)[1].rstrip("."), kind="task")


def teaching(problem: Problem, approach: str = "I add.", accuracy: float = 0.0) -> str | None:
    return prompts.teaching_in(worked.row(problem, approach, accuracy).completion)[0]


@pytest.mark.parametrize("tasks", [ARITHMETIC, ["basic_arithmetic"], ["products"]])
@pytest.mark.parametrize("accuracy", [0.0, 0.5, 0.75, 1.0])
def test_generated_lessons(tasks: list[object], accuracy: float) -> None:
    problems = data.load("generated", tasks=tasks, size=150, seed=7).problems  # type: ignore[arg-type]
    approaches = {problem.uid: f"I would start with the first number ({problem.uid})." for problem in problems}
    rows, dropped = worked.rows(problems, approaches, {problem.uid: accuracy for problem in problems})
    assert len(rows) + dropped.total() == len(problems)
    assert len(rows) > 0.9 * len(problems)
    by_uid = {problem.uid: problem for problem in problems}
    for row in rows:
        problem, approach = by_uid[row.uid], approaches[row.uid]
        said, well_formed = prompts.teaching_in(row.completion)
        assert well_formed
        assert row.prompt == prompts.teach(problem.public, approach)
        assert (said is None) == (accuracy >= worked.MANAGES)
        if said is not None:
            assert not leaks(said, problem.answer, problem.question)
            assert "solution" not in said  # small students copy a second example of the tags


def test_steps_but_the_last_result() -> None:
    said = teaching(generated("4 + 3 = 7\n7 + 9 = 16\nThe answer is 16."))
    assert said is not None
    assert "4 + 3 = 7." in said and "7 + 9" in said and "16" not in said


def test_long_sums_are_split() -> None:
    said = teaching(generated("83 + 72 = 155\nThe answer is 155."))
    assert said is not None
    assert "83 + 70 = 153." in said and "153 + 2" in said


def test_a_split_that_would_show_the_answer_is_not_made() -> None:
    said = teaching(generated("83 - 43 = 40\nThe answer is 40."))
    assert said is not None
    assert "83 - 43" in said and "40" not in said


def test_an_earlier_result_that_is_the_answer() -> None:
    rows, dropped = worked.rows([generated("3 * 4 = 12\n12 - 0 = 12\nThe answer is 12.")], {}, {})
    assert not rows and dropped == {"a step before the last gives the answer": 1}


def test_the_same_problem_is_put_into_the_same_words() -> None:
    problems = data.load("generated", tasks=ARITHMETIC, size=40, seed=1).problems
    first, again = (worked.rows(problems, {}, {})[0] for _ in range(2))
    assert first == again
    assert len({row.completion.split("</thinking>")[0] for row in first}) == len(worked.SLIPS)


def test_atlas_rows() -> None:
    meta = {"student_approach": "I add them.", "teacher_diagnosis": "Wrong plan.", "teacher_teaching": "Multiply."}
    problem = Problem("3 boxes of 4?", "", "", meta=meta)
    row = worked.row(problem, "not this", 1.0)
    assert row.prompt == prompts.teach(problem.public, "I add them.")
    assert row.completion == "<thinking>Wrong plan.</thinking>\n<teaching>Multiply.</teaching>"


@pytest.mark.parametrize(
    ("teaching", "why"),
    [
        ("It is 12.", "the teaching states the answer"),
        ("Use </teaching> now.", "the worked text holds tags of its own"),
    ],
)
def test_atlas_rows_that_must_not_be_imitated(teaching: str, why: str) -> None:
    meta = {"student_approach": "I add.", "teacher_diagnosis": "Wrong.", "teacher_teaching": teaching}
    rows, dropped = worked.rows([Problem("3 boxes of 4?", "", "12", meta=meta)], {}, {})
    assert not rows and dropped == {why: 1}


def test_a_trace_ends_before_its_conclusion() -> None:
    trace = "Each box holds 4 pens.\nSo we need three times four. That makes 12.\nCheck: 12 / 3 = 4. The answer is 12."
    problem = Problem("How many pens are in 3 boxes of 4?", "12", "12", reasoning_trace=trace)
    row = worked.row(problem, worked.APPROACH, 0.0)
    said, _ = prompts.teaching_in(row.completion)
    assert said == f"Each box holds 4 pens.\nSo we need three times four.\n{worked.FINISH}"
    assert row.prompt == prompts.teach(problem.public, worked.APPROACH)


def test_nothing_to_teach_from() -> None:
    rows, dropped = worked.rows([Problem("How many?", "12", "12", kind="task")], {}, {})
    assert not rows and dropped == {"no steps before the answer": 1}
