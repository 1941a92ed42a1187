"""Generated problems: reasoning-gym tasks, drawn offline, the same for the same seed."""

import ast
import hashlib
import itertools
import json
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from tutelage.data.values import plain
from tutelage.errors import DataError, nearest
from tutelage.problem import Problem

WORKED = ("chain_sum", "products", "basic_arithmetic")  # tasks whose solution can be worked out step by step


@dataclass(frozen=True)
class Task:
    """One task of the mix: its share of the problems is its weight over all weights."""

    name: str
    weight: float = 1.0
    config: Mapping[str, Any] = field(default_factory=dict)


def generate(tasks: Sequence[str | Mapping[str, Any]], size: int, seed: int) -> list[Problem]:
    """`size` problems with distinct questions, in an order that mixes the tasks."""
    if size < 1:
        raise DataError(f"size={size} generates nothing: type size=1000")
    mix = [_task(entry) for entry in tasks]
    if not mix:
        raise DataError("generated problems need tasks: type data=arithmetic, or tasks=[chain_sum]")
    seen: set[str] = set()
    problems: list[Problem] = []
    for task, count in zip(mix, _shares([task.weight for task in mix], size), strict=True):
        problems += _distinct(task, count, seed, seen)
    random.Random(seed).shuffle(problems)
    return problems


def _task(entry: str | Mapping[str, Any]) -> Task:
    """A checked Task: names are compared with what reasoning-gym has before anything is drawn."""
    from reasoning_gym.factory import DATASETS

    settings: dict[str, Any] = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
    known = [item.name for item in fields(Task)]
    for key in settings:
        if key not in known:
            raise DataError(f"a task has no key {key!r}: {nearest(str(key), known)}")
    name = settings.get("name")
    if not isinstance(name, str) or name not in DATASETS:
        raise DataError(f"there is no task {name!r}: {nearest(str(name), DATASETS)}")
    task = Task(name, float(settings.get("weight", 1.0)), dict(settings.get("config") or {}))
    if task.weight <= 0:
        raise DataError(f"task {name} has weight {task.weight:g}: give it a positive one, or leave it out")
    options = _options(name)
    for key in task.config:
        if key not in options:
            raise DataError(f"task {name} has no setting {key!r}: {nearest(str(key), options)}")
    return task


def _options(name: str) -> list[str]:
    from reasoning_gym.factory import DATASETS

    return [item.name for item in fields(DATASETS[name][1]) if item.name not in ("seed", "size")]


def _shares(weights: list[float], size: int) -> list[int]:
    """Whole numbers in proportion to the weights that add up to size."""
    edges = [round(size * sum(weights[:end]) / sum(weights)) for end in range(len(weights) + 1)]
    return [high - low for low, high in itertools.pairwise(edges)]


def _distinct(task: Task, count: int, seed: int, seen: set[str]) -> Iterator[Problem]:
    """Draws until there are `count` new questions; easy settings have few and repeat them."""
    found = stale = 0
    draws = _draws(task, seed, max(count, 100))
    while found < count:
        problem = _problem(task, next(draws))
        if problem and problem.uid not in seen:
            seen.add(problem.uid)
            found, stale = found + 1, 0
            yield problem
        else:
            stale += 1
        # with one question in `found` still to come, missing it this often has a chance of e^-20
        if stale > 200 + 20 * found:
            raise DataError(
                f"task {task.name} with {dict(task.config)} has only {found} distinct questions that no "
                f"other task gave, not {count}: lower size or its weight, or make it harder ({_harder(task)})"
            )


def _harder(task: Task) -> str:
    return ", ".join([name for name in _options(task.name) if name.startswith("max_")] or _options(task.name))


def _draws(task: Task, seed: int, chunk: int) -> Iterator[Mapping[str, Any]]:
    """Entries without end, in chunks because some tasks prepare all their rows at once."""
    import reasoning_gym

    for number in itertools.count():
        # hashed: reasoning-gym adds the row number to the seed, so 1 and 2 would share all rows but one
        key = json.dumps([seed, task.name, plain(task.config), number])
        hashed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest()) >> 1
        try:
            dataset = reasoning_gym.create_dataset(task.name, size=chunk, seed=hashed, **task.config)
            if not number:
                _checkable(task, dataset)
            yield from (dataset[index] for index in range(chunk))
        except (AssertionError, ValueError, TypeError, RuntimeError, IndexError) as error:
            raise DataError(f"task {task.name} cannot be drawn with {dict(task.config)}: {error}") from error


def _checkable(task: Task, dataset: Any) -> None:
    """Some tasks give no answer, or need more than JSON can hold to score one: no lesson could use them."""
    entry = dataset[0]
    if not isinstance(entry["answer"], str) or dataset.score_answer(entry["answer"], _kept(entry)) < 1:
        raise DataError(f"task {task.name} has no answer of its own that can be checked: choose another task")


def _kept(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: plain(entry[key]) for key in ("question", "answer", "metadata")}


def _problem(task: Task, entry: Mapping[str, Any]) -> Problem | None:
    """The entry as a Problem; None where reasoning-gym's own answer is wrong."""
    question, answer = entry["question"], entry["answer"]
    solution = worked(entry["metadata"]["expression"], answer) if task.name in WORKED else answer
    if solution is None:
        return None
    return Problem(question, solution, answer, kind="task", meta={"task": task.name, "entry": _kept(entry)})


# ---- worked solutions

_OPERATIONS: dict[type[ast.operator], tuple[str, Any]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}


def worked(expression: str, answer: str) -> str | None:
    """One line for each operation, in the order they are done; None if they do not lead to the answer.

    basic_arithmetic ignores precedence when parentheses are off, and rounds some divisions down: such draws
    would reward a wrong reply, so they are left out.
    """
    steps: list[str] = []
    try:
        value = _work(ast.parse(expression.strip(), mode="eval").body, steps)
    except ArithmeticError:
        return None
    return "\n".join([*steps, f"The answer is {answer}."]) if str(value) == answer else None


def _work(node: ast.expr, steps: list[str]) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = _work(inner, steps)
            if not isinstance(inner, ast.Constant):  # "-5" is a number, "-(2 + 3)" is a step
                steps.append(f"-({value}) = {-value}")
            return -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b = _work(left, steps), _work(right, steps)
            symbol, apply = _OPERATIONS[type(op)]
            value = apply(a, b)
            if value.denominator > 1:
                raise ArithmeticError("not a whole number")
            steps.append(f"{a} {symbol} {b} = {value}")
            return value
    raise ArithmeticError("not plain arithmetic")
