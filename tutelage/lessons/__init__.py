"""What teacher and student say to each other."""

from tutelage.lessons.adaptive import Plan, adaptive
from tutelage.lessons.episode import Episode, Scores, Turn
from tutelage.lessons.explain import Outline, explain
from tutelage.lessons.feedback import feedback, independent
from tutelage.lessons.solo import solo
from tutelage.lessons.styles import STYLES, Style

__all__ = [
    "STYLES",
    "Episode",
    "Outline",
    "Plan",
    "Scores",
    "Style",
    "Turn",
    "adaptive",
    "explain",
    "feedback",
    "independent",
    "solo",
]
