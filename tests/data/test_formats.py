import asyncio
from collections import Counter

import pytest

from tutelage.data import load
from tutelage.data.formats import FORMATS, Format, detect
from tutelage.data.values import Unusable
from tutelage.errors import ConfigError
from tutelage.problem import Problem
from tutelage.tags import Tags
from tutelage.verify import check, judge

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
    "aime": {"id": 61, "problem": "2+2?", "answer": "004", "url": "https://example.org", "year": "2024"},
    "gpqa": {
        "Question": "Which metal is liquid at room temperature?\n",
        "Correct Answer": "Mercury\n",
        "Incorrect Answer 1": "Iron",
        "Incorrect Answer 2": "Gold",
        "Incorrect Answer 3": "Tin",
        "Explanation": "It melts at -39 °C.",
        "Subdomain": "Chemistry (general)",
        "High-level domain": "Chemistry",
    },
    "traces": {
        "question": "2+2?",
        "solution": "It is 4.",
        "explanation": "Two and two.",
        "messages": [{"role": "user", "content": "2+2?"}],
        "reward": -0.25,
        "copy": 0,
        "teacher_revision": "1",
    },
    "explained": {
        "question": "2+2?",
        "solution": "Add.",
        "explanation": "Two and two.",
        "choices": ["3", "4"],
        "answer": 1,
        "reward": 5,
    },
    "messages": {
        "messages": [
            {"role": "system", "content": "Think."},
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "<thought>\n\nTwo.\n\n</thought>\n\n<solution>\n\n4\n\n</solution>"},
        ]
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
    "aime": Problem("2+2?", "004", "004", meta={"id": 61, "year": "2024"}),
    "gpqa": Problem(
        "Which metal is liquid at room temperature?\n\nA. Gold\nB. Mercury\nC. Tin\nD. Iron",
        "It melts at -39 °C.",
        "B",
        kind="choice",
        meta={
            "High-level domain": "Chemistry",
            "Subdomain": "Chemistry (general)",
            "choices": ["Gold", "Mercury", "Tin", "Iron"],
        },
    ),
    "traces": Problem("2+2?", "It is 4.", "It is 4.", "Two and two."),
    "explained": Problem(
        "2+2?\n\nA. 3\nB. 4", "Add.", "B", "Two and two.", kind="choice", meta={"choices": ["3", "4"]}
    ),
    "messages": Problem("2+2?", "4", "4", "Two."),
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
        ({"problem": "p", "solution": "s", "answer": "033", "id": 3}, "math"),
        (ROWS["explained"] | {"reasoning_trace": "Hm."}, "standard"),
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
        ("aime", {"problem": "q", "answer": ""}, "no final answer"),
        ("gpqa", ROWS["gpqa"] | {"Incorrect Answer 2": " "}, "one of the four answers is empty"),
        ("gpqa", {"Question": "q", "Correct Answer": "a"}, "cannot read the choices"),
        ("messages", {"messages": [{"role": "user", "content": "q"}]}, "no message from assistant"),
        ("messages", {"messages": [{"role": "user", "content": "q"}, {"role": "gpt", "content": "4"}]}, "between tags"),
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


@pytest.mark.parametrize("answer", [1, 1.0, "1", "B", "Paris"])
def test_a_choice_without_a_solution_is_solved_by_what_is_checked(answer):
    problem = FORMATS["standard"].problem({"question": "Capital?", "choices": ["Rome", "Paris"], "answer": answer})
    assert (problem.answer, problem.solution) == ("B", "B. Paris")
    assert asyncio.run(judge(problem, f"<solution>{problem.solution}</solution>")).correct


def test_choices_whose_answer_is_worked_out():
    row = {"question": "Capital?", "choices": ["Rome", "Paris"], "answer": "Not Rome.\nSo \\boxed{B}."}
    problem = FORMATS["standard"].problem(row)
    assert (problem.answer, problem.solution) == ("B", "Not Rome.\nSo \\boxed{B}.")


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


# Rows as the test sets lay them out, with answers of the kinds they hold.
LAYOUTS = {
    "aime24 (HuggingFaceH4)": [
        {"id": 60, "problem": "p1", "solution": "Add: \\boxed{033}.", "answer": "33", "url": "u", "year": "2024"},
        {"id": 61, "problem": "p2", "solution": "So 0.", "answer": 0, "url": "u", "year": "2024"},
    ],
    "aime24 (AI-MO)": [{"id": 0, "problem": "p1", "answer": "033", "url": "u"}, {"problem": "p2", "answer": 999}],
    "math500": [
        {"problem": f"p{number}", "solution": f"So \\boxed{{{answer}}}.", "answer": answer, "subject": "Algebra",
         "level": 3, "unique_id": f"test/{number}.json"}
        for number, answer in enumerate(
            [r"\left( 3, \frac{\pi}{2} \right)", r"\frac{14}{3}", "p - q", r"\text{Evelyn}", r"2\sqrt{13}", "90^\\circ",
             "(-\\infty, 2) \\cup (3, \\infty)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "11,\\! 111", "3, 5, 7",
             "\\text{(C)}", "x^2 + 2x - 1", "52_8", r"\$18.90", "y = 2x + 3", "\\text{June 20}", "6 - 5i", "5.5\\%"]
        )
    ],
    "gsm8k": [
        {"question": "q1", "answer": "3 * 4 = <<3*4=12>>12\n#### 12"},
        {"question": "q2", "answer": "It sinks.\n#### -1,200"},
    ],
    "gpqa": [
        ROWS["gpqa"] | {"Question": f"q{number}", "Correct Answer": answer}
        for number, answer in enumerate(["Mercury", "1.2 x 10^-7 m", "A", "10^4", "the second one", "$\\frac{1}{2}$"])
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_gold_answers_pass_the_checker(name, tmp_path):
    from datasets import Dataset

    rows = [{key: str(value) if key == "answer" else value for key, value in row.items()} for row in LAYOUTS[name]]
    Dataset.from_list(rows).to_parquet(str(tmp_path / "rows.parquet"))
    read = load(str(tmp_path / "rows.parquet"), needs_answer=True)
    assert len(read.problems) == len(rows)
    for problem in read.problems:
        for reply in (f"Hm.\n<solution>{problem.answer}</solution>", f"So \\boxed{{{problem.answer}}}"):
            assert asyncio.run(judge(problem, reply)).correct, problem.answer
        assert not asyncio.run(judge(problem, "<solution>123456789</solution>")).correct


def test_the_right_choice_is_anywhere_and_always_in_the_same_place():
    rows = [ROWS["gpqa"] | {"Question": f"Question {number}?"} for number in range(200)]
    problems = [FORMATS["gpqa"].problem(row) for row in rows]
    assert problems == [FORMATS["gpqa"].problem(dict(reversed(row.items()))) for row in rows]
    assert min(Counter(problem.answer for problem in problems).values()) > 30
    for problem in problems:
        assert problem.meta["choices"]["ABCD".index(problem.answer)] == "Mercury"
        assert sorted(problem.meta["choices"]) == ["Gold", "Iron", "Mercury", "Tin"]


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_programs_pass_their_own_tests_which_no_student_sees(name):
    problem = FORMATS[name].problem(ROWS[name])
    assert check(problem, f"```python\n{problem.answer}\n```").correct
    hidden = problem.meta["tests"].splitlines()[1].strip()
    assert hidden not in f"{problem.public}"
