"""What a lesson was worth: pure functions of Episodes to named parts."""

from tutelage.rewards.adaptive import Terms, paired, penalty, worth, zero

__all__ = ["Terms", "paired", "penalty", "worth", "zero"]
