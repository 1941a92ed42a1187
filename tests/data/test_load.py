import json
import subprocess
import sys

import pytest

from tutelage.data import Rejected, Tags, load
from tutelage.errors import ConfigError, DataError


@pytest.fixture
def write(tmp_path):
    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    return write


def test_importing_needs_no_heavy_library():
    code = "import sys, tutelage.data; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["torch", "transformers", "datasets", "reasoning_gym", "pyarrow", "math_verify", "sympy"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_problems_rejected_rows_and_duplicates(write):
    source = write(
        {"question": "1+1?", "answer": "2"},
        "{broken",
        {"question": "1+1? ", "answer": "3"},
        {"question": "", "answer": "4"},
        {"question": "2+2?", "answer": "4"},
    )
    dataset = load(source)
    assert [(p.question, p.answer) for p in dataset.problems] == [("1+1?", "2"), ("2+2?", "4")]
    assert [rejected.row for rejected in dataset.rejected] == [2, 4]
    assert dataset.rejected[1] == Rejected(4, "the question is empty")
    assert (dataset.format, dataset.source, dataset.duplicates) == ("standard", source, 1)


def test_half_a_character_costs_one_row(write):
    source = write(r'{"question": "\ud83d?", "answer": "1"}', r'{"question": "\ud83d\ude00?", "answer": "1"}')
    dataset = load(source)
    assert [p.question for p in dataset.problems] == ["\N{GRINNING FACE}?"]
    assert [rejected.row for rejected in dataset.rejected] == [1] and "surrogate" in dataset.rejected[0].why


def test_tags_of_the_format_are_kept(write):
    reply = Tags("bespoke").wrap("solution", "\\boxed{4}")
    source = write({"conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": reply}]})
    dataset = load(source)
    assert (dataset.format, dataset.tags) == ("bespoke", Tags("bespoke"))


def test_columns_and_formats(write):
    source = write({"task": "2+2?", "worked": "Count.\nThe answer is 4.", "final": "four"})
    columns = {"question": "task", "solution": "worked", "answer": None}
    assert load(source, columns=columns).problems[0].answer == "4"
    dataset = load(source, format={"question": "task", "answer": "final", "kind": "text"})
    assert (dataset.format, dataset.problems[0].answer, dataset.problems[0].kind) == (
        "custom",
        "four",
        "text",
    )
    with pytest.raises(ConfigError, match="did you mean standard"):
        load(source, format="standart")


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (
            {"problem": "p", "final": "1"},
            {},
            r"no column 'question' \(its.*problem, final\): type columns.question=problem",
        ),
        ({"questions": "p", "answer": "1"}, {}, "type columns.question=questions"),
        ({"x": "p", "y": "1"}, {}, "type columns.question=<column>"),
        ({"question": "p", "final": "1"}, {}, "type columns.answer=final"),
        ({"question": "p", "reply": "1"}, {}, "type columns.answer=<column>"),
        ({"question": "p"}, {"format": {"question": "question"}}, "type columns.answer="),
        (
            {"question": "p", "answer": "1"},
            {"columns": {"answer": "final"}},
            "no column 'final'.*columns.answer=answer",
        ),
        (
            {"question": "p", "answer": "1"},
            {"format": "bespoke"},
            "no column 'conversations'.*type format=auto",
        ),
        ({"question": "p", "answer": "1"}, {"format": {"question": "q.0"}}, "no column 'q.0'"),
    ],
)
def test_missing_columns_say_what_to_type(write, row, options, message):
    with pytest.raises(DataError, match=message):
        load(write(row), **options)


def test_rows_without_answers_only_where_the_lesson_checks_none(write):
    code = {"question": "Write a program.", "solution": "```python\nanswer = 0\n```"}
    source = write(code, {"question": "2+2?", "solution": "\\boxed{4}"})
    assert [p.answer for p in load(source).problems] == ["4"]
    assert [p.answer for p in load(source, needs_answer=False).problems] == ["", "4"]


def test_empty_and_all_rejected(write):
    with pytest.raises(DataError, match="holds no rows"):
        load(write())
    with pytest.raises(DataError, match=r"none of the 3 rows.*question is empty \(2 rows\); not JSON.*columns.answer"):
        load(write({"question": "", "answer": "1"}, {"question": " ", "answer": "1"}, "{"))
    with pytest.raises(DataError, match="none of the 1 rows"):
        load(write("{"))


def test_generated():
    dataset = load("generated", tasks=["chain_sum"], size=12, seed=1)
    assert len(dataset.problems) == 12
    assert (dataset.format, dataset.source) == ("task", "generated")
    with pytest.raises(DataError, match="type data=arithmetic"):
        load("generated")
