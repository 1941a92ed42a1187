"""Programs in replies: found however they are given, and examined as they are meant."""

import asyncio
import itertools
import textwrap
import threading
from dataclasses import replace

import pytest

from tutelage import data
from tutelage.engines import Sample
from tutelage.lessons.episode import Episode, Turn
from tutelage.problem import Problem, Verdict
from tutelage.verify import check, code, feedback, judge

PROMPT = 'import math\n\n\ndef half(x):\n    return x / 2\n\n\ndef area(r):\n    """The area of a circle."""\n'
META = {"entry": "area", "prompt": PROMPT, "tests": "assert abs(area(1) - 3.14) < .01\nassert area(0) == 0"}
CIRCLE = Problem(PROMPT, "", "…", kind="code", meta=META)
BODY = "    square = r * r\n    return math.pi * square\n"
WHOLE = "def area(r):\n" + BODY


@pytest.mark.parametrize(
    "reply",
    [
        BODY,
        WHOLE,
        PROMPT + BODY,
        f"```python\n{WHOLE}```",
        f"```\n{WHOLE}```",
        f"~~~py\n{WHOLE}~~~",
        f"Here:\n\n   ```Python\n{BODY}```\nThat is it.",
        f"```python\n{textwrap.dedent(BODY)}```",
        f"<solution>{WHOLE}</solution>",
        f"<solution>{BODY}</solution>",
        f"<solution>\n```python\n{WHOLE}```\n</solution>",
        f"```python\ndef area(r):\n    return 0\n```\nNo, rather:\n```python\n{WHOLE}```",
        f"```python\n{WHOLE}```\nTry it:\n```python\nprint(area(2))\n```",
        f"```python\n{WHOLE}```\nand run\n```bash\npython area.py\n```",
        f"<think>```python\ndef area(r): return 0\n```</think>```python\n{WHOLE}```",
        f"```python\n{WHOLE}",  # cut off behind the last line
        BODY + "\nThis is the function, as asked for. Isn't it nice?",
        "```python\narea = lambda r: math.pi * half(2 * r) ** 2\n```",
    ],
)
def test_found_however_it_is_given(reply):
    assert check(CIRCLE, reply).correct


@pytest.mark.parametrize(
    "reply", ["", "I am not sure.", "The answer is 3.", "```bash\nls\n```", "return to sender, please"]
)
def test_no_program(reply):
    verdict = check(CIRCLE, reply)
    assert (verdict.outcome, verdict.extracted, verdict.score) == ("unparsed", None, 0)


def test_wrong_programs_are_incorrect_with_a_share():
    verdict = check(CIRCLE, "```python\ndef area(r):\n    return 3 * r\n```")
    assert verdict == Verdict(
        "incorrect", "def area(r):\n    return 3 * r", "1 of 2 tests passed; test 1: the result is wrong", 0.5
    )
    assert check(CIRCLE, "```python\ndef area(r:\n```").outcome == "incorrect"
    assert check(CIRCLE, "```python\n" + "x = 1\n" * 10_000 + "```").why == "too long"


@pytest.mark.parametrize(
    "body", ["raise ValueError('\\ud800')", "raise type('E', (Exception,), {'__str__': lambda e: '\\udfff' * 999})"]
)
def test_what_a_program_says_can_be_written_to_a_file(body):
    verdict = check(CIRCLE, f"```python\ndef area(r):\n    {body}\n```")
    assert "?" in verdict.why and len(verdict.why) < 600
    turn = Turn("student", "attempt", Sample("…", "stop", 1), verdict)
    line = Episode("feedback", "1", "q", "a", turns=(turn,)).to_json().encode()
    assert Episode.from_json(line.decode()).turns[0].verdict == verdict
    assert feedback.remark(CIRCLE, verdict).encode()


@pytest.mark.parametrize(
    "reply", ["```" + "a" * 200_000, "~" * 200_000, "```" + " " * 200_000 + "`", ("```" + "-" * 999 + "`\n") * 200]
)
def test_a_line_without_end_is_read_once(reply):
    """In a quadratic number of steps these would take minutes."""
    assert code.program(reply, "area") == (None, False)


def test_a_reply_beyond_all_measure_is_not_read():
    assert check(CIRCLE, " " * code.MAX_REPLY + f"```python\n{WHOLE}```").why == "too long"


def test_walls_that_are_not_whole_are_told_of_once(monkeypatch, capsys):
    examine = code.sandbox.examine
    monkeypatch.setattr(code, "_told", threading.Lock())
    monkeypatch.setattr(code.sandbox, "examine", lambda *given: replace(examine(*given), walls=(True, True)))
    assert check(CIRCLE, WHOLE).correct and capsys.readouterr().err == ""
    monkeypatch.setattr(code.sandbox, "examine", lambda *given: examine(*given, walls=False))
    assert check(CIRCLE, WHOLE).correct and check(CIRCLE, WHOLE).correct
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "no walls around a program's processes and network and files here" in told


def test_a_problem_without_tests_is_nobodys_fault():
    assert check(Problem("q", "", "…", kind="code"), WHOLE).outcome == "unparsed"
    broken = Problem("q", "", "…", kind="code", meta=META | {"tests": "assert area("})
    assert check(broken, WHOLE).why.startswith("the tests could not be held: SyntaxError")


def test_several_at_once():
    async def all_of_them() -> list[Verdict]:
        return await asyncio.gather(*(judge(CIRCLE, WHOLE if n % 2 else "    return 7") for n in range(8)))

    assert [verdict.correct for verdict in asyncio.run(all_of_them())] == [False, True] * 4


def test_candidates_never_run_the_bare_prompt():
    for found in ("x = 1\nreturn x", "hello", "print(1)"):
        assert PROMPT.strip() not in [program.strip() for program in code.candidates(found, PROMPT, "area")]


@pytest.fixture(scope="module")
def humaneval() -> list[Problem]:
    return data.load("humaneval").problems


def gold(problem: Problem) -> Verdict:
    return check(problem, f"```python\n{problem.answer}\n```")


def test_humaneval_accepts_its_own_answers_and_no_other(humaneval):
    assert len(humaneval) == 164
    some = humaneval[::16] + [p for p in humaneval if p.meta["entry"] in ("find_zero", "decode_cyclic", "decode_shift")]
    assert all(gold(problem).correct for problem in some)
    for problem, other in itertools.pairwise(some):
        renamed = other.answer.replace(other.meta["entry"], problem.meta["entry"])
        assert not check(problem, f"```python\n{renamed}\n```").correct


@pytest.mark.slow
def test_all_of_humaneval_accepts_its_own_answers(humaneval):
    async def every() -> list[Verdict]:
        return await asyncio.gather(*(judge(problem, f"```python\n{problem.answer}\n```") for problem in humaneval))

    assert [verdict.why for verdict in asyncio.run(every()) if not verdict.correct] == []
