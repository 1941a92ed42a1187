"""How tests are held against a program: each by itself, on data only, and never silently left out."""

import textwrap

from tutelage.verify.sandbox import Report, examine

RIGHT = "def f(x):\n    return 11 * x"


def hold(program: str, tests: str, prompt: str = "", setup: str = "") -> Report:
    return examine([textwrap.dedent(program)], {"entry": "f", "prompt": prompt, "setup": setup, "tests": tests})


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
