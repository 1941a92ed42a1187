"""Pictures and pages of what happened."""

from tutelage.report.curve import learning
from tutelage.report.dialogues import students
from tutelage.report.terminal import compared, dataset, say, table, titled, transcript

__all__ = ["compared", "dataset", "learning", "say", "students", "table", "titled", "transcript"]
