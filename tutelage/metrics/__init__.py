"""What a set of lessons shows: the metrics of its kind, each with a bootstrap interval."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace

import numpy as np

from tutelage.lessons.episode import Episode
from tutelage.metrics import adaptive, explain, solo
from tutelage.metrics.adaptive import METRICS
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
    "explain": Table(explain.numbers, explain.metrics),
    "solo": Table(solo.numbers, solo.metrics),
}

CELLS = 2_000_000  # resamples x lessons drawn at once: 16 MB for each of the four arrays of that size


@dataclass(frozen=True)
class Estimate:
    """A metric and its interval; None where undefined, like the leak rate of a teacher that never taught."""

    value: float | None
    low: float | None
    high: float | None


def measure(
    episodes: Iterable[Episode], resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Every metric with its paired percentile bootstrap interval: lessons are drawn, whole, with replacement.

    The same lessons give the same numbers in whatever order they come.
    """
    kinds: set[str] = set()
    shapes: set[tuple[str, ...]] = set()
    rows: list[tuple[str, list[float]]] = []
    for episode in episodes:
        row = TABLES[episode.lesson].numbers(episode)
        kinds.add(episode.lesson)
        shapes.add(tuple(row))
        rows.append((episode.uid, list(row.values())))
    if not rows:
        raise ValueError("there are no lessons to measure: run an evaluation with at least one problem first")
    if len(kinds) > 1 or len(shapes) > 1:
        raise ValueError(f"lessons of different kinds or numbers of attempts ({', '.join(kinds)}): measure them apart")
    [kind], [names] = kinds, shapes
    rows.sort()
    columns = np.array([row for _, row in rows], dtype=float)
    sums = np.concatenate([columns.sum(axis=0, keepdims=True), *resampled(columns, resamples, seed)])
    named = SimpleNamespace(**dict(zip(names, sums.T, strict=True)))
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 is how a metric says that it is undefined
        return {name: _estimate(metric.of(named), confidence) for name, metric in TABLES[kind].metrics(names).items()}


def described(name: str) -> Metric | None:
    """The metric of a name, whatever lesson it is of."""
    found = (table.metrics([name]).get(name) for table in TABLES.values())
    return next(filter(None, found), None)


def interval(values: Sequence[float], resamples: int = 2000, seed: int = 0, confidence: float = 0.95) -> Estimate:
    """The mean of one number per lesson, with its bootstrap interval."""
    columns = np.array([[value, 1.0] for value in values])
    sums = np.concatenate([columns.sum(axis=0, keepdims=True), *resampled(columns, resamples, seed)])
    return _estimate(sums[:, 0] / sums[:, 1], confidence)


def to_dict(estimates: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """For JSON: undefined is null, never NaN."""
    return {name: asdict(estimate) for name, estimate in estimates.items()}


def from_dict(found: Mapping[str, Mapping[str, float | None]]) -> dict[str, Estimate]:
    return {name: Estimate(**parts) for name, parts in found.items()}


def resampled(columns: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Column sums of resampled lessons: how often each lesson was drawn, times what it holds."""
    n, rng = len(columns), np.random.default_rng(seed)
    chunk = max(1, CELLS // n)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        # Counting draws gives multinomial counts and is several times faster than drawing those.
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) @ columns


def _estimate(values: np.ndarray, confidence: float) -> Estimate:
    """The first value is that of the lessons themselves, the others are of resamples."""
    # Rounded so that data without spread has no width from the last bit of a float.
    value, draws = np.round(values[0], 12), np.round(values[1:][np.isfinite(values[1:])], 12)
    if not np.isfinite(value) or not len(draws):
        return Estimate(float(value) if np.isfinite(value) else None, None, None)
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(value), float(low), float(high))
