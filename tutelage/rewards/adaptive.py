"""Rewards of the adaptive lesson: two as published, and `paired`, which is built on sample means."""

from collections.abc import Callable
from dataclasses import dataclass

from tutelage.errors import ConfigError, nearest
from tutelage.lessons.episode import Episode, Turn

Parts = dict[str, float]


@dataclass(frozen=True)
class Terms:
    """The knobs of a reward, by the names users know."""

    degradation_penalty_multiplier: float = 2.0
    efficiency_weight: float = 1.0
    leak_penalty: float = 1.0
    format_penalty: float = 0.5


def accuracy(turns: tuple[Turn, ...]) -> float:
    """Share of correct answers; an unparsed one is not correct, and metrics count it apart."""
    return sum(turn.correct for turn in turns) / len(turns)


def efficiency(episode: Episode) -> float:
    """1 for no teaching at all, 1/2 at 100 tokens."""
    return 100 / (100 + episode.teaching_tokens)


def paired(episode: Episode, terms: Terms) -> Parts:
    """Gain over the shared baseline, harm weighed more, brevity paid only where it helped.

    Abstention is worth exactly nothing: better than harm, worse than any help, so neither silence nor
    chatter can be farmed. A gain bought by stating the answer is not credited.
    """
    gain = accuracy(episode.taught) - accuracy(episode.alone)
    helped = 0.0 if episode.leaked else max(0.0, gain)
    harm = max(0.0, -gain)
    return {
        "gain": helped - harm,
        "degradation": -(terms.degradation_penalty_multiplier - 1) * harm,
        "efficiency": terms.efficiency_weight * efficiency(episode) * helped,
        "leak": -terms.leak_penalty * episode.leaked,
        "format": -terms.format_penalty * episode.malformed,
    }


def penalty(episode: Episode, terms: Terms) -> Parts:
    """As first published: degradation costs its size times the multiplier."""
    return _published(episode, terms, terms.degradation_penalty_multiplier)


def zero(episode: Episode, terms: Terms) -> Parts:
    """As published later: degradation earns nothing."""
    return _published(episode, terms, 0.0)


def _published(episode: Episode, terms: Terms, multiplier: float) -> Parts:
    baseline, taught = accuracy(episode.alone), accuracy(episode.taught)
    gain = taught - baseline
    bonus = 1 + terms.efficiency_weight * efficiency(episode)
    if gain < 0:
        return {"gain": 0.0, "degradation": -multiplier * -gain}
    # With sample means "both right" becomes a share: what the student could do already, kept.
    return {"gain": gain * bonus + 0.5 * bonus * baseline, "degradation": 0.0}


REWARDS: dict[str, Callable[[Episode, Terms], Parts]] = {"paired": paired, "penalty": penalty, "zero": zero}


def worth(name: str, episode: Episode, terms: Terms) -> Parts:
    """A reward by name."""
    if name not in REWARDS:
        raise ConfigError(f"no reward {name!r}; {nearest(name, REWARDS)}")
    return REWARDS[name](episode, terms)
