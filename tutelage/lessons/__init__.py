"""What teacher and student say to each other."""

from tutelage.lessons.adaptive import Plan, adaptive
from tutelage.lessons.episode import Episode, Turn
from tutelage.lessons.solo import solo

__all__ = ["Episode", "Plan", "Turn", "adaptive", "solo"]
