import pytest

from tutelage.data.formats import FORMATS, Format, detect
from tutelage.data.tags import Tags
from tutelage.data.values import Unusable
from tutelage.errors import ConfigError
from tutelage.problem import Problem
from tutelage.verify import check

BESPOKE_REPLY = (
    "<|begin_of_thought|>\n\nTwo and two.\n\n<|end_of_thought|>\n\n"
    "<|begin_of_solution|>\n\nWe add: \\boxed{4}\n\n<|end_of_solution|>"
)
ROWS = {
    "standard": {"question": "2+2?", "solution": "Count.\nThe answer is 4.", "reasoning_trace": "hm"},
    "bespoke": {
        "system": "Think at length.",
        "conversations": [{"from": "user", "value": "2+2?"}, {"from": "assistant", "value": BESPOKE_REPLY}],
    },
    "atlas_sft": {
        "problem_text": "2+2?",
        "student_approach": "guess",
        "teacher_diagnosis": "weak",
        "teacher_teaching": "count",
    },
    "atlas_rl": {"prompt": "2+2?", "ground_truth": "4"},
    "gsm8k": {"question": "2+2?", "answer": "It is 1,000+80 = <<1000+80=1080>>1,080.\n#### 1,080"},
    "math": {
        "problem": "2+2?",
        "solution": "So \\boxed{\\frac{8}{2}}.",
        "level": "Level 1",
        "type": "Algebra",
    },
    "omni_math": {
        "domain": ["Mathematics -> Algebra"],
        "difficulty": 4.5,
        "problem": "2+2?",
        "solution": "Some words, and so $4$.",
        "answer": "4",
        "source": "somewhere",
    },
    "humaneval": {
        "task_id": "Own/0",
        "prompt": 'def two():\n    """Two."""\n',
        "canonical_solution": "    return 2\n",
        "test": "def check(candidate):\n    assert candidate() == 2\n",
        "entry_point": "two",
    },
    "mbpp": {
        "task_id": 1,
        "text": "Write a function that doubles.",
        "code": "def twice(x):\r\n  return 2 * x",
        "test_setup_code": "y = 1",
        "test_list": ["assert set([twice(1)]) == {2}", "assert twice(y) == 2"],
        "challenge_test_list": ["assert twice('a') == 'aa'"],
    },
}
PROBLEMS = {
    "standard": Problem("2+2?", "Count.\nThe answer is 4.", "4", "hm"),
    "bespoke": Problem("2+2?", "We add: \\boxed{4}", "4", "Two and two."),
    "atlas_sft": Problem(
        "2+2?",
        "",
        "",
        meta={"student_approach": "guess", "teacher_diagnosis": "weak", "teacher_teaching": "count"},
    ),
    "atlas_rl": Problem("2+2?", "4", "4"),
    "gsm8k": Problem("2+2?", "It is 1,000+80 = 1,080.\nThe answer is 1080.", "1080", kind="number"),
    "omni_math": Problem(
        "2+2?",
        "Some words, and so $4$.",
        "4",
        meta={"domain": ["Mathematics -> Algebra"], "difficulty": 4.5, "source": "somewhere"},
    ),
    "humaneval": Problem(
        'def two():\n    """Two."""',
        'def two():\n    """Two."""\n    return 2',
        'def two():\n    """Two."""\n    return 2',
        kind="code",
        meta={
            "entry": "two",
            "prompt": 'def two():\n    """Two."""\n',
            "setup": "",
            "tests": "def check(candidate):\n    assert candidate() == 2\n\ncheck(two)\n",
        },
    ),
    "mbpp": Problem(
        "Write a function that doubles.\n\nYour code should pass this test:\n\nassert set([twice(1)]) == {2}",
        "def twice(x):\r\n  return 2 * x",
        "def twice(x):\r\n  return 2 * x",
        kind="code",
        meta={
            "entry": "twice",
            "prompt": "",
            "setup": "y = 1",
            "tests": "assert set([twice(1)]) == {2}\nassert twice(y) == 2\nassert twice('a') == 'aa'",
        },
    ),
    "math": Problem("2+2?", "So \\boxed{\\frac{8}{2}}.", "\\frac{8}{2}", meta={"level": "Level 1", "type": "Algebra"}),
}


def test_every_format_is_tested():
    assert set(FORMATS) == set(ROWS) == set(PROBLEMS)


@pytest.mark.parametrize("name", FORMATS)
def test_detected_and_read(name):
    assert detect([ROWS[name]]) == name
    assert FORMATS[name].problem(ROWS[name]) == PROBLEMS[name]


def test_a_new_format_is_one_entry(monkeypatch):
    entry = Format(question="q", answer=lambda row: row["parts"][-1], needs=("q", "parts"))
    monkeypatch.setitem(FORMATS, "mine", entry)
    row = {"q": "2+2?", "parts": [3, 4]}
    assert detect([row]) == "mine"
    assert entry.problem(row) == Problem("2+2?", "4", "4")
    with pytest.raises(Unusable, match="cannot read the answer: IndexError"):
        entry.problem({"q": "2+2?", "parts": []})


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"question": "q", "answer": "4"}, "standard"),
        ({"question": "q", "answer": "#### Heading\ntext"}, "standard"),
        ({"question": "q", "solution": "s", "answer": "4"}, "standard"),
        ({"problem": "p", "solution": "s", "answer": "4", "subject": "Algebra", "level": 5}, "math"),
        (ROWS["math"] | {"answer": "4", "difficulty": 2, "source": "x"}, "omni_math"),
        ({"problem": "p", "solution": "s", "level": "Level 5", "type": "Algebra"}, "math"),
        ({"prompt": "Write it.", "code": "def f(): pass", "test_imports": [], "test_list": ["assert f()"]}, "mbpp"),
        ({"prompt": "p", "ground_truth": "4", "test_list": []}, "atlas_rl"),
        (ROWS["atlas_sft"] | {"ground_truth": "4", "prompt": "x"}, "atlas_sft"),
        (ROWS["bespoke"] | {"question": "q"}, "bespoke"),
        ({"conversations": [{"from": "user", "value": "hello"}]}, None),
        ({"text": "x"}, None),
    ],
)
def test_detect_ambiguous(row, name):
    assert detect([row]) == name


def test_chat_rows_in_the_other_spelling():
    messages = [{"role": "human", "content": "2+2?"}, {"role": "gpt", "content": BESPOKE_REPLY}]
    assert FORMATS["bespoke"].problem({"conversations": messages}) == PROBLEMS["bespoke"]
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    assert FORMATS["atlas_rl"].problem({"prompt": prompt, "ground_truth": 4}) == PROBLEMS["atlas_rl"]


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("standard", {"question": "  ", "answer": "4"}, "question is empty"),
        ("standard", {"question": None, "answer": "4"}, "question is empty"),
        ("standard", {"question": "q", "solution": "We see.\nIt is hard."}, "no final answer"),
        ("standard", {"question": "q"}, "no final answer"),
        ("standard", {"question": "q", "answer": ["4"]}, "holds a list"),
        ("bespoke", {"conversations": [{"from": "user", "value": "q"}]}, "no message from assistant"),
        ("bespoke", {"conversations": None}, "cannot read the question"),
        (
            "bespoke",
            {"conversations": [{"from": "user", "value": "q"}, {"from": "gpt", "value": "4"}]},
            "begin_of",
        ),
        ("gsm8k", {"question": "q", "answer": "4"}, "####"),
        ("gsm8k", {"question": "q", "answer": "four\n#### "}, "####"),
        ("atlas_rl", {"prompt": "q", "ground_truth": ""}, "no final answer"),
        ("mbpp", {"text": "q", "code": "x = 1", "test_list": []}, "cannot read the question: IndexError"),
        ("mbpp", {"text": "q", "code": "x = 1", "test_list": ["assert x == 1"]}, "calls no function"),
        ("mbpp", {"text": "q", "code": "x = 1", "test_list": ["assert f("]}, "cannot read the tests: SyntaxError"),
        ("humaneval", ROWS["humaneval"] | {"canonical_solution": "", "prompt": " "}, "question is empty"),
    ],
)
def test_rejected(name, row, why):
    with pytest.raises(Unusable, match=why):
        FORMATS[name].problem(row)


def test_an_answer_column_that_holds_a_worked_solution():
    problem = FORMATS["atlas_rl"].problem({"prompt": "2+2?", "ground_truth": "We add.\nSo \\boxed{4}."})
    assert (problem.answer, problem.solution) == ("4", "We add.\nSo \\boxed{4}.")


def test_tagged_solution_in_a_plain_column():
    problem = FORMATS["standard"].problem({"question": "2+2?", "solution": "hm <solution>4</solution> done\n"})
    assert problem.answer == "4"


def test_choices():
    row = {"question": "Capital of France?", "choices": ["Rome", "Paris"], "answer": 1, "solution": "Think."}
    problem = FORMATS["standard"].problem(row)
    assert (problem.kind, problem.answer) == ("choice", "B")
    assert problem.question == "Capital of France?\n\nA. Rome\nB. Paris"
    assert problem.meta["choices"] == ["Rome", "Paris"]
    assert FORMATS["standard"].problem(row | {"choices": None, "answer": "Paris"}).kind == "math"


def test_from_config():
    config = {
        "question": "turns.0.text",
        "answer": "final",
        "solution": None,
        "kind": "text",
        "tags": "bespoke",
        "system": "Be brief.",
        "meta": ["level"],
    }
    format = Format.from_config(config)
    assert format.needs == ("turns.0.text", "final")
    assert format.tags == Tags("bespoke")
    row = {"turns": [{"text": "q"}], "final": "a", "level": 3}
    assert format.problem(row) == Problem("q", "a", "a", kind="text", system="Be brief.", meta={"level": 3})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"question": "q", "anser": "a"}, "did you mean answer"),
        ({"question": "q", "kind": "maths"}, "did you mean math"),
        ({"answer": "a"}, "format.question=problem"),
        ({"question": "q", "answer": 3}, "must be the name of a column"),
        ({"question": "q", "when": "x"}, "format has no key 'when'"),
    ],
)
def test_from_config_mistakes(config, message):
    with pytest.raises(ConfigError, match=message):
        Format.from_config(config)


def test_reading_other_columns():
    format = FORMATS["math"].reading({"question": "statement", "answer": "final"})
    assert format.needs == ("solution", "statement", "final")
    assert format.problem({"statement": "q", "solution": "s", "final": 5.0}).answer == "5"
    with pytest.raises(ConfigError, match="did you mean answer"):
        FORMATS["math"].reading({"answr": "final"})


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_programs_pass_their_own_tests_which_no_student_sees(name):
    problem = FORMATS[name].problem(ROWS[name])
    assert check(problem, f"```python\n{problem.answer}\n```").correct
    hidden = problem.meta["tests"].splitlines()[1].strip()
    assert hidden not in f"{problem.public}"
