"""The methods of reinforcement, a file each: which lesson, what of it is trained, what it was worth."""

from tutelage.training.cast import Cast
from tutelage.training.config import Train
from tutelage.training.courses.adaptive import Adaptive
from tutelage.training.courses.base import Course, Trained

__all__ = ["Course", "Trained", "course"]

COURSES: dict[str, type[Course]] = {"rcl": Adaptive}


def course(config: Train, cast: Cast) -> Course:
    return COURSES[config.method](config, cast)
