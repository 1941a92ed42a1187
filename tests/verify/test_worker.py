"""The worker's protocol and limits, and what symbolic and task scoring decide."""

import json
import os
import subprocess
import sys

import pytest
import reasoning_gym

from tutelage.verify.pool import Pool


@pytest.fixture(scope="module")
def pool():
    pool = Pool(size=1, limit=10)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        (r"\frac{1}{2}", "0.5", "correct"),
        ("1", "x+1", "incorrect"),
        ("x+1", "1+x", "correct"),
        ("x^2+2x+1", "(x+1)^2", "correct"),
        (r"2\pi", "6.28", "incorrect"),
        (r"\sqrt{8}", r"2\sqrt2", "correct"),
        (r"\sqrt{2}", "1.41421356", "correct"),
        ("(1,2)", "(2,1)", "incorrect"),
        (r"\{1,2\}", r"\{2,1\}", "correct"),
        ("x=1 or x=2", "1, 2", "correct"),
        ("[0,1)", "[0,1]", "incorrect"),
        (r"x \le 5", r"(-\infty,5]", "correct"),
        ("y = 2x + 1", "y = 1 + 2x", "correct"),
        ("x = 5", "y = 5", "incorrect"),
        ("10^{-8}", "0.00000002", "incorrect"),  # equal once rounded to six decimals
        ("10^{-8}", "0.00000001", "correct"),
        ("1/2", r"garbage ++ \frac{1}{2} )(", "unparsed"),  # not the half inside it
        ("1", r"\frac{", "unparsed"),
        (r"\frac{", "1", "unparsed"),
    ],
)
def test_symbolic(pool, gold, answer, outcome):
    assert pool.ask({"kind": "math", "gold": gold, "answer": answer})["outcome"] == outcome


def entry_of(task: str) -> dict:
    return json.loads(json.dumps(dict(reasoning_gym.create_dataset(task, size=1, seed=7)[0]), default=str))


def score(pool, task, answer, entry):
    return pool.ask({"kind": "task", "task": task, "entry": entry, "answer": answer})


@pytest.mark.parametrize("task", ["chain_sum", "countdown", "rearc", "puzzle24", "coin_flip", "game_of_life_halting"])
def test_a_task_accepts_its_reference_after_json(pool, task):
    entry = entry_of(task)
    assert score(pool, task, entry["answer"], entry)["outcome"] == "correct"
    assert score(pool, task, "nonsense", entry)["outcome"] == "incorrect"


def test_a_task_accepts_other_right_answers(pool):
    entry = entry_of("graph_color")
    assert entry["answer"] is None
    colouring = json.dumps(entry["metadata"]["possible_answer"])
    assert score(pool, "graph_color", colouring, entry)["outcome"] == "correct"
    assert score(pool, "graph_color", "None", entry)["outcome"] == "incorrect"


def test_scorers_that_pay_for_wrong_answers_are_corrected(pool):
    coin, puzzle, life = entry_of("coin_flip"), entry_of("puzzle24"), entry_of("game_of_life_halting")
    assert score(pool, "coin_flip", "0", coin)["outcome"] == "incorrect"
    assert score(pool, "puzzle24", "6*4*1*1", puzzle)["outcome"] == "incorrect"
    assert score(pool, "game_of_life_halting", str(life["answer"] != "True"), life)["outcome"] == "incorrect"


def test_a_scorer_that_fails_blames_the_answer_only_if_the_entry_can_be_scored(pool):
    entry = entry_of("prime_factorization")
    failed = score(pool, "prime_factorization", "two times three", entry)
    assert failed["outcome"] == "incorrect" and "ValueError" in failed["why"]
    assert score(pool, "boxnet", "5", entry_of("boxnet"))["outcome"] == "incorrect"
    assert score(pool, "rubiks_cube", "U", {"answer": None, "metadata": {}})["outcome"] == "unparsed"
    assert score(pool, "no_such_task", "1", entry)["outcome"] == "unparsed"


def test_an_answer_that_is_a_program_does_no_harm(pool, tmp_path):
    entry, target = entry_of("string_insertion"), tmp_path / "made"
    for program in (
        f"__import__('os').system('touch {target}')",
        f"open('{target}', 'w')",
        'print(\'{"outcome": "correct"}\')',
        "input()",
    ):
        assert score(pool, "string_insertion", program, entry)["outcome"] == "incorrect"
    assert not target.exists()


def test_memory_is_limited():
    pool = Pool(size=1)
    pool.ask({"kind": "math", "gold": "1", "answer": "x"})
    (worker,) = pool._workers
    with open(f"/proc/{worker.process.pid}/limits") as limits:
        assert str(4 << 30) in next(line for line in limits if line.startswith("Max address space"))
    pool.close()


def test_speaks_json_lines_and_ends_with_its_input():
    request = {"kind": "math", "gold": "x", "answer": "x", "limit": 5}
    done = subprocess.run(
        [sys.executable, "-m", "tutelage.verify.worker"],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"started": True},
        {"outcome": "correct", "why": "", "score": 1.0},
    ]
    assert done.returncode == 0
