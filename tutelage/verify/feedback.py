"""What a program can say about a wrong answer without giving the right one."""

from collections.abc import Sequence
from fractions import Fraction

from tutelage.problem import Problem, Verdict
from tutelage.verify import compare, quantity

FORM = {
    "math": "a number or an expression",
    "number": "a single number",
    "choice": "the letter of one option",
    "text": "a few words",
    "task": "the answer in the form the problem asks for",
}
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def remark(problem: Problem, verdict: Verdict) -> str:
    """One or two sentences on a reply that was not correct. Of the answer they hold what the reply got right at most.

    Nor what hidden tests expect; what they call a program with is, if it puts that into the message of an error.
    """
    if verdict.correct:
        return "That is correct."
    if verdict.outcome == "unparsed":
        return _form(problem, verdict)
    match problem.kind:
        case "code":
            return f"Your program was run and is not right yet: {verdict.why}."
        case "choice":
            return "That option is not the right one."
        case "task":
            return _task(problem, verdict)
        case "math" | "number":
            return _number(problem.answer, verdict) or "That is not the right answer."
    return "That is not the right answer."


def _form(problem: Problem, verdict: Verdict) -> str:
    """How an answer must look to be one."""
    if problem.kind == "code":
        if verdict.extracted is not None and verdict.why != "too long":
            return "Your program could not be checked."
        why = "Your program is too long" if verdict.why == "too long" else "There is no program in your reply"
        return f"{why}. Write the whole function in one block that begins with ```python and ends with ```."
    wanted = f"End with {FORM[problem.kind]} inside the tags: <solution>…</solution>"
    if verdict.extracted is None:
        return f"There is no final answer in your reply. {wanted}."
    reason = {"too long": "is too long", "timed out": "could not be worked out"}
    return f"Your final answer {reason.get(verdict.why, 'could not be read')}. {wanted}, and nothing else."


def _number(gold: str, verdict: Verdict) -> str:
    """Which digits of a number are wrong or, where none is right, on which side of the answer it lies.

    Both at once could leave one number only.
    """
    if verdict.why == "not evaluated":
        return "That leaves a calculation undone: work it out to a single number."
    wanted, given = (quantity.parse(compare.tidy(text)) for text in (gold, verdict.extracted or ""))
    if wanted is None or given is None:
        return ""
    if wanted.unit and given.unit and wanted.unit != given.unit:
        return "That is not in the unit that is asked for."
    if wanted.value == given.value:
        return ""
    side = "large" if given.value > wanted.value else "small"
    return f"That is not the right number: {_digits(wanted.value, given.value) or f'it is too {side}.'}"


def _digits(wanted: Fraction, given: Fraction) -> str:
    """A whole number as it was given, its wrong digits blotted out; nothing if it is not as long or all is wrong."""
    if wanted.denominator > 1 or given.denominator > 1 or (wanted < 0) != (given < 0):
        return ""
    said, right = str(given), str(wanted)
    if len(said) != len(right):
        return ""
    marked = "".join(mark if mark == other else "?" for mark, other in zip(said, right, strict=True))
    return f"its digits marked ? are wrong, {marked}" if set(marked) - set("-?") else ""


def _task(problem: Problem, verdict: Verdict) -> str:
    task, entry = problem.meta.get("task"), problem.meta.get("entry") or {}
    said = verdict.extracted or ""
    if task == "shortest_path":
        return _path(entry.get("metadata", {}).get("matrix", ()), said)
    if task == "mini_sudoku":
        return _sudoku(entry.get("metadata", {}).get("puzzle", ()), said)
    if number := _number(problem.answer, verdict):
        return number
    if verdict.score and quantity.parse(compare.tidy(problem.answer)) is None:  # a score could name that number
        return f"That is not right yet, but a part of it is: its score is {verdict.score:.2f} of 1."
    return "That is not the right answer."


def _path(grid: Sequence[Sequence[str]], said: str) -> str:
    """Where a way leaves the open cells, or that it ends elsewhere or takes too long."""
    steps = said.split()
    if steps == ["infeasible"]:
        return "There is a way: look again."
    if not steps or not grid or any(step not in MOVES for step in steps):
        return "Write the way as a sequence of the words up, down, left and right, with spaces between them."
    starts = [(r, c) for r, line in enumerate(grid) for c, cell in enumerate(line) if cell == "*"]
    if not starts:
        return "That is not the right answer."
    row, column = starts[0]
    for number, step in enumerate(steps, start=1):
        row, column = row + MOVES[step][0], column + MOVES[step][1]
        if not (0 <= row < len(grid) and 0 <= column < len(grid[row])):
            return f"Step {number} of your way ({step}) leaves the grid."
        if grid[row][column] == "X":
            return f"Step {number} of your way ({step}) enters a blocked cell."
    if grid[row][column] != "#":
        return "All steps of your way are open, but it does not end at the destination."
    return "Your way leads to the destination, but there is a shorter one."


def _sudoku(puzzle: Sequence[Sequence[int]], said: str) -> str:
    """Which rule a filled grid breaks."""
    rows = [[mark for mark in line.split() if mark.isdecimal()] for line in said.splitlines() if line.strip()]
    if len(rows) != len(puzzle) or any(len(row) != len(puzzle) for row in rows):
        return f"Write {len(puzzle)} rows of {len(puzzle)} numbers, with spaces between them."
    for number, (given, row) in enumerate(zip(puzzle, rows, strict=True), start=1):
        if any(known and str(known) != mark for known, mark in zip(given, row, strict=True)):
            return f"Row {number} changes a number that was given."
    groups: dict[str, list[str]] = {}
    for r, row in enumerate(rows):
        for c, mark in enumerate(row):
            corner = f"row {r // 2 * 2 + 1}, column {c // 2 * 2 + 1}"
            for name in (f"Row {r + 1}", f"Column {c + 1}", f"The subgrid from {corner} on"):
                groups.setdefault(name, []).append(mark)
    for name, marks in groups.items():
        if len(set(marks)) < len(marks):
            return f"{name} holds a number twice."
    return "Every rule is kept: write the grid like the puzzle, with single spaces, and nothing else."
