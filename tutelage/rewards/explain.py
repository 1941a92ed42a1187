"""The reward of the explain lesson (RLT): how likely the solution becomes, less how strange the explanation is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tutelage.errors import ConfigError, nearest
from tutelage.lessons.episode import Episode
from tutelage.rewards.adaptive import Parts

Array = np.ndarray

CLOSED = ("closed", "trailing")  # what follows the tag reaches nobody: it is neither paid nor punished

REDUCTIONS: dict[str, Callable[[Array], Any]] = {
    "mean": np.mean,
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "median": np.median,
    "first_quartile": lambda values: np.quantile(values, 0.25),
    "last_quartile": lambda values: np.quantile(values, 0.75),
}
NORMALISERS: dict[str, Callable[[Array], Array]] = {
    "none": lambda values: values,
    "exp": np.exp,
    "exp_norm": lambda values: 1 - np.exp(-values),
}


@dataclass(frozen=True)
class Likelihood:
    """The knobs of the reward, by the names users know; a single value stands for a list of one."""

    answer_log_prob_coeff: Sequence[float] = (1.0, 0.01)
    kl_penalty_reward_coeff: Sequence[float] = (3.0, 0.03)
    reduction_log_prob_fn: Sequence[str] = ("mean", "min")
    reduction_kl_fn: Sequence[str] = ("mean", "max")
    clip_log_prob: float | None = 1e5
    clip_kl: float | None = 1e5
    normalize_log_prob_fn: str | None = None
    normalize_kl_fn: str | None = None
    use_schulman_kl_estimation: bool = False
    not_matched_penalty: float = -1.0
    include_teacher_think_entropy: bool = True

    def __post_init__(self) -> None:
        for weights, ways in (
            ("answer_log_prob_coeff", "reduction_log_prob_fn"),
            ("kl_penalty_reward_coeff", "reduction_kl_fn"),
        ):
            numbers, names = listed(getattr(self, weights)), listed(getattr(self, ways))
            for name in names:
                if name not in REDUCTIONS:
                    raise ConfigError(f"no {ways} {name!r}; {nearest(str(name), REDUCTIONS)}")
            if len(set(names)) < len(names):
                raise ConfigError(f"{ways}=[{','.join(names)}] names one twice: add up their coefficients instead")
            if len(numbers) != len(names):
                zeros = ",".join(["0"] * len(names))
                raise ConfigError(
                    f"{weights} has {len(numbers)} numbers for the {len(names)} of {ways}=[{','.join(names)}]: "
                    f"type as many, e.g. {weights}=[{zeros}]"
                )
            if not all(isinstance(number, int | float) and np.isfinite(number) for number in numbers):
                raise ConfigError(f"{weights}={list(numbers)} must hold numbers, e.g. {weights}=[1,0.01]")
            object.__setattr__(self, weights, tuple(float(number) for number in numbers))
            object.__setattr__(self, ways, names)
        for name in ("normalize_log_prob_fn", "normalize_kl_fn"):
            if (value := getattr(self, name)) is not None and value not in NORMALISERS:
                raise ConfigError(f"no {name} {value!r}; {nearest(str(value), NORMALISERS)}")
        for name in ("clip_log_prob", "clip_kl"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ConfigError(f"{name}={value} leaves nothing: type a number above 0, or null for no bound")
        if self.not_matched_penalty > 0:
            cost = -self.not_matched_penalty
            raise ConfigError(f"not_matched_penalty is added to the reward: type not_matched_penalty={cost:g}")
        if self.use_schulman_kl_estimation and not self.include_teacher_think_entropy:
            raise ConfigError(
                "use_schulman_kl_estimation=true compares with the teacher's log-probs: "
                "add include_teacher_think_entropy=true"
            )

    @property
    def compares(self) -> bool:
        """Whether the teacher's log-probs matter."""
        return self.include_teacher_think_entropy and any(self.kl_penalty_reward_coeff)

    def needs(self, comparable: bool) -> None:
        """Refuse a pair of models whose tokens cannot be compared, where they would have to be."""
        if self.compares and not comparable:
            raise ConfigError(
                "teacher and student have different tokenizers, so their log-probs cannot be compared token by token: "
                f"type kl_penalty_reward_coeff=[{','.join(['0'] * len(self.kl_penalty_reward_coeff))}] "
                "or include_teacher_think_entropy=false"
            )


def listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def likelihood(solution: Array, thought: Array, teacher: Array | None, closed: bool, terms: Likelihood) -> Parts:
    """Named parts whose sum is the reward: a·S − k·K + m.

    `solution` and `thought` are the student's log-probs of those tokens, `teacher` the teacher's of the thought.
    Where nothing was scored, or a number is none, S is −1 and K is +1.
    """
    answers = reduced(
        solution, terms.normalize_log_prob_fn, terms.clip_log_prob, terms.reduction_log_prob_fn, undefined=-1.0
    )
    parts = {
        f"answer_{name}": weight * answers[name]
        for name, weight in zip(terms.reduction_log_prob_fn, terms.answer_log_prob_coeff, strict=True)
    }
    gaps = dict.fromkeys(terms.reduction_kl_fn, 0.0)
    if any(terms.kl_penalty_reward_coeff):
        terms.needs(comparable=teacher is not None)
        gap = divergence(thought, teacher, terms)
        gaps = reduced(gap, terms.normalize_kl_fn, terms.clip_kl, terms.reduction_kl_fn, undefined=1.0)
    for name, weight in zip(terms.reduction_kl_fn, terms.kl_penalty_reward_coeff, strict=True):
        parts[f"kl_{name}"] = 0.0 - weight * gaps[name]
    parts["format"] = 0.0 if closed else terms.not_matched_penalty
    return parts


def divergence(thought: Array, teacher: Array | None, terms: Likelihood) -> Array:
    """By token: how much likelier the teacher found its word than the student does, or only how unlikely it is to the
    student, where the teacher's own entropy is left out."""
    if teacher is None or not terms.include_teacher_think_entropy:
        return -np.asarray(thought, dtype=float)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = np.asarray(teacher, dtype=float) - np.asarray(thought, dtype=float)
        return gap - 1 + np.exp(-gap) if terms.use_schulman_kl_estimation else gap


def reduced(
    values: Array, normaliser: str | None, clip: float | None, ways: Sequence[str], undefined: float
) -> dict[str, float]:
    """Each token normalised, then clipped, then all of them made one number in every way asked for."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = NORMALISERS[normaliser or "none"](np.asarray(values, dtype=float))
        if clip is not None:
            values = np.clip(values, -clip, clip)  # NaN stays NaN
        found = {name: float(REDUCTIONS[name](values)) if values.size else float("nan") for name in ways}
    return {name: value if np.isfinite(value) else undefined for name, value in found.items()}


def explained(episode: Episode, terms: Likelihood) -> Parts:
    """The reward of an explain lesson."""
    scores = episode.scores
    assert scores is not None, "only an explanation has scores"
    own = None if scores.teacher is None else np.array(scores.teacher)
    if scores.unscored:
        own = np.array(())  # undefined, whatever the tokenizers
    # A text that the student could not be shown is worth an empty one: to be unreadable must not be a way out.
    closed = scores.form in CLOSED and not scores.unscored
    return likelihood(np.array(scores.solution), np.array(scores.thought), own, closed, terms)
