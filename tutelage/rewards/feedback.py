"""Credit in a dialogue: what each attempt led to, discounted, against the others of its group that got as far."""

from collections.abc import Sequence
from statistics import fmean

from tutelage.lessons.episode import Episode
from tutelage.lessons.feedback import attempts, solved, trainable

CREDITS = ("turn", "trajectory")


def returns(episode: Episode, gamma: float = 0.7, partial: float = 1.0) -> list[float]:
    """One return per attempt: gamma to the number of attempts that were still needed, if the dialogue was solved.

    An unsolved one is worth what its last attempt got right, where the checker can tell, times `partial`; as if that
    had taken all the turns there were, so that to fill the context early pays no more than to go on.
    """
    turns = attempts(episode)
    final, end = turns[-1].verdict, len(turns)
    worth = 1.0
    if not solved(episode):
        worth = partial * (final.score if final else 0.0)
        end = max(end, episode.meta.get("max_turns", end))  # records of earlier versions do not hold it
    return [gamma ** (end - turn) * worth for turn in range(1, len(turns) + 1)]


def advantages(
    group: Sequence[Episode], gamma: float = 0.7, how: str = "turn", partial: float = 1.0
) -> list[list[float]]:
    """For each attempt of each dialogue of one problem, how much better it did than the group.

    "turn": against the mean return of those that made an attempt at this turn. "trajectory": the whole dialogue's
    return against the group's mean, the same for all its attempts. Dialogues that nothing is to be learned from
    get zeros and are no part of a mean.
    """
    gained = [returns(episode, gamma, partial) for episode in group]
    if how == "trajectory":
        gained = [[each[0]] * len(each) for each in gained]
    kept = [each for each, episode in zip(gained, group, strict=True) if trainable(episode)]
    longest = max(map(len, kept), default=0)
    alive = [[each[turn] for each in kept if turn < len(each)] for turn in range(longest)]
    if how == "trajectory":
        alive = alive[:1] * longest
    means = [fmean(values) for values in alive]
    return [
        [value - mean for value, mean in zip(each, means, strict=False)] if trainable(episode) else [0.0] * len(each)
        for each, episode in zip(gained, group, strict=True)
    ]
