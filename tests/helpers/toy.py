"""`tutelage train` with a reward that anything can learn; run as a script, one process of a training."""

import sys

from tutelage import rewards
from tutelage.lessons import Episode


def even(episode: Episode, terms: object) -> dict[str, float]:
    """More tokens with even ids in the teacher's reply are better."""
    ids = episode.turns[1].sample.ids
    return {"even": sum(token % 2 == 0 for token in ids) / len(ids)}


if __name__ == "__main__":
    from tutelage.cli import main

    rewards.adaptive.REWARDS["toy"] = even
    sys.exit(main(["train", *sys.argv[1:]]))
