"""Rows for students: the prompt of the style, the trace as a thought, then the solution; and why others have none."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tutelage.data import load
from tutelage.errors import ConfigError
from tutelage.lessons import STYLES, Style
from tutelage.problem import Problem
from tutelage.training.traced import row, rows

R1, BESPOKE = STYLES["r1"], STYLES["bespoke"]
TRACED = Problem("3 boxes of 4?", "3 * 4 = 12", "12", reasoning_trace="Four for each box.")


def test_a_row_is_the_students_prompt_and_all_it_says() -> None:
    found = row(TRACED, R1)
    assert found.prompt == R1.pose(TRACED.public) and [message["role"] for message in found.prompt] == [
        "system",
        "user",
    ]
    assert found.completion == (
        "<thought>\n\nFour for each box.\n\n</thought>\n\n<solution>\n\n3 * 4 = 12\n\n</solution>"
    )
    assert row(TRACED, BESPOKE).completion.startswith("<|begin_of_thought|>\n\nFour")


def test_what_is_dropped_is_counted_by_reason() -> None:
    problems = [
        TRACED,
        Problem("a?", "", "1", reasoning_trace="Hm."),
        Problem("b?", "1 + 1 = 2\nThe answer is 2.", "2"),  # steps as generated ones, but nobody's thought
        Problem("c?", "s", "1", reasoning_trace="I write <solution> next."),
        Problem("d?", "s </thought>", "1", reasoning_trace="Hm."),
    ]
    kept, dropped = rows(problems, R1)
    assert [found.uid for found in kept] == [TRACED.uid]
    assert dropped == Counter(
        {"no solution": 1, "no explanation or reasoning trace": 1, "the trace holds tags of its own": 2}
    )


def test_generated_calculations_are_their_own_traces() -> None:
    problems = load("generated", tasks=["chain_sum"], size=20).problems
    kept, dropped = rows(problems, R1)
    assert not dropped and len(kept) == 20
    steps, _, last = problems[0].solution.rpartition("\n")
    assert kept[0].completion == R1.reply(steps, last) and last.startswith("The answer is")


def test_traces_messages_and_older_layouts_read_alike(tmp_path: Path) -> None:
    thought, solution, question = TRACED.reasoning_trace, TRACED.solution, TRACED.question
    turns = [("user", question), ("assistant", BESPOKE.reply(thought, solution))]
    other = [("user", question), ("assistant", R1.reply(thought, solution))]
    layouts = [
        {"question": question, "solution": solution, "explanation": thought, "reward": -0.5},
        {"question": question, "solution": solution, "reasoning_trace": thought},
        {"messages": [{"role": role, "content": content} for role, content in other]},
        {"messages": [{"role": role, "content": content} for role, content in turns]},
        {"system": "Think.", "conversations": [{"from": role, "value": content} for role, content in turns]},
    ]
    for number, layout in enumerate(layouts):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(layout))
        problems = load(str(tmp_path / f"{number}.jsonl"), needs_answer=False).problems
        assert rows(problems, R1)[0] == [row(TRACED, R1)]


def test_several_traces_of_a_question_are_several_rows(tmp_path: Path) -> None:
    traces = [{"question": "q?", "solution": "s", "explanation": thought} for thought in ("one", "two", "two")]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, traces)))
    read = load(str(tmp_path / "all.jsonl"), repeats=True)
    assert [problem.reasoning_trace for problem in read.problems] == ["one", "two"] and read.duplicates == 1
    assert len(load(str(tmp_path / "all.jsonl")).problems) == 1


def test_a_style_of_ones_own() -> None:
    style = Style.from_config({"padding": "\n", "delimiter": "\n", "student": "Think.", "tags": "bespoke"})
    assert row(TRACED, style).prompt[0]["content"] == "Think."
    assert row(TRACED, style).completion == (
        "<|begin_of_thought|>\nFour for each box.\n<|end_of_thought|>\n"
        "<|begin_of_solution|>\n3 * 4 = 12\n<|end_of_solution|>"
    )
    with pytest.raises(ConfigError, match="did you mean bespoke"):
        Style.from_config("bespok")
