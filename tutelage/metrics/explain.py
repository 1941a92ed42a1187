"""The explain lesson: what an explanation does to a student's log-probs, and to its answers where it gave some."""

import re
from collections.abc import Iterable

import numpy as np

from tutelage.lessons.episode import Episode
from tutelage.lessons.leak import leaks
from tutelage.metrics import adaptive
from tutelage.metrics.table import Metric

# A table, kept at two lines for one metric. Each is a sum of its own name over those lessons that have it.
# fmt: off
METRICS: dict[str, Metric] = {
    "solution_logprob": Metric("Solution log-prob", "score",
        "mean log-prob of the solution after what the student was shown", lambda s: s.solution_logprob / s.scored),
    "solution_logprob_alone": Metric("Solution log-prob alone", "score",
        "the same without an explanation", lambda s: s.solution_logprob_alone / s.scored),
    "solution_gain": Metric("Solution log-prob gained", "score",
        "mean log-prob with the explanation minus without", lambda s: s.solution_gain / s.scored),
    "explanation_kl": Metric("Explanation KL", "score",
        "mean log-prob of the explanation's tokens, teacher minus student", lambda s: s.explanation_kl / s.compared),
    "restated": Metric("Solution restated", "percent",
        "share of the solution that the explanation repeats in the same words", lambda s: s.restated / s.lessons),
    "answer_first": Metric("Answer told at once", "percent",
        "explanations that state the answer in their first sentence", lambda s: s.answer_first / s.lessons),
    "unscored_rate": Metric("Unscored", "percent",
        "explanations that the student could not be shown", lambda s: s.unscored_rate / s.lessons),
}
# fmt: on
TOLD = ("teaching_tokens", "malformed_rate", "leak_rate")


def metrics(names: Iterable[str]) -> dict[str, Metric]:
    """Those of the log-probs that these lessons have; and of the adaptive lesson's, what was told and answered."""
    there = set(names)
    own = {name: metric for name, metric in METRICS.items() if name in there}
    told = [name for name in TOLD if name != "leak_rate" or "leaked" in there]
    others = adaptive.METRICS if "attempts_taught" in there else told
    return own | {name: adaptive.METRICS[name] for name in others}


def numbers(episode: Episode) -> dict[str, float]:
    """One explanation as the numbers that are added up; answers count where a student was asked for some."""
    scores = episode.scores
    if scores is None:
        raise ValueError(f"lesson {episode.uid} has no scores, so it shows nothing of an explanation: leave it out")
    scored, compared = bool(scores.solution), bool(scores.thought and scores.teacher)
    after = float(np.mean(scores.solution)) if scored else 0.0
    found: dict[str, float] = {
        "scored": scored,
        "solution_logprob": after,
        "compared": compared,
        "explanation_kl": float(np.mean(np.subtract(scores.teacher or (), scores.thought))) if compared else 0.0,
        "restated": scores.restated,
        "unscored_rate": bool(scores.unscored),
        **adaptive.told(episode),
    }
    if "unaided" in episode.meta:
        before = float(np.mean(episode.meta["unaided"])) if scored else 0.0
        found |= {"solution_logprob_alone": before, "solution_gain": after - before}
    if episode.answer:
        found["answer_first"] = leaks(opening(episode.teaching or ""), episode.answer, episode.question)
    else:
        del found["leaked"]  # there is nothing to give away
    return found | (adaptive.outcomes(episode) if episode.alone else {})


def opening(text: str) -> str:
    """The first sentence or line, with the next one where it ends in a colon."""
    text = re.sub(r":\W*\n\s*", ": ", re.sub(r"\A[\s*_#>]*(?:1[.)]\s+)?", "", text))
    return re.split(r"(?<=[.!?])(?<!\b[MD]r\.)(?<!\bM[sr]s\.)(?<!\bMs\.)\s|\n", text, maxsplit=1)[0]
