"""Replies in, verdicts out: the traps a verifier falls into, one by one."""

import asyncio
import json
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage import verify
from tutelage.problem import KINDS, Problem, Verdict
from tutelage.verify import check, judge


def problem(answer: str, kind: str = "math", **meta) -> Problem:
    return Problem("question", "solution", answer, kind=kind, meta=meta)


TRAPS = [
    ("0.5", r"\boxed{\frac{1}{2}}", "correct"),
    ("12500", "**Answer:** 12,500", "correct"),
    ("1,080", r"\boxed{1080}", "correct"),
    ("7/2", r"\boxed{2}", "incorrect"),
    ("2", r"\boxed{7/2}", "incorrect"),
    ("1", r"\boxed{x+1}", "incorrect"),
    ("0.333", r"\boxed{0.334}", "incorrect"),
    ("paris", "The answer is Paris.", "correct"),
    ("Paris", r"\boxed{\text{Paris}}", "correct"),
    ("5", r"\boxed{}", "unparsed"),
    ("5", "I am not sure.", "unparsed"),
    ("2", r"\boxed{1} no, \boxed{2}", "correct"),
    ("3", r"\boxed{-3}", "incorrect"),
    ("1000", r"\boxed{1e3}", "correct"),
    ("1234.5", "The answer is $1,234.50.", "correct"),
    ("7/2", r"\boxed{3 1/2}", "correct"),
    ("5", r"\boxed{x = 5}", "correct"),
    ("(1, 2)", r"\boxed{(2,1)}", "incorrect"),
    ("0.75", r"\boxed{\dfrac{3}{4}}", "correct"),
    (r"\dfrac{3}{4}", "0.75", "correct"),
    (r"2\pi", r"\boxed{6.28}", "incorrect"),
    (r"2\pi", r"\boxed{2π}", "correct"),
    ("-3", "\\boxed{\N{MINUS SIGN}3}", "correct"),
    (r"$\frac{1}{2}$", r"\boxed{0.5}", "correct"),
    (r"2\sqrt{3}\text{ units}", r"\boxed{\sqrt{12}}", "correct"),
    ("12", "<solution>Each gets 12 apples</solution>", "unparsed"),
    ("12", r"\boxed{\text{none}}", "unparsed"),
    ("102", "<solution>17 * 6</solution>", "incorrect"),
    ("102", "<solution>103 = 102</solution>", "incorrect"),
    ("102", "<solution>17 * 6 = 102</solution>", "correct"),
    ("7", "4 + 3 = 7", "correct"),
    ("4", "4 - 1 = 4", "incorrect"),
    ("100", "<solution>10^2</solution>", "correct"),
    ("100", "<solution>10^2 = 100</solution>", "correct"),
    ("106", "<solution>10^2 + 6 = 106</solution>", "correct"),
    ("300000", r"\boxed{3 \times 10^5}", "correct"),
    ("0.75", "<solution>3/4</solution>", "correct"),
    ("1", "<solution>" + "1" * 3000 + "</solution>", "unparsed"),
]


@pytest.mark.parametrize(("gold", "reply", "outcome"), TRAPS)
@pytest.mark.parametrize("kind", ["math", "number"])
def test_traps(gold, reply, outcome, kind):
    assert check(problem(gold, kind), reply).outcome == outcome


def test_the_verdict_carries_what_was_extracted_and_why():
    assert check(problem("2"), r"\boxed{3}") == Verdict("incorrect", "3")
    assert check(problem("2"), r"\boxed{1 \times 2}") == Verdict("incorrect", r"1 \times 2", "not evaluated")
    assert check(problem("2"), "hm") == Verdict("unparsed", None, "no final answer found")
    assert check(problem("2"), r"\boxed{" + "2" * 3000 + "}").why == "too long"


@pytest.mark.parametrize(
    ("gold", "reply", "outcome"),
    [
        ("B", "Answer: (B)", "correct"),
        ("B", r"\boxed{Lyon}", "incorrect"),
        ("B", r"\boxed{Rome}", "unparsed"),
    ],
)
def test_choice(gold, reply, outcome):
    assert check(problem(gold, "choice", choices=["Lyon", "Paris"]), reply).outcome == outcome


def test_text():
    assert check(problem("paris", "text"), "The answer is Paris.").correct
    assert check(problem("paris", "text"), "The answer is Lyon.").outcome == "incorrect"


def task(answer: str | None, name: str = "chain_sum") -> Problem:
    entry = {"question": "1 + 1 =", "answer": answer, "metadata": {"source_dataset": name}}
    return problem(str(answer), "task", task=name, entry=entry)


def test_task():
    assert check(task("2"), "<solution>2</solution>") == Verdict("correct", "2")
    assert check(task("2"), "<solution>3</solution>").outcome == "incorrect"
    assert check(task("2"), "two").outcome == "unparsed"
    assert check(problem("2", "task"), "<solution>3</solution>").outcome == "unparsed"


@pytest.mark.parametrize("answer", ["$102$", "102 pens", "x = 102", "17 * 6 = 102"])
def test_a_number_is_as_right_in_a_task_as_elsewhere(answer):
    assert check(task("102"), f"<solution>{answer}</solution>").correct
    assert check(problem("102", "number"), f"<solution>{answer}</solution>").correct


def test_a_task_still_needs_its_answer_worked_out_and_its_digits_in_place():
    assert check(task("102"), "<solution>17 * 6</solution>").outcome == "incorrect"
    assert check(task("0110", "caesar_cipher"), "<solution>110</solution>").outcome == "incorrect"


def test_a_task_without_a_reference_is_not_solved_by_naming_it():
    puzzle = {"vertices": [0], "edges": [], "num_colors": 1, "color_options": [1]}
    graph = problem("None", "task", task="graph_color", entry={"answer": None, "metadata": {"puzzle": puzzle}})
    assert check(graph, "<solution>None</solution>").outcome == "incorrect"
    assert check(graph, '<solution>{"0": 1}</solution>').outcome == "correct"


def test_hostile_answers_do_not_hang(monkeypatch):
    pool = verify.Pool(size=1, limit=0.5)
    monkeypatch.setattr(verify, "_pool", pool)
    for answer in ("9^{9^{9^{9^9}}}", "{" * 900 + "1" + "}" * 900, r"\frac{" * 200, "(" * 900, "x^" * 900):
        start = time.monotonic()
        assert check(problem("1"), f"<solution>{answer}</solution>").outcome == "unparsed"
        assert time.monotonic() - start < 5
    pool.close()


def test_judge_answers_cheap_cases_without_a_thread_and_the_rest_beside_the_loop(monkeypatch):
    async def both() -> list[Verdict]:
        hard = asyncio.gather(*(judge(problem("x+1"), rf"\boxed{{{number}+x}}") for number in (1, 2)))
        monkeypatch.setattr(asyncio, "to_thread", None)  # a cheap case must not need it
        assert (await judge(problem("2"), r"\boxed{2}")).correct
        monkeypatch.undo()
        return await hard

    assert [verdict.outcome for verdict in asyncio.run(both())] == ["correct", "incorrect"]


def test_the_score_goes_with_the_outcome():
    assert [Verdict(outcome).score for outcome in ("correct", "incorrect", "unparsed")] == [1, 0, 0]
    assert Verdict("incorrect", "x", "", 0.4).score == 0.4
    for outcome, score in (("correct", 0.9), ("incorrect", 1.0), ("incorrect", 1.5), ("unparsed", -0.5)):
        with pytest.raises(ValueError):
            Verdict(outcome, score=score)
    written_before = {"outcome": "correct", "extracted": "2", "why": ""}
    assert Verdict(**written_before) == Verdict("correct", "2", "", 1.0)


def test_partial_credit_of_a_task_is_its_own_scorers():
    matrix = [["*", "O"], ["O", "#"], ["O", "O"]]
    entry = {"answer": "right down", "metadata": {"matrix": matrix}}
    maze = problem("right down", "task", task="shortest_path", entry=entry)
    assert check(maze, "<solution>down right</solution>").correct
    assert check(maze, "<solution>down down right up</solution>").score == 0.5
    assert check(maze, "<solution>left</solution>").score == 0
    # the scorer most tasks inherit would pay a reply that names all answers
    hedged = check(task("Yes", "syllogism"), "<solution>Yes or No</solution>")
    assert (hedged.outcome, hedged.score) == ("incorrect", 0)


def test_a_full_stop_behind_one_word_is_no_mistake():
    assert check(task("carol", "zebra_puzzles"), "<solution>Carol.</solution>").correct


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from(KINDS))
def test_check_never_raises(gold, answer, kind):
    reply = f"<solution>{answer}</solution>"
    assert check(problem(gold, kind), reply).outcome in ("correct", "incorrect", "unparsed")


def test_importing_loads_nothing_heavy():
    heavy = ["sympy", "torch", "transformers", "trl", "reasoning_gym", "math_verify", "numpy"]
    program = f"import json, sys, tutelage.verify; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("held", "outcome"),
    [
        ("2 + 1 = 3\n3 + 2 = 5", "correct"),
        ("2 + 1 = 3\n\n3 + 2 = 6", "incorrect"),
        ("5\n= 2 + 4 - 1", "incorrect"),  # not evaluated
        ("5", "correct"),
    ],
)
def test_a_worked_solution_in_the_tags_is_judged_by_its_last_result(held: str, outcome: str) -> None:
    for kind, meta in (("math", {}), ("number", {})):
        problem = Problem("2 + 1 + 2?", "", "5", kind=kind, meta=meta)
        assert check(problem, f"<solution>\n\n{held}\n\n</solution>").outcome == outcome


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        ("x^2", "x²", "correct"),
        ("2x²+1", "1+2x^2", "correct"),
        ("10^{-3}", "10⁻³", "correct"),
        ("2^{12}", "2¹²", "correct"),
        ("52", "5²", "incorrect"),
        ("12 cm^2", "12 cm²", "correct"),
        ("12 cm²", "12 cm", "incorrect"),
    ],
)
def test_raised_digits_are_powers(gold: str, answer: str, outcome: str) -> None:
    """As a student types them who has no LaTeX."""
    assert check(Problem("?", "", gold, kind="math"), f"<solution>{answer}</solution>").outcome == outcome
