"""The adaptive lesson: every metric of the ATLAS documents."""

from tutelage.lessons.episode import Episode
from tutelage.metrics.table import Metric, attempts

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


def numbers(episode: Episode) -> dict[str, float]:
    """One lesson as the numbers that are added up: all metrics are made of their sums."""
    return told(episode) | outcomes(episode)


def told(episode: Episode) -> dict[str, float]:
    """What the teacher did."""
    return {
        "lessons": 1,
        "abstained": episode.abstained and not episode.malformed,
        "reached": not episode.abstained,
        "leaked": episode.leaked and not episode.abstained,
        "malformed": episode.malformed,
        "teaching_tokens": episode.teaching_tokens,
    }


def outcomes(episode: Episode) -> dict[str, float]:
    """What the student made of it."""
    alone = attempts(episode.uid, episode.alone, "alone")
    taught = attempts(episode.uid, episode.taught, "taught")
    b, t = (sum(turn.correct for turn in turns) / len(turns) for turns in (episode.alone, episode.taught))
    return {
        "baseline": b,
        "score": t,
        "gain": t - b,
        "kept": t >= b,
        "degraded": t < b,
        "improved": t > b,
        "degraded_unparsed": t < b and taught["unparsed_taught"] > 0,
        **alone,
        **taught,
    }
