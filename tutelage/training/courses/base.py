"""What a method of reinforcement has to say for itself."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tutelage.engines import Engine
from tutelage.engines.tokens import TokenEngine
from tutelage.evaluate import plan
from tutelage.lessons import Episode
from tutelage.lessons.adaptive import attempt
from tutelage.metrics import Estimate
from tutelage.problem import Problem
from tutelage.rewards.adaptive import accuracy
from tutelage.training.cast import Cast
from tutelage.training.config import Train


@dataclass(frozen=True)
class Trained:
    """What of a lesson is trained: the sampled ids themselves, behind the prompt they were sampled from."""

    prompt: Sequence[int]
    completion: Sequence[int]
    logprobs: Sequence[float]
    mask: Sequence[int] | None = None  # 1 where the policy spoke; None: everywhere
    turns: Sequence[int] | None = None  # which of its turns each token belongs to, where credit is given by turn
    critique: tuple[Sequence[int], Sequence[int]] | None = None  # a prompt and a reply to imitate besides


class Course(ABC):
    """Holds lessons on problems, in training and to examine; everything else of reinforcement is common to all."""

    def __init__(self, config: Train, cast: Cast):
        self.config, self.cast, self.plan = config, cast, plan(config)

    @property
    @abstractmethod
    def headline(self) -> str:
        """The metric to draw besides the reward."""

    @abstractmethod
    async def hold(self, problem: Problem, voice: Engine, copy: int) -> Episode:
        """A lesson to train on; `voice` is the policy, asked by all copies of the lesson."""

    @abstractmethod
    async def examine(self, problem: Problem) -> Episode:
        """A lesson on a held-out problem."""

    async def rate(self, problem: Problem) -> float:
        """How often the student solves it by itself, for the curriculum."""
        return accuracy(await attempt(problem, None, self.cast.frozen, self.plan, self.plan.baseline_samples))

    @abstractmethod
    def parts(self, episode: Episode) -> Mapping[str, float]:
        """What the lesson was worth, by name; the reward is their sum."""

    @abstractmethod
    def trained(self, episode: Episode) -> Trained: ...

    @abstractmethod
    def measure(self, episodes: Sequence[Episode], resamples: int) -> dict[str, Estimate]:
        """What lessons show, for the log and for held-out evaluations."""

    @abstractmethod
    def rank(self, found: Mapping[str, Estimate]) -> tuple[float, ...]:
        """The best checkpoint is the one with the highest."""

    @abstractmethod
    def unfit(self, problem: Problem) -> str:
        """Why no lesson can be held on a problem, in words that are the same for alike problems; empty when it can."""

    def outcome(self, episode: Episode) -> Sequence[float] | None:
        """What is compared to find a lesson's advantages, turn by turn: a group in which it is the same at each turn,
        for all that have one, teaches nothing. None: nothing is to be learned from this lesson."""
        return [float(episode.meta["worth"])]

    def credit(self, group: Sequence[Episode]) -> list[list[float]] | None:
        """The advantage of every turn of every lesson of a group; None: that of the reward, for the whole lesson."""
        return None

    def valued(self, episode: Episode, **meta: Any) -> Episode:
        """The lesson with its worth."""
        parts = dict(self.parts(episode))
        return replace(episode, meta={**episode.meta, **meta, "reward": parts, "worth": sum(parts.values())})


def too_long(config: Train, engine: TokenEngine) -> str:
    limit = f"raise max_prompt_length={config.max_prompt_length}"
    return f"the prompt is too long: {limit}" + (
        f", or use a model with more than the {engine.context}-token context of {engine.name}"
        if engine.context <= config.max_prompt_length
        else ""
    )
