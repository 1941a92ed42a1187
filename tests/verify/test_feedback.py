"""Remarks say something true and useful, and never the answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.data.generated import generate
from tutelage.lessons.leak import leaks
from tutelage.problem import Problem, Verdict
from tutelage.verify import check
from tutelage.verify.feedback import remark

GRID = [["*", "O", "X"], ["X", "O", "#"]]
PATH = {"task": "shortest_path", "entry": {"answer": "right down right", "metadata": {"matrix": GRID}}}
SUDOKU = {
    "task": "mini_sudoku",
    "entry": {
        "answer": "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "metadata": {
            "puzzle": [[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 0, 3], [0, 3, 2, 0]],
            "solution": [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]],
        },
    },
}


def said(problem: Problem, answer: str) -> str:
    return remark(problem, check(problem, f"<solution>{answer}</solution>"))


def problem(answer: str, kind: str = "math", question: str = "question", **meta) -> Problem:
    return Problem(question, "solution", answer, kind=kind, meta=meta)


@pytest.mark.parametrize(
    ("gold", "answer", "words"),
    [
        ("102", "103", "its digits marked ? are wrong, 10?"),
        ("9", "7", "too small."),
        ("-36", "136", "too large."),
        ("1/2", "172", "too large."),
        ("102", "-102", "too small."),
        ("1476", "1312", "its digits marked ? are wrong, 1???"),
        ("-36", "-35", "its digits marked ? are wrong, -3?"),
        ("$1,080", "1080.5", "too large."),
        (r"\frac{1}{2}", "0.3", "too small"),
        ("102", "17 * 6", "undone"),
        ("5 km", "5 kg", "unit"),
        ("x+1", "x+2", "not the right answer"),
        ("102", "102", "correct"),
        ("102", "Each gets some of the apples", "a number or an expression"),
        ("102", "1" * 3000, "too long"),
    ],
)
def test_numbers(gold, answer, words):
    told = said(problem(gold), answer)
    assert words in told and ("?" in told) == ("?" in words)


@pytest.mark.parametrize(("gold", "answer"), [(100, 101), (109, 108), (-10, -11), (999, 899), (19, 20), (7, 8)])
def test_of_a_number_several_remain(gold, answer):
    told = remark(problem(str(gold), "number"), Verdict("incorrect", str(answer)))
    others = [n for n in range(-1100, 1100) if n != answer]
    alike = [n for n in others if remark(problem(str(n), "number"), Verdict("incorrect", str(answer))) == told]
    assert gold in alike and len(alike) >= 8


@given(st.integers(-300, 300), st.integers(-300, 300))
@settings(deadline=None)
def test_of_a_number_only_digits_that_are_right_are_shown(gold, answer):
    asked = problem(str(gold), "number")
    _, _, shown = remark(asked, Verdict("incorrect", str(answer))).partition("wrong, ")
    if shown:
        assert len(shown) == len(str(gold)) == len(str(answer)) and "?" in shown
        assert all(
            mark == right if mark == given else mark == "?" != right
            for mark, right, given in zip(shown, str(gold), str(answer), strict=True)
        )


@pytest.mark.parametrize(
    ("kind", "meta", "form"),
    [
        ("number", {}, "a single number"),
        ("choice", {"choices": ["Lyon", "Paris"]}, "the letter of one option"),
        ("task", {"task": "chain_sum", "entry": {"answer": "1"}}, "form the problem asks for"),
        ("code", {"entry": "f", "tests": "assert f(1) == 2"}, "```python"),
    ],
)
def test_what_cannot_be_read_is_told_the_form(kind, meta, form):
    spoken = problem("1", kind, **meta)
    assert form in remark(spoken, check(spoken, "I am not sure."))


def test_choices():
    assert said(problem("B", "choice", choices=["Lyon", "Paris"]), "A") == "That option is not the right one."


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("down right right", "Step 1 of your way (down) enters a blocked cell"),
        ("right up", "Step 2 of your way (up) leaves the grid"),
        ("right down", "does not end at the destination"),
        ("right left right down right", "a shorter one"),
        ("infeasible", "There is a way"),
        ("right, down", "with spaces"),
    ],
)
def test_mazes(way, words):
    assert words in said(problem("right down right", "task", **PATH), way)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("1 2 3 4", "4 rows of 4"),
        (f"1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 {'1' * 5000}", "Row 4|Column 4|Every|subgrid"),
        ("2 1 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "Row 1 changes"),
        ("1 2 2 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "Row 1 holds a number twice"),
        ("1 3 2 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "Column 2 holds|Column 3 holds|subgrid from row 1, column 1 on holds"),
        ("1  2  3  4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "Every rule is kept"),
    ],
)
def test_sudoku(grid, words):
    told = said(problem(SUDOKU["entry"]["answer"], "task", **SUDOKU), grid)
    assert any(part in told for part in words.split("|"))


def test_partial_scores_are_told():
    [knights] = generate(["knights_knaves"], 1, seed=3)
    first, second = knights.answer.rstrip(".").split(", and ")
    other = second.rsplit(" ", 1)[0] + (" knight" if second.endswith("knave") else " knave")
    verdict = check(knights, f"<solution>{first}, and {other}.</solution>")
    assert verdict.outcome == "incorrect" and 0 < verdict.score < 1
    assert f"{verdict.score:.2f} of 1" in remark(knights, verdict)


def test_programs_hear_of_their_errors_and_of_public_calls_only():
    tests = "assert f(1) == 41\nassert f(2) == 42, 'expected 42'\nassert f(3) == 43"
    asked = problem("def f(x): return x + 40", "code", "Write f so that assert f(1) == 41", entry="f", tests=tests)

    def told(program: str) -> str:
        return remark(asked, check(asked, f"```python\n{program}\n```"))

    assert "0 of 3 tests passed; test 1, f(1),: the result is wrong" in told("def f(x): return 0")
    hidden = told("def f(x): return 41")
    assert "1 of 3 tests passed; test 2: the result is wrong" in hidden
    assert "f(2)" not in hidden and "42" not in hidden
    assert "TypeError" in told("def f(x): return x + 'a'") and "return x + 'a'" in told("def f(x): return x + 'a'")
    assert "SyntaxError" in told("def f(x: return")


# ---- the answer is never in it, unless it was in the question or in what the student wrote

NUMBERS = st.one_of(st.integers(-200, 200), st.fractions(-5, 5, max_denominator=12)).map(str)
WORDS = st.text("bcdfgjkmpqvwxz", min_size=3, max_size=8)


def silent(asked: Problem, verdict: Verdict) -> bool:
    known = f"{asked.question} {verdict.extracted or ''}"
    return not leaks(remark(asked, verdict), asked.answer, known, asked.meta.get("choices", ()))


@given(NUMBERS, st.one_of(NUMBERS, WORDS), st.sampled_from(["math", "number", "text"]))
@settings(max_examples=150, deadline=None)
def test_never_the_number(gold, answer, kind):
    asked = problem(gold, kind)
    for verdict in (Verdict("incorrect", answer), Verdict("unparsed", None), Verdict("unparsed", answer, "timed out")):
        assert silent(asked, verdict)


@given(st.sampled_from("ABCDEFGHIJ"), st.sampled_from("ABCDEFGHIJ"))
def test_never_the_option(gold, answer):
    asked = problem(gold, "choice", choices=[f"option {n}" for n in range(10)])
    assert silent(asked, Verdict("incorrect", answer)) and silent(asked, Verdict("unparsed", None))


@given(WORDS, WORDS)
def test_never_the_words(gold, answer):
    assert silent(problem(gold, "text"), Verdict("incorrect", answer))


@pytest.fixture(scope="module")
def drawn():
    names = ["knights_knaves", "mini_sudoku", "self_reference", "shortest_path", "maze", "chain_sum", "gsm_symbolic"]
    return generate(names, 70, seed=5)


def test_never_the_answer_of_a_task(drawn):
    for asked in drawn:
        for other in drawn[:20]:
            for score in (0.0, 0.3, 0.5, 0.99):
                if other.answer != asked.answer:
                    assert silent(asked, Verdict("incorrect", other.answer, "", score)), asked
        assert silent(asked, Verdict("unparsed", None, "no final answer found"))
