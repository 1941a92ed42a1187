"""Pictures and pages of what happened."""

from tutelage.report.curve import learning
from tutelage.report.dialogues import students
from tutelage.report.terminal import compared, dataset, table, titled, transcript

__all__ = ["compared", "dataset", "learning", "students", "table", "titled", "transcript"]
