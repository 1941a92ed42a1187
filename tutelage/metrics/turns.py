"""What a set of dialogues shows: accuracy by turn, what feedback changes, and what of it is more than luck."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tutelage.lessons.episode import Episode
from tutelage.lessons.feedback import attempts
from tutelage.metrics.bootstrap import UNDEFINED, Estimate, estimate, sums
from tutelage.metrics.table import Metric
from tutelage.verify import compare

SPECIFIC = ("gain", "csr", "plasticity")  # what trying again also brings about, and controls are subtracted from
LONG = 200  # characters; answers over this are programs or grids, and are compared as they stand

Numbers = dict[str, float]
Totals = dict[str, Numbers]  # by problem: intervals are over whole problems, whatever the number of dialogues on each


# fmt: off
METRICS: dict[str, Metric] = {
    "gain": Metric("Multi-turn gain", "points",
        "accuracy by the last turn minus accuracy at the first", lambda s: (s.last - s.first) / s.dialogues),
    "csr": Metric("Correction success (CSR)", "percent",
        "correct at the next turn, of answers that were wrong", lambda s: s.corrected / s.wrong),
    "plasticity": Metric("Plasticity", "percent",
        "another answer at the next turn, of answers that were wrong", lambda s: s.changed / s.answered),
    "turns": Metric("Turns", "score",
        "attempts per dialogue", lambda s: s.attempts / s.dialogues),
    "unparsed": Metric("Unparsed", "percent",
        "attempts in which no answer was found", lambda s: s.unparsed / s.attempts),
    "truncated": Metric("Cut off", "percent",
        "attempts that the token limit ended", lambda s: s.truncated / s.attempts),
    "attempt_tokens": Metric("Tokens per attempt", "tokens",
        "tokens the student writes at a turn", lambda s: s.attempt_tokens / s.attempts),
    "hint_tokens": Metric("Tokens per hint", "tokens",
        "tokens the teacher's model writes at a turn", lambda s: s.hint_tokens / s.hints),
    "leaked": Metric("Leaked", "percent",
        "dialogues in which a hint gave the answer away", lambda s: s.leaked / s.dialogues),
    "flagged": Metric("Flagged", "percent",
        "dialogues in which no hint of the teacher's passed the guard", lambda s: s.flagged / s.dialogues),
    "regenerations": Metric("Regenerations", "score",
        "hints asked for again, per hint", lambda s: s.regenerations / s.hints),
    "overflow": Metric("Over the context", "percent",
        "dialogues that ended because a context was full", lambda s: s.overflow / s.dialogues),
    "refused": Metric("Refused", "percent",
        "dialogues that ended because an endpoint would not go on", lambda s: s.refused / s.dialogues),
}
# fmt: on


def metrics(max_turns: int) -> dict[str, Metric]:
    """Accuracy by each turn, and the rest."""
    return {f"acc@{turn}": _accuracy(turn) for turn in range(1, max_turns + 1)} | METRICS


def named(name: str) -> Metric | None:
    turn = name.removeprefix("acc@")
    return _accuracy(int(turn)) if turn.isdecimal() else METRICS.get(name)


def _accuracy(turn: int) -> Metric:
    about = "at the first turn" if turn == 1 else f"by turn {turn}"
    return Metric(
        f"Acc@{turn}", "percent", f"dialogues solved {about}", lambda s: vars(s)[f"solved_{turn}"] / s.dialogues
    )


def numbers(episode: Episode, max_turns: int) -> Numbers:
    """One dialogue as the numbers that are added up: all metrics are made of their sums."""
    turns = attempts(episode)
    verdicts = [turn.verdict for turn in turns if turn.verdict]
    when = next((number for number, turn in enumerate(turns, start=1) if turn.correct), max_turns + 1)
    # An unparsed reply is no wrong answer: no hint follows it, and it is counted apart.
    pairs = [(a, b) for a, b in pairwise(verdicts) if a.outcome == "incorrect"]
    hints = [
        b.sample
        for a, b in pairwise(episode.turns)
        if b.act == "hint" and a.verdict and a.verdict.outcome == "incorrect"
    ]
    answered = [(a.extracted or "", b.extracted or "") for a, b in pairs if b.outcome != "unparsed"]
    return {
        "dialogues": 1,
        **{f"solved_{turn}": when <= turn for turn in range(1, max_turns + 1)},
        "first": when <= 1,
        "last": when <= max_turns,
        "wrong": len(pairs),
        "corrected": sum(after.correct for _, after in pairs),
        "answered": len(answered),
        "changed": sum(not same(*pair, episode.meta.get("choices")) for pair in answered),
        "attempts": len(turns),
        "unparsed": sum(verdict.outcome == "unparsed" for verdict in verdicts),
        "truncated": sum(turn.sample.finish == "length" for turn in turns),
        "attempt_tokens": sum(turn.sample.tokens for turn in turns),
        "hints": len(hints),
        "hint_tokens": sum(sample.tokens for sample in hints),
        "leaked": episode.leaked,
        "flagged": episode.meta["flagged"] > 0,
        "regenerations": episode.meta["regenerations"],
        "overflow": episode.meta["overflow"],
        "refused": bool(episode.meta.get("refused")),
    }


def same(one: str, other: str, choices: Sequence[str] | None = None) -> bool:
    """Is it the same answer, by its words, its value or its letter? Two ways to write a formula are two answers."""
    if one.split() == other.split():
        return True
    if choices is not None:
        return compare.same_choice(one, other, choices) is True
    return max(len(one), len(other)) < LONG and compare.same_words(one, other)


def add(totals: Totals, episode: Episode, max_turns: int) -> None:
    """Take a dialogue into its problem's sums."""
    found = numbers(episode, max_turns)
    before = totals.get(episode.uid)
    totals[episode.uid] = found if before is None else {name: before[name] + found[name] for name in found}


def totals(episodes: Iterable[Episode], max_turns: int) -> Totals:
    result: Totals = {}
    for episode in episodes:
        add(result, episode, max_turns)
    return result


@UNDEFINED
def measure(
    taught: Totals, max_turns: int, resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Every metric with its interval: problems are drawn, with all their dialogues, with replacement."""
    if not taught:
        raise ValueError("there are no dialogues to measure: run at least one problem first")
    found = sums([taught[uid] for uid in sorted(taught)], resamples, seed)
    return {name: estimate(metric.of(found), confidence) for name, metric in metrics(max_turns).items()}


@UNDEFINED
def specific(
    taught: Totals, control: Totals, max_turns: int, resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> dict[str, Estimate]:
    """What feedback does beyond a control: differences, over the problems that have both, drawn in pairs."""
    known = metrics(max_turns)
    names = [f"acc@{max_turns}", *SPECIFIC]
    both = sorted(taught.keys() & control.keys())
    if not both:
        return {name: Estimate(None, None, None) for name in names}
    mine, theirs = (sums([side[uid] for uid in both], resamples, seed) for side in (taught, control))
    return {name: estimate(known[name].of(mine) - known[name].of(theirs), confidence) for name in names}
