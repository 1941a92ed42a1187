"""What a lesson was worth: pure functions of Episodes to named parts."""

from tutelage.rewards.adaptive import Terms, paired, penalty, worth, zero
from tutelage.rewards.explain import Likelihood, explained, likelihood, observed

__all__ = ["Likelihood", "Terms", "explained", "likelihood", "observed", "paired", "penalty", "worth", "zero"]
