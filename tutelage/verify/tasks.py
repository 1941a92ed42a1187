"""Reasoning Gym's own scorers, with the few corrected that pay full marks for wrong answers."""

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from tutelage.problem import Outcome

Entry = Mapping[str, Any]
Scorer = Callable[..., float]

# Found by scoring nonsense and other items' answers on every task of reasoning-gym 0.1.25:
# coin_flip pays "0" in full for any 0.…, game_of_life_halting any text, puzzle24 any numbers that make 24.
ALSO_REQUIRED: dict[str, Callable[[str, Entry], bool]] = {
    "coin_flip": lambda answer, entry: math.isclose(
        Fraction(answer.replace(",", "")), Fraction(entry["answer"]), rel_tol=1e-3
    ),
    "game_of_life_halting": lambda answer, entry: answer.strip() == entry["answer"],
    "puzzle24": lambda answer, entry: (
        sorted(map(int, re.findall(r"\d+", answer))) == sorted(entry["metadata"]["numbers"])
    ),
}


@cache
def scorer(task: str) -> Scorer:
    """The task's score_answer. Slow the first time: it imports Reasoning Gym."""
    import reasoning_gym

    return reasoning_gym.get_score_answer_fn(task)


def judge(task: str, entry: Entry, answer: str) -> tuple[Outcome, str, float]:
    """Correct is a full score. A failing scorer blames the answer only if it can score the reference."""
    score, entry = scorer(task), _from_json(task, entry)
    try:
        points = score(answer=answer, entry=entry)
        full = points >= 1.0 - 1e-9 and ALSO_REQUIRED.get(task, lambda *_: True)(answer, entry)
    except (MemoryError, RecursionError):
        raise
    except Exception as failure:
        score(answer=entry["answer"] or "", entry=entry)  # raises too where the entry is at fault
        return "incorrect", f"the scorer failed on this answer: {type(failure).__name__}: {failure}", 0.0
    if full:
        return "correct", "", 1.0
    partial = float(points) if 0 < points < 1 - 1e-9 and graded(task) else 0.0
    return "incorrect", f"score {points:.3g}", partial


def graded(task: str) -> bool:
    """Does the task grade answers itself? The scorer others inherit pays for any text with the reference in it."""
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    return DATASETS[task][0].score_answer is not ProceduralDataset.score_answer


def _from_json(task: str, entry: Entry) -> Entry:
    """JSON made lists of tuples; only the two grid tasks compare against a tuple."""
    if task not in ("arc_agi", "rearc"):
        return entry
    metadata = entry["metadata"]
    return {**entry, "metadata": {**metadata, "output": tuple(map(tuple, metadata["output"]))}}
