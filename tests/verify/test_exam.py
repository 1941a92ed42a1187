"""How tests are held against a program: each by itself, on data only, and never silently left out."""

import pytest
from held import RIGHT, hold

from tutelage.verify.sandbox import examine


def test_tests_that_are_broken_say_so():
    assert "SyntaxError" in hold(RIGHT, "assert f(").unusable
    assert hold(RIGHT, "x = 1").unusable == "there are no tests"
    assert "NameError" in hold(RIGHT, "assert f(1)", prompt="undefined").unusable


def test_an_assertion_in_a_loop_is_one_test_and_each_counts_by_itself():
    tests = "for x in range(5):\n    assert f(x) == 11 * x\nassert True, 'proves nothing'\nassert f(9) == 99"
    assert hold(RIGHT, tests).calls == ["f(x)", "f(9)"]
    assert hold("def f(x):\n    return 11 * x if x != 3 else 0", tests).score == 0.5


def test_tests_that_break_off_are_not_passed():
    assert hold(RIGHT, "assert f(1) == 11\nassert False").score == 0.5
    assert hold(RIGHT, "assert f(1) == 11\ny = f('a') + 1\nassert f(2) == 22").score == 0.5


def test_expected_errors_can_be_expected():
    tests = "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass\nassert f(1) == 11"
    assert hold("def f(x):\n    if x < 0: raise ValueError('negative')\n    return 11 * x", tests).score == 1
    assert hold(RIGHT, tests).score < 1


def test_objects_stay_with_the_program_and_can_be_used():
    program = """
        class Pair:
            def __init__(self, a, b): self.a, self.b = a, b
        def f(pairs): return sum(pair.a for pair in pairs)
        def g(n): yield from range(n)
        def h(values): values.sort(); values.append(0)
    """
    setup = "first = Pair(1, 2)\nfirst.a = 10"
    tests = """
assert f([first, Pair(5, 6)]) == 15
assert first.b == 2
assert list(g(3)) == [0, 1, 2]
x = [2, 1]
h(x)
assert x == [1, 2, 0]
assert Pair(1, 1) != Pair(1, 1)"""
    assert hold(program, tests, setup=setup).score == 1


def test_the_first_program_that_is_python_runs():
    paper = {"entry": "f", "prompt": "", "setup": "", "tests": "assert f(2) == 22"}
    assert examine(["def f(", RIGHT, "def f(x): return 0"], paper).score == 1


def test_any_error_of_the_program_is_told_by_its_name():
    for error in ("Exception()", "UnicodeDecodeError('utf-8', b'x', 0, 1, 'why')", "OSError('no')", "KeyError(1)"):
        told = hold(f"def f(x):\n    raise {error}", "assert f(1)").failed[0]
        assert told["type"] == error.partition("(")[0] and told["line"] == f"raise {error}"
    assert (
        hold("def f(x):\n    raise ExceptionGroup('all', [OSError()])", "assert f(1)").failed[0]["type"]
        == "ExceptionGroup"
    )


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): return sum(x)", "assert f(range(4)) == 6"),
        ("def f(x): return range(x)", "assert f(3) == range(3)\nassert f(3) != range(4)\nassert len(f(5)) == 5"),
        ("def f(x): return x / 4", "from decimal import Decimal\nassert f(Decimal(1)) == Decimal('0.25')"),
        (
            "from fractions import Fraction\ndef f(a, b): return Fraction(a, b)",
            "import fractions\nassert f(2, 6) == fractions.Fraction(1, 3)\nassert str(f(1, 2)) == '1/2'",
        ),
        (
            "from datetime import date, timedelta\ndef f(day): return day + timedelta(1)",
            "import datetime\nassert f(datetime.date(2024, 2, 28)) == datetime.date(2024, 2, 29)",
        ),
        (
            "from collections import deque\ndef f(x): x.rotate(1); return x",
            "from collections import deque\nx = deque([1, 2, 3])\nassert f(x) == deque([3, 1, 2])\nassert x[0] == 3",
        ),
    ],
)
def test_exact_numbers_days_ranges_and_queues_are_data(program, tests):
    assert hold(program, tests).score == 1


def test_objects_have_a_length_items_truth_and_text():
    program = """
        class Stack:
            def __init__(self, *items): self.items = items
            def __len__(self): return len(self.items)
            def __getitem__(self, key): return self.items[key]
            def __str__(self): return f"<{self.items}>"
        class Bare: pass
        def f(*items): return Stack(*items)
        def g(): yield from (1, 2, 3)
    """
    tests = """
assert len(f(4, 5)) == 2 and f(4, 5)[1] == 5 and f(4, 5, 6)[1:] == (5, 6)
assert f(4) and not f() and Bare()
assert str(f(4)) == "<(4,)>" and f"{f()}" == "<()>"
try:
    f()[0]
    assert False
except IndexError:
    pass
made = g()
assert next(made) == 1
assert list(made) == [2, 3]
assert next(made, None) is None"""
    assert hold(program, tests).score == 1
    for lie in ("'two'", "-1", "[]"):
        liar = f"class Liar:\n    def __len__(self): return {lie}\ndef f(x): return Liar()"
        assert hold(liar, "assert len(f(1)) in (2, -1, [])").score == 0


@pytest.mark.parametrize("given", ["iter([1, 2])", "lambda x: x", "key=len", "[object()]", "(x for x in [1])"])
def test_what_cannot_be_handed_over_is_no_fault_of_the_program(given):
    report = hold(
        "def f(*a, **b): return 1", f"assert f(1) == 1\ntry:\n    assert f({given}) == 1\nexcept TypeError: 0"
    )
    assert report.unusable.endswith("cannot be given to a program")


def test_a_module_that_only_the_tests_lack_is_no_fault_of_the_program():
    assert "nowhere" in hold(RIGHT, "import nowhere\nassert f(1) == 11").unusable
    assert hold("def f(x): import nowhere", "f(1)\nassert f(1) == 11").stopped["type"] == "ModuleNotFoundError"


def test_nonsense_on_the_wire_is_called_so():
    program = (
        "import os\nfor n in range(3, 9):\n    try: os.write(n, bytes([2, 0, 0, 0]) + b'{{')\n    except OSError: 0"
    )
    assert hold(program, "assert f(1)").stopped["words"] == "it talks nonsense"
