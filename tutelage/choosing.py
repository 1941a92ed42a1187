"""Which explanations become traces, and why others do not."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from tutelage.config import Traces
from tutelage.errors import DataError
from tutelage.lessons import Episode
from tutelage.lessons.explain import GARBLED, TOO_LONG
from tutelage.rewards.explain import CLOSED, Likelihood, explained

# What is chosen among explanations, not what they are: a change of these chooses anew from the same run.
CHOICE = {
    *("pick", "fits", "drop_malformed", "drop_leaked", "max_restated", "output"),
    *(field.name for field in fields(Likelihood)),
}
ENDS = {
    "missing": "no closing tag",
    "truncated": "no closing tag within max_tokens",
    "empty": "no word before the closing tag",
    "tagged": "tags or special tokens of its own",
}
LEAKED = "it states the final answer"
MISFIT = "too long for a model's context"


@dataclass(frozen=True)
class Candidate:
    """All that choosing needs of an explanation; its text and tokens stay on the disk."""

    uid: str
    copy: int
    worth: float
    length: int
    why: str  # it is left out; empty: it is not


def place(episode: Episode) -> tuple[str, int]:
    """An explanation is known by its problem and its number."""
    return episode.uid, episode.meta["copy"]


def candidate(episode: Episode, terms: Likelihood, config: Traces) -> Candidate:
    """An explanation as it is chosen: first by what speaks against it."""
    scores = episode.scores
    assert scores is not None
    why = ""
    if config.drop_malformed and scores.form not in CLOSED:
        why = ENDS[scores.form]
    elif scores.unscored:
        why = scores.unscored
    elif config.drop_leaked and episode.leaked:
        why = LEAKED
    elif scores.restated > config.max_restated:
        why = repeats(config)
    return Candidate(*place(episode), sum(explained(episode, terms).values()), scores.length, why)


def repeats(config: Traces) -> str:
    return f"it repeats more than {config.max_restated:g} of the solution"


def choose(
    candidates: Iterable[Candidate], config: Traces, misfits: Counter[str]
) -> tuple[set[tuple[str, int]], Counter[str]]:
    """Which explanations are kept, by problem and number, and why the others are not; misfits have none.

    `pick=fit` is for large students, whose texts must not be cut: the best that fits, and the best where none does.
    """
    groups: dict[str, list[Candidate]] = {}
    why: Counter[str] = Counter()
    for one in candidates:
        if one.why:
            why[one.why] += 1
        else:
            groups.setdefault(one.uid, []).append(one)
    chosen: set[tuple[str, int]] = set()
    for group in groups.values():
        best = sorted(group, key=lambda one: (-one.worth, one.copy))
        if config.pick == "fit":
            best.sort(key=lambda one: one.length > config.fits)
        kept = best if config.pick == "all" else best[:1]
        chosen |= {(one.uid, one.copy) for one in kept}
        why["another explanation of the problem is better"] += len(best) - len(kept)
    if not chosen:
        reasons = why + misfits
        listed = "; ".join(f"{reason} ({count})" for reason, count in reasons.items())
        raise DataError(f"no explanation can be kept: {listed}: {', or '.join(cures(config, reasons))}")
    return chosen, +why


def cures(config: Traces, reasons: Iterable[str]) -> list[str]:
    """What to do about these reasons, each once."""
    form = "teach the form first (run=teacher_sft lesson=explain), raise max_tokens, or type drop_malformed=false"
    known = {
        **dict.fromkeys(ENDS.values(), form),
        TOO_LONG: "lower max_tokens, or take a student with a longer context",
        GARBLED: "take a student with the teacher's tokenizer",
        LEAKED: "type drop_leaked=false",
        repeats(config): "type max_restated=1",
        MISFIT: "take models with a longer context or shorter problems",
    }
    return list(dict.fromkeys(known[reason] for reason in reasons))
