"""The solo lesson: how often a student is right alone, over several answers to each problem (avg@k, pass@k, maj@k)."""

from collections.abc import Iterable, Sequence
from math import comb

from tutelage.lessons.episode import Episode
from tutelage.metrics import adaptive
from tutelage.metrics.table import Metric, attempts
from tutelage.verify import compare

ALONE = ("unparsed_alone", "completion_rate_alone", "student_tokens_alone", "generation_seconds_alone")

# family → label and description, for k answers
FAMILIES = {
    "avg": ("Accuracy (avg@{k})", "mean share of correct answers among {k}; unparsed ones earn nothing"),
    "pass": ("Solved (pass@{k})", "chance that some answer of {k} is correct, without bias from all answers"),
    "maj": ("Majority (maj@{k})", "problems whose most frequent answer of {k} is correct; a tie counts by its share"),
}


def metrics(names: Iterable[str]) -> dict[str, Metric]:
    """The families' members that lessons with these numbers have; of attempts alone, what the adaptive lesson says."""
    members = {name: _member(name) for name in names if name.partition("@")[0] in FAMILIES}
    return members | {name: adaptive.METRICS[name] for name in ALONE}


def _member(name: str) -> Metric:
    family, _, k = name.partition("@")
    label, about = (text.format(k=k) for text in FAMILIES[family])
    return Metric(label, "percent", about, lambda sums: vars(sums)[name] / sums.lessons)


def numbers(episode: Episode) -> dict[str, float]:
    """One problem's answers as the numbers that are added up."""
    alone = attempts(episode.uid, episode.alone, "alone")
    n, right = len(episode.alone), sum(turn.correct for turn in episode.alone)
    return {
        "lessons": 1,
        f"avg@{n}": right / n,
        **{f"pass@{k}": passed(n, right, k) for k in doublings(n)},
        f"maj@{n}": majority(episode),
        **alone,
    }


def doublings(n: int) -> list[int]:
    """1, 2, 4, … and n itself."""
    return [2**power for power in range(n.bit_length()) if 2**power < n] + [n]


def passed(n: int, right: int, k: int) -> float:
    """The chance that k of n answers, drawn without replacement, hold one of the right ones: unbiased for k ≤ n."""
    return 1 - comb(n - right, k) / comb(n, k)


def majority(episode: Episode) -> float:
    """Whether most answers that agree are right: 1 or 0, and among equals the share of a fair draw."""
    right = sum(turn.correct for turn in episode.alone)
    verdicts = [turn.verdict for turn in episode.alone if turn.verdict]
    wrong = [verdict.extracted or "" for verdict in verdicts if verdict.outcome == "incorrect"]
    others = agreeing(wrong, choice=len(episode.answer) == 1 and episode.answer.isalpha())
    if not right or right < max(others, default=0):
        return 0.0
    return 1 / (1 + others.count(right))


def agreeing(answers: Sequence[str], choice: bool = False) -> list[int]:
    """How many answers say the same, for each thing said; by value where they are numbers, by letter of a choice."""
    same = compare.same_choice if choice else compare.same_words
    groups: list[list[str]] = []
    for answer in answers:
        for group in groups:
            if same(group[0], answer):
                group.append(answer)
                break
        else:
            groups.append([answer])
    return [len(group) for group in groups]
