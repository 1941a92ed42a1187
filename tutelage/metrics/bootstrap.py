"""Metrics with intervals: what is added up for each lesson, or each problem, is drawn with replacement."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

UNDEFINED = np.errstate(divide="ignore", invalid="ignore")  # 0/0 is how a metric says so
CELLS = 2_000_000  # resamples x lessons drawn at once: 16 MB for each of the four arrays of that size


@dataclass(frozen=True)
class Estimate:
    """A metric and its interval; None where undefined, like the leak rate of a teacher that never taught."""

    value: float | None
    low: float | None
    high: float | None


def sums(rows: Sequence[Mapping[str, float]], resamples: int, seed: int) -> SimpleNamespace:
    """For each name its sums over the rows themselves and over every resample: of as many rows, the same seed draws the
    same ones."""
    names = list(rows[0])
    columns = np.array([[row[name] for name in names] for row in rows], dtype=float)
    drawn = np.concatenate([columns.sum(axis=0, keepdims=True), *resampled(columns, resamples, seed)])
    return SimpleNamespace(**dict(zip(names, drawn.T, strict=True)))


def resampled(columns: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Column sums of resampled lessons: how often each lesson was drawn, times what it holds."""
    n, rng = len(columns), np.random.default_rng(seed)
    chunk = max(1, CELLS // n)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        # Counting draws gives multinomial counts and is several times faster than drawing those.
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) @ columns


def estimate(values: np.ndarray, confidence: float) -> Estimate:
    """The first value is that of the lessons themselves, the others are of resamples."""
    # Rounded so that data without spread has no width from the last bit of a float.
    value, draws = np.round(values[0], 12), np.round(values[1:][np.isfinite(values[1:])], 12)
    if not np.isfinite(value) or not len(draws):
        return Estimate(float(value) if np.isfinite(value) else None, None, None)
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(value), float(low), float(high))


def interval(values: Sequence[float], resamples: int = 2000, seed: int = 0, confidence: float = 0.95) -> Estimate:
    """The mean of one number per lesson, with its bootstrap interval."""
    found = sums([{"value": value, "lessons": 1} for value in values], resamples, seed)
    return estimate(found.value / found.lessons, confidence)
