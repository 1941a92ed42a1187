"""Tables and transcripts for the terminal."""

from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from tutelage.config import Show
from tutelage.data import Dataset, split
from tutelage.lessons import Episode, Turn
from tutelage.metrics import Estimate, Unit, described
from tutelage.verify.extract import final_answer

FORMATS: dict[Unit, str] = {
    "percent": "{:.1%}",
    "points": "{:+.1f} pp",
    "score": "{:.2f}",
    "tokens": "{:.1f}",
    "seconds": "{:.2f} s",
}


def say(line: str) -> None:
    """A line as it is: a path may hold what Rich takes for markup, and is not to be broken."""
    Console().print(line, highlight=False, soft_wrap=True, markup=False)


def table(estimates: Mapping[str, Estimate], lessons: int) -> Table:
    """Every metric with its interval."""
    result = Table("metric", title=f"what {lessons} lessons show", title_justify="left")
    result.add_column("value", justify="right")
    result.add_column("95% interval", justify="right")
    for name, estimate in estimates.items():
        label, unit = titled(name)
        interval = f"{shown(estimate.low, unit)} … {shown(estimate.high, unit)}"
        result.add_row(label, shown(estimate.value, unit), interval)
    return result


def compared(columns: Mapping[str, Mapping[str, Mapping[str, float | None]]], lessons: int) -> Table:
    """The same held-out lessons at different times, each metric with its interval."""
    result = Table("metric", title=f"what {lessons} held-out lessons show", title_justify="left")
    for name in columns:
        result.add_column(name, justify="right")
    first = next(iter(columns.values()))
    for name in sorted(first, key="reward".__ne__):
        label, unit = titled(name)
        cells = []
        for found in columns.values():
            value, low, high = (shown(found[name][part], unit) for part in ("value", "low", "high"))
            cells.append(f"{value} [{low.rstrip(' %ps')} … {high.rstrip(' %ps')}]")  # the unit once
        result.add_row(label, *cells)
    return result


def titled(name: str) -> tuple[str, Unit]:
    metric = described(name)
    return (metric.label, metric.unit) if metric else (name.capitalize(), "score")


def shown(value: float | None, unit: Unit) -> str:
    if value is None:
        return "–"
    return FORMATS[unit].format(value * 100 if unit == "points" else value)


def transcript(console: Console, episode: Episode) -> None:
    """One lesson as it was held."""

    def panel(title: str, text: str) -> None:
        console.print(Panel(escape(text.strip()) or "[dim](nothing)[/dim]", title=title, title_align="left"))

    panel("question", episode.question)
    if episode.lesson != "adaptive":
        for turn in (*episode.turns, *episode.alone[:1]):
            verdict = f": {judged(turn)}" if turn.verdict else ""
            panel(f"{turn.speaker}, {turn.act} ({turn.sample.tokens} tokens){verdict}", turn.sample.text)
        return
    probe, said = episode.turns
    panel(f"student's approach ({probe.sample.tokens} tokens)", probe.sample.text)
    panel(f"teacher, as written ({said.sample.tokens} tokens)", said.sample.text)
    if episode.teaching is not None:
        leak = ", gives the answer away" if episode.leaked else ""
        panel(f"teaching that reached the student ({episode.teaching_tokens} tokens{leak})", episode.teaching)
    else:
        why = "it did not keep to its tags" if episode.malformed else "it abstained"
        panel("no teaching", f"The teacher left the student alone ({why}): the student's own answer stands.")
    panel(f"answer alone: {judged(episode.alone[0])}", episode.alone[0].sample.text)
    panel(f"answer with teaching: {judged(episode.taught[0])}", episode.taught[0].sample.text)


def judged(turn: Turn) -> str:
    found = final_answer(turn.sample.text)
    said = "no answer found" if found is None else escape(found)
    return said if turn.verdict is None else f"{said}, {turn.verdict.outcome}"


def dataset(console: Console, read: Dataset, config: Show) -> None:
    """How rows became problems, and which did not and why."""
    problems = read.problems
    console.print(f"{read.source}: format {read.format}, {len(problems)} problems", highlight=False, markup=False)
    if config.held_out and len(problems) > 1:
        train, held_out = split(problems, config.held_out, config.split_seed)
        console.print(f"train {len(train)}, held out {len(held_out)} (split_seed {config.split_seed})", highlight=False)
    kinds = Counter(str(problem.meta.get("task", problem.kind)) for problem in problems)
    console.print("kinds: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()), highlight=False)
    console.print(
        f"repeated questions dropped: {read.duplicates}; rows rejected: {len(read.rejected)}", highlight=False
    )
    for why, count in Counter(rejected.why for rejected in read.rejected).most_common(10):
        first = next(rejected.row for rejected in read.rejected if rejected.why == why)
        console.print(f"  {count} × {why} (first: row {first})", highlight=False, markup=False)
    for problem in problems[: config.show]:
        rows = Table(show_header=False, title=f"problem {problem.uid}", title_justify="left")
        for name in ("question", "answer", "solution", "reasoning_trace"):
            if text := getattr(problem, name):
                rows.add_row(name, escape(text if len(text) < 400 else text[:400] + " …"))
        console.print(rows)
