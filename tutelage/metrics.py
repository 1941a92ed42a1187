"""What a set of lessons shows: every metric of the ATLAS documents, each with a bootstrap interval."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from tutelage.lessons.episode import Episode, Turn

Unit = Literal["percent", "points", "score", "tokens", "seconds"]  # percent and points: times 100 when shown

CELLS = 2_000_000  # resamples x lessons drawn at once: 16 MB for each of the four arrays of that size


@dataclass(frozen=True)
class Estimate:
    """A metric and its interval; None where undefined, like the leak rate of a teacher that never taught."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Metric:
    """How a metric is shown and computed. `of` sees sums over lessons, named as in `numbers`."""

    label: str
    unit: Unit
    about: str
    of: Callable[[Any], Any]


# A table, kept at two lines for one metric.
# fmt: off
METRICS: dict[str, Metric] = {
    "baseline_accuracy": Metric("Accuracy alone", "percent",
        "correct answers without teaching; unparsed ones earn nothing", lambda s: s.baseline / s.lessons),
    "taught_accuracy": Metric("Accuracy taught", "percent",
        "correct answers with teaching; unparsed ones earn nothing", lambda s: s.score / s.lessons),
    "apg": Metric("Performance gain (APG)", "points",
        "mean of taught minus baseline accuracy", lambda s: s.gain / s.lessons),
    "ndr": Metric("Non-degradation rate (NDR)", "percent",
        "lessons after which the student does at least as well as alone", lambda s: s.kept / s.lessons),
    "degradation_rate": Metric("Degraded", "percent",
        "lessons after which the student does worse than alone", lambda s: s.degraded / s.lessons),
    "improvement_rate": Metric("Improved", "percent",
        "lessons after which the student does better than alone", lambda s: s.improved / s.lessons),
    "degradation_unparsed": Metric("Degraded and unparsed", "percent",
        "degraded lessons with some unparsed taught answer", lambda s: s.degraded_unparsed / s.degraded),
    "lr": Metric("Learning rate (LR)", "points",
        "accuracy gained per lesson in which teaching reached the student", lambda s: s.gain / s.reached),
    "tes": Metric("Teaching efficiency (TES)", "score",
        "gain x completion for every 1000 teaching tokens",
        lambda s: s.gain * (s.finished_taught / s.attempts_taught) / (s.teaching_tokens / 1000)),
    "completion_rate_alone": Metric("Completed alone", "percent",
        "attempts alone that ended within the token limit", lambda s: s.finished_alone / s.attempts_alone),
    "completion_rate": Metric("Completed taught", "percent",
        "taught attempts that ended within the token limit", lambda s: s.finished_taught / s.attempts_taught),
    "teaching_tokens": Metric("Teaching tokens", "tokens",
        "length of the teaching per lesson, abstentions included", lambda s: s.teaching_tokens / s.lessons),
    "student_tokens_alone": Metric("Student tokens alone", "tokens",
        "tokens the student writes per attempt alone", lambda s: s.tokens_alone / s.attempts_alone),
    "student_tokens": Metric("Student tokens taught", "tokens",
        "tokens the student writes per taught attempt", lambda s: s.tokens_taught / s.attempts_taught),
    "abstention_rate": Metric("Abstained", "percent",
        "lessons in which the teacher chose to leave the student alone", lambda s: s.abstained / s.lessons),
    "malformed_rate": Metric("Malformed", "percent",
        "lessons in which the teacher did not keep to its tags", lambda s: s.malformed / s.lessons),
    "leak_rate": Metric("Leaked", "percent",
        "lessons that taught and gave the answer away", lambda s: s.leaked / s.reached),
    "unparsed_alone": Metric("Unparsed alone", "percent",
        "attempts alone in which no answer was found", lambda s: s.unparsed_alone / s.attempts_alone),
    "unparsed_taught": Metric("Unparsed taught", "percent",
        "taught attempts in which no answer was found", lambda s: s.unparsed_taught / s.attempts_taught),
    "generation_seconds_alone": Metric("Seconds alone", "seconds",
        "time the student takes per attempt alone", lambda s: s.seconds_alone / s.attempts_alone),
    "generation_seconds": Metric("Seconds taught", "seconds",
        "time the student takes per taught attempt", lambda s: s.seconds_taught / s.attempts_taught),
}
# fmt: on


def measure(
    episodes: Iterable[Episode], resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Every metric with its paired percentile bootstrap interval: lessons are drawn, whole, with replacement.

    The same lessons give the same numbers in whatever order they come.
    """
    lessons = [(episode.uid, numbers(episode)) for episode in episodes]
    if not lessons:
        raise ValueError("there are no lessons to measure: run an evaluation with at least one problem first")
    names = list(lessons[0][1])
    rows = sorted((uid, list(row.values())) for uid, row in lessons)
    columns = np.array([row for _, row in rows], dtype=float)
    sums = np.concatenate([columns.sum(axis=0, keepdims=True), *resampled(columns, resamples, seed)])
    named = SimpleNamespace(**dict(zip(names, sums.T, strict=True)))
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 is how a metric says that it is undefined
        return {name: _estimate(metric.of(named), confidence) for name, metric in METRICS.items()}


def interval(values: Sequence[float], resamples: int = 2000, seed: int = 0, confidence: float = 0.95) -> Estimate:
    """The mean of one number per lesson, with its bootstrap interval."""
    columns = np.array([[value, 1.0] for value in values])
    sums = np.concatenate([columns.sum(axis=0, keepdims=True), *resampled(columns, resamples, seed)])
    return _estimate(sums[:, 0] / sums[:, 1], confidence)


def numbers(episode: Episode) -> dict[str, float]:
    """One lesson as the numbers that are added up: all metrics are made of their sums."""
    alone = _attempts(episode.uid, episode.alone, "alone")
    taught = _attempts(episode.uid, episode.taught, "taught")
    b, t = (sum(turn.correct for turn in turns) / len(turns) for turns in (episode.alone, episode.taught))
    return {
        "lessons": 1,
        "baseline": b,
        "score": t,
        "gain": t - b,
        "kept": t >= b,
        "degraded": t < b,
        "improved": t > b,
        "degraded_unparsed": t < b and taught["unparsed_taught"] > 0,
        "abstained": episode.abstained and not episode.malformed,
        "reached": not episode.abstained,
        "leaked": episode.leaked and not episode.abstained,
        "malformed": episode.malformed,
        "teaching_tokens": episode.teaching_tokens,
        **alone,
        **taught,
    }


def to_dict(estimates: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """For JSON: undefined is null, never NaN."""
    return {name: asdict(estimate) for name, estimate in estimates.items()}


def resampled(columns: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Column sums of resampled lessons: how often each lesson was drawn, times what it holds."""
    n, rng = len(columns), np.random.default_rng(seed)
    chunk = max(1, CELLS // n)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        # Counting draws gives multinomial counts and is several times faster than drawing those.
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) @ columns


def _attempts(uid: str, turns: Sequence[Turn], how: str) -> dict[str, float]:
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


def _estimate(values: np.ndarray, confidence: float) -> Estimate:
    """The first value is that of the lessons themselves, the others are of resamples."""
    # Rounded so that data without spread has no width from the last bit of a float.
    value, draws = np.round(values[0], 12), np.round(values[1:][np.isfinite(values[1:])], 12)
    if not np.isfinite(value) or not len(draws):
        return Estimate(float(value) if np.isfinite(value) else None, None, None)
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(value), float(low), float(high))
