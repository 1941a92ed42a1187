"""What teacher and student say to each other."""

from tutelage.lessons.adaptive import Plan, adaptive
from tutelage.lessons.episode import Episode, Turn
from tutelage.lessons.feedback import feedback, independent

__all__ = ["Episode", "Plan", "Turn", "adaptive", "feedback", "independent"]
