"""The explain lesson: how likely a student finds solution and explanation, and whether it answers better for it."""

from collections.abc import Iterable

from tutelage.lessons.episode import Episode
from tutelage.metrics.table import Metric

# fmt: off
METRICS: dict[str, Metric] = {
    "solution_logprob": Metric("Solution log-prob", "score",
        "mean log-prob of a solution token for the student that has read the explanation",
        lambda s: s.solution / s.scored),
    "thought_logprob": Metric("Explanation log-prob", "score",
        "mean log-prob of an explanation token for the student", lambda s: s.thought / s.told),
    "kl": Metric("Teacher over student", "score",
        "how much likelier the teacher finds its words than the student, per token", lambda s: s.gap / s.compared),
    "restated": Metric("Restated", "percent",
        "share of the solution that the explanation says in the same words", lambda s: s.restated / s.lessons),
    "answer_stated": Metric("States the answer", "percent",
        "explanations that hold the final answer", lambda s: s.leaked / s.lessons),
    "malformed_rate": Metric("Malformed", "percent",
        "lessons in which the teacher did not keep to its tags", lambda s: s.malformed / s.lessons),
    "unscored": Metric("Unscored", "percent",
        "explanations too long or too strange to be scored", lambda s: s.unscored / s.lessons),
    "teaching_tokens": Metric("Explanation tokens", "tokens",
        "length of the explanation", lambda s: s.teaching_tokens / s.lessons),
    "baseline_accuracy": Metric("Accuracy alone", "percent",
        "correct answers without teaching; unparsed ones earn nothing", lambda s: s.baseline / s.judged),
    "taught_accuracy": Metric("Accuracy taught", "percent",
        "correct answers with teaching; unparsed ones earn nothing", lambda s: s.taught / s.judged),
    "apg": Metric("Performance gain (APG)", "points",
        "mean of taught minus baseline accuracy", lambda s: (s.taught - s.baseline) / s.judged),
}
# fmt: on


def metrics(names: Iterable[str]) -> dict[str, Metric]:
    return METRICS


def numbers(episode: Episode) -> dict[str, float]:
    """One explanation as the numbers that are added up; the student's answers count where there are any."""
    scores = episode.scores
    if scores is None:
        raise ValueError(f"lesson {episode.uid} has no scores: leave it out")
    judged = bool(episode.alone) and all(turn.verdict for turn in episode.alone + episode.taught)
    alone, taught = ([turn.correct for turn in turns] for turns in (episode.alone, episode.taught))
    return {
        "lessons": 1,
        "solution": _mean(scores.solution),
        "scored": bool(scores.solution),
        "thought": _mean(scores.thought),
        "told": bool(scores.thought),
        "gap": _mean(scores.teacher) - _mean(scores.thought) if scores.teacher else 0.0,
        "compared": bool(scores.teacher),
        "restated": scores.restated,
        "leaked": episode.leaked,
        "malformed": episode.malformed,
        "unscored": bool(scores.unscored),
        "teaching_tokens": episode.teaching_tokens,
        "judged": judged,
        "baseline": _mean(alone) if judged else 0.0,
        "taught": _mean(taught) if judged else 0.0,
    }


def _mean(values: Iterable[float] | None) -> float:
    listed = list(values or ())
    return sum(listed) / len(listed) if listed else 0.0
