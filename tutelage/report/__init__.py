"""Pictures and pages of what happened."""

from tutelage.report.terminal import dataset, table, transcript

__all__ = ["dataset", "table", "transcript"]
