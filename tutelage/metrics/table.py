"""A lesson's metrics: numbers of one lesson that add up, and what is made of their sums."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tutelage.lessons.episode import Episode, Turn

Unit = Literal["percent", "points", "score", "tokens", "seconds"]  # percent and points: times 100 when shown


@dataclass(frozen=True)
class Metric:
    """How a metric is shown and computed. `of` sees sums over lessons, named as in `numbers`."""

    label: str
    unit: Unit
    about: str
    of: Callable[[Any], Any]


@dataclass(frozen=True)
class Table:
    """One lesson as numbers, and by their names its metrics: some, like pass@8, are there only for lessons that have
    them. A metric's name means the same in every table."""

    numbers: Callable[[Episode], dict[str, float]]
    metrics: Callable[[Iterable[str]], Mapping[str, Metric]]
    partial: bool = False  # lessons that lack some numbers may be measured with those that have them


def attempts(uid: str, turns: Sequence[Turn], how: str) -> dict[str, float]:
    outcomes = [turn.verdict and turn.verdict.outcome for turn in turns]
    if not outcomes or None in outcomes:
        wrong = "an attempt without a verdict" if outcomes else "no attempts"
        raise ValueError(f"lesson {uid} has {wrong} {how}, so it shows neither gain nor loss: leave it out")
    return {
        f"attempts_{how}": len(turns),
        f"unparsed_{how}": outcomes.count("unparsed"),
        f"finished_{how}": sum(turn.sample.finish == "stop" for turn in turns),
        f"tokens_{how}": sum(turn.sample.tokens for turn in turns),
        f"seconds_{how}": sum(turn.sample.seconds for turn in turns),
    }
