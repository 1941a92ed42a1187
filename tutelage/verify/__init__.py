"""Is a reply's final answer right? Cheap comparisons here; algebra, task scorers and programs in other processes."""

import asyncio
import atexit
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tutelage.problem import Problem, Verdict
from tutelage.verify import code, compare
from tutelage.verify.extract import concluded, final_answer
from tutelage.verify.pool import Pool

__all__ = ["check", "close", "final_answer", "judge", "settles"]

MAX_CHARS = 2_000  # no answer that can be compared is longer
MAX_TASK_CHARS = 20_000  # a grid or a list of moves is
PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")  # 0110 is a string of digits

ONE_WORD = re.compile(r"[A-Za-z]+\.")

_pool = Pool()
close = _pool.close
atexit.register(close)


def check(problem: Problem, reply: str) -> Verdict:
    """The verdict on a reply. Any thread may call it; it takes at most a few seconds and never raises."""
    found = _cheaply(problem, reply)
    return found if isinstance(found, Verdict) else found()


async def judge(problem: Problem, reply: str) -> Verdict:
    """`check` for coroutines: what is cheap is answered at once, the rest does not block the event loop."""
    found = _cheaply(problem, reply)
    return found if isinstance(found, Verdict) else await asyncio.to_thread(found)


def settles(problem: Problem, text: str) -> bool:
    """Would a text be a right reply, as far as that is told at once?"""
    found = _cheaply(problem, text)
    return isinstance(found, Verdict) and found.correct


def _in_worker(answer: str, request: dict[str, Any]) -> Verdict:
    reply = _pool.ask(request)
    return Verdict(reply["outcome"], answer, reply["why"], reply["score"])


def _cheaply(problem: Problem, reply: str) -> Verdict | Callable[[], Verdict]:
    """A verdict, or what must be done elsewhere to have one."""
    if problem.kind == "code":
        return partial(code.check, problem, reply)
    answer = final_answer(reply)
    if answer is None:
        return Verdict("unparsed", None, "no final answer found")
    if len(answer) > (MAX_TASK_CHARS if problem.kind == "task" else MAX_CHARS):
        return Verdict("unparsed", answer[:MAX_CHARS], "too long")
    if problem.kind in ("math", "number", "choice") or PLAIN_NUMBER.fullmatch(problem.answer.strip()):
        answer = concluded(answer)
    match problem.kind:
        case "task":
            return _task(problem, answer)
        case "text":
            return _verdict(compare.same_words(problem.answer, answer), answer)
        case "choice":
            same = compare.same_choice(problem.answer, answer, problem.meta.get("choices", ()))
            return _verdict(same, answer, "not one of the choices")
        case _:
            return _math(problem, answer)


def _math(problem: Problem, answer: str) -> Verdict | Callable[[], Verdict]:
    same = compare.same_math(problem.answer, answer)
    if same is None and compare.unevaluated(problem.answer, answer):
        return Verdict("incorrect", answer, "not evaluated")
    gold_expression, expression = compare.expression(problem.answer), compare.expression(answer)
    if same is not None or gold_expression is None or expression is None:
        return _verdict(same, answer, "words cannot be compared with an expression")
    return partial(_in_worker, answer, {"kind": "math", "gold": gold_expression, "answer": expression})


def _task(problem: Problem, answer: str) -> Verdict | Callable[[], Verdict]:
    task, entry = problem.meta.get("task"), problem.meta.get("entry")
    if not task or not entry:
        return Verdict("unparsed", answer, "the problem names no task to score it with")
    # Tasks with many right answers have no reference: there, the text "None" must not match it.
    if entry.get("answer") is not None and answer == problem.answer.strip():
        return Verdict("correct", answer)
    # Scorers compare numbers letter by letter: "$102$" and "102 pens" are as right here as in any other kind.
    if PLAIN_NUMBER.fullmatch(problem.answer.strip()) and compare.same_math(problem.answer, answer):
        return Verdict("correct", answer)
    # and words to the last full stop
    scored = answer.removesuffix(".") if ONE_WORD.fullmatch(answer) else answer
    return partial(_in_worker, answer, {"kind": "task", "task": task, "entry": dict(entry), "answer": scored})


def _verdict(same: bool | None, answer: str, undecided: str = "") -> Verdict:
    if same is None:
        return Verdict("unparsed", answer, undecided)
    return Verdict("correct" if same else "incorrect", answer)
