"""`tutelage train` with a judge that a random model pleases now and then; run as a script: one process."""

import sys
from zlib import crc32

from tutelage.problem import Problem, Verdict


async def judge(problem: Problem, text: str) -> Verdict:
    """Every third reply is right, some cannot be read."""
    mark = crc32(text.encode()) % 6
    outcome = "correct" if mark < 2 else "unparsed" if mark == 2 else "incorrect"
    return Verdict(outcome, score=float(outcome == "correct"))  # type: ignore[arg-type]


if __name__ == "__main__":
    from tutelage.cli import main

    vars(sys.modules["tutelage.lessons.feedback"])["judge"] = judge
    sys.exit(main(["train", *sys.argv[1:]]))
