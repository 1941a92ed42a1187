import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.data.generated import generate, worked
from tutelage.errors import DataError

EASY = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def test_deterministic_by_seed():
    first = generate(["chain_sum"], 50, seed=1)
    assert first == generate(["chain_sum"], 50, seed=1)
    shared = {p.uid for p in first} & {p.uid for p in generate(["chain_sum"], 50, seed=2)}
    assert len(shared) < 5  # neighbouring seeds are different data, not the same rows shifted by one


def test_distinct_questions_even_where_nearly_all_are_needed():
    problems = generate([{"name": "products", "config": EASY}], 100, seed=0)
    assert len({p.uid for p in problems}) == 100


def test_too_few_distinct_questions():
    with pytest.raises(DataError, match=r"only 100 distinct.*not 101: lower size.*max_terms, max_digits"):
        generate([{"name": "products", "config": EASY}], 101, seed=0)


def test_weights_share_the_size_and_tasks_are_mixed():
    tasks = [{"name": "chain_sum", "weight": 3}, {"name": "gcd", "weight": 1}, "lcm"]
    problems = generate(tasks, 101, seed=3)
    names = [p.meta["task"] for p in problems]
    assert sorted(names.count(name) for name in set(names)) == [20, 20, 61]
    assert len(set(names[:20])) == 3


def test_the_same_question_from_two_tasks_is_kept_once():
    problems = generate([{"name": "chain_sum", "config": EASY}, {"name": "chain_sum", "config": EASY}], 200, seed=0)
    assert len({p.uid for p in problems}) == 200
    with pytest.raises(DataError, match="no other task gave"):
        generate([{"name": "chain_sum", "config": EASY}, {"name": "chain_sum", "config": EASY}], 202, seed=0)


@pytest.mark.parametrize("name", ["chain_sum", "products", "basic_arithmetic", "number_sorting", "spell_backward"])
def test_problems_can_be_stored_and_scored(name):
    import reasoning_gym

    score = reasoning_gym.get_score_answer_fn(name)
    for problem in generate([name], 20, seed=7):
        assert problem.kind == "task"
        assert json.loads(json.dumps(problem.meta)) == problem.meta
        assert problem.meta["entry"]["question"] == problem.question
        assert score(problem.answer, problem.meta["entry"]) == 1
        assert problem.answer in problem.solution


@pytest.mark.parametrize(
    ("expression", "answer", "steps"),
    [
        ("4 - 9 + -2", "-7", "4 - 9 = -5\n-5 + -2 = -7\nThe answer is -7."),
        ("2 + 3 * 4", "14", "3 * 4 = 12\n2 + 12 = 14\nThe answer is 14."),
        ("-( 2 + 3 ) / 5", "-1", "2 + 3 = 5\n-(5) = -5\n-5 / 5 = -1\nThe answer is -1."),
        (" 8/-2", "-4", "8 / -2 = -4\nThe answer is -4."),
        ("7", "7", "The answer is 7."),
        ("2 + 3 * 4", "20", None),  # precedence ignored
        ("7 / 2", "3", None),  # rounded down
        ("7 / 0", "0", None),
        ("2 ** 3", "8", None),
    ],
)
def test_worked(expression, answer, steps):
    assert worked(expression, answer) == steps


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(-99, 99)), min_size=1, max_size=5))
def test_every_step_of_a_worked_solution_is_true(parts):
    expression = "1 " + " ".join(f"{symbol} {number}" for symbol, number in parts)
    *steps, last = worked(expression, str(eval(expression))).splitlines()
    assert len(steps) == len(parts)
    assert all(eval(step.split(" = ")[0]) == int(step.split(" = ")[1]) for step in steps)
    assert last == f"The answer is {eval(expression)}."


def test_wrong_answers_of_the_library_are_left_out():
    config = {"allow_parentheses": False, "max_digits": 1}
    for problem in generate([{"name": "basic_arithmetic", "config": config}], 50, seed=0):
        assert eval(problem.meta["entry"]["metadata"]["expression"]) == int(problem.answer)


@pytest.mark.parametrize(
    ("tasks", "size", "message"),
    [
        (["chain_sums"], 1, "did you mean chain_sum"),
        ([{"nam": "chain_sum"}], 1, "did you mean name"),
        ([{"name": "chain_sum", "config": {"max_term": 3}}], 1, "did you mean max_terms"),
        ([{"name": "chain_sum", "config": {"seed": 3}}], 1, "no setting 'seed'"),
        ([{"name": "chain_sum", "config": {"max_terms": 1}}], 1, "max_terms must be >= min_terms"),
        ([{"name": "chain_sum", "weight": 0}], 1, "positive"),
        ([], 1, "data=arithmetic"),
        (["chain_sum"], 0, "size=1000"),
        (["graph_color"], 1, "no answer of its own"),
        (["rearc"], 1, "no answer of its own"),  # cannot be scored from what JSON keeps of it
    ],
)
def test_mistakes(tasks, size, message):
    with pytest.raises(DataError, match=message):
        generate(tasks, size, seed=0)
