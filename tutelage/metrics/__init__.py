"""What a set of lessons shows: the metrics of its kind, each with a bootstrap interval."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from tutelage.lessons.episode import Episode
from tutelage.metrics import adaptive, explain, solo, turns
from tutelage.metrics.adaptive import METRICS
from tutelage.metrics.bootstrap import UNDEFINED, Estimate, estimate, interval, sums
from tutelage.metrics.table import Metric, Table, Unit

__all__ = [
    "METRICS",
    "TABLES",
    "Estimate",
    "Metric",
    "Table",
    "Unit",
    "described",
    "from_dict",
    "interval",
    "measure",
    "to_dict",
]

# A new kind of lesson is one more entry: its table is found by the name its episodes carry.
TABLES: dict[str, Table] = {
    "adaptive": Table(adaptive.numbers, lambda _: METRICS),
    "explain": Table(explain.numbers, explain.metrics, partial=True),
    "solo": Table(solo.numbers, solo.metrics),
}


@UNDEFINED
def measure(
    episodes: Iterable[Episode], resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Every metric with its paired percentile bootstrap interval: lessons are drawn, whole, with replacement.

    A metric is of all lessons that have its numbers. The same lessons give the same in whatever order they come.
    """
    kinds: set[str] = set()
    shapes: set[tuple[str, ...]] = set()
    rows: list[tuple[str, dict[str, float]]] = []
    for episode in episodes:
        row = TABLES[episode.lesson].numbers(episode)
        kinds.add(episode.lesson)
        shapes.add(tuple(row))
        rows.append((episode.uid, row))
    if not rows:
        raise ValueError("there are no lessons to measure: run an evaluation with at least one problem first")
    table = TABLES[kinds.pop()]
    if kinds or (len(shapes) > 1 and not table.partial):
        raise ValueError("lessons of different kinds or numbers of attempts: measure them apart")
    rows.sort(key=lambda one: (one[0], *one[1].values()))
    found: dict[str, Estimate] = {}
    for names in sorted(shapes, key=len, reverse=True):  # the fewer numbers, the more lessons have them: those count
        had = sums(
            [{name: row[name] for name in names} for _, row in rows if row.keys() >= set(names)], resamples, seed
        )
        found |= {name: estimate(metric.of(had), confidence) for name, metric in table.metrics(names).items()}
    return found


def described(name: str) -> Metric | None:
    """The metric of a name, whatever lesson it is of."""
    found = (table.metrics([name]).get(name) for table in TABLES.values())
    return next(filter(None, found), None) or turns.named(name)


def to_dict(estimates: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """For JSON: undefined is null, never NaN."""
    return {name: asdict(estimate) for name, estimate in estimates.items()}


def from_dict(found: Mapping[str, Mapping[str, float | None]]) -> dict[str, Estimate]:
    return {name: Estimate(**parts) for name, parts in found.items()}
