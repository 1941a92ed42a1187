"""Who speaks: engines that generate and score tokens."""

from tutelage.engines.base import Engine, Message, Sample, Sampling

__all__ = ["Engine", "Message", "Sample", "Sampling"]
