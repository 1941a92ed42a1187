"""The figures of a run, each made where the run's data can give it; where they cannot, it says why."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from tutelage.files import replacing
from tutelage.metrics import Estimate
from tutelage.metrics.turns import SPECIFIC
from tutelage.report.folder import Record
from tutelage.report.terminal import titled

UNKNOWN = Estimate(None, None, None)
COLUMNS = 4
# Of the trainer's log, in this order; `lessons/…` beside what held-out lessons show.
CURVES = (
    "loss reward grad_norm kl entropy learning_rate mean_token_accuracy reward_std frac_reward_zero_std "
    "clip_ratio/region_mean completions/mean_length completions/clipped_ratio lessons/zero_variance "
    "sampling/sampling_logp_difference/mean"
).split()
HELD_OUT = "apg ndr taught_accuracy leak_rate solution_logprob restated acc@1 gain csr leaked flagged unparsed".split()


def training(record: Record) -> Figure | str:
    """What the trainer logged, and held-out lessons with their intervals where they show the same."""
    logs = record.logs or [{"step": step, "reward": s / n} for step, (s, n) in sorted(record.lessons.steps.items())]
    logged = {name for line in logs for name, value in line.items() if isinstance(value, int | float)}
    shown = {name for found in record.evaluations.values() for name in found}
    last = f"acc@{record.max_turns}"
    names = [name for name in CURVES if name in logged or name in shown]
    names += [name for name in (last, *HELD_OUT) if f"lessons/{name}" in logged or name in shown]
    if not names:
        return "no checkpoint, no evaluation and no reward of a training"
    figure, panels = _grid(math.ceil(len(names) / COLUMNS), min(COLUMNS, len(names)), len(names))
    for axes, name in zip(panels, names, strict=True):
        inside = name if name in logged else f"lessons/{name}"
        points = [(line["step"], line[inside]) for line in logs if isinstance(line.get(inside), int | float)]
        if points:
            line = ".-" if len(points) < 60 else "-"
            axes.plot(*zip(*points, strict=True), line, color="0.55", linewidth=0.8, label="in training")
        if name in shown:
            steps = sorted(record.evaluations)
            _band(axes, steps, [record.evaluations[step].get(name, UNKNOWN) for step in steps], "C0", "held out")
            axes.legend(frameon=False, fontsize=7)
        title = titled(name)[0] if name in shown else name
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def rewards(record: Record) -> Figure | str:
    """How lessons' worth is distributed; how many are worth nothing stands above it."""
    if not record.lessons.worths:
        return "its lessons carry no reward"
    figure, panels = _grid(1, len(record.lessons.worths), width=5.5)
    for axes, (name, found) in zip(panels, record.lessons.worths.items(), strict=True):
        values = np.frombuffer(found)
        axes.hist(values, bins=40, color="C0")
        zeros = float(np.mean(values == 0))
        axes.set_title(f"{len(values):,} lessons, mean {values.mean():.3f}, {zeros:.1%} exactly 0", fontsize=9)
        axes.set(xlabel=name, ylabel="lessons")
    return figure


def heatmap(record: Record) -> Figure | str:
    """Accuracy by the last turn, students by benchmarks."""
    if not record.cells:
        return "no dialogues of students on benchmarks"
    students, benchmarks = _names(record)
    name = f"acc@{record.max_turns}"
    found = {(cell.student, cell.benchmark): cell.taught.get(name, UNKNOWN) for cell in record.cells}
    table = [[_number(found.get((row, column), UNKNOWN).value) for column in benchmarks] for row in students]
    figure = Figure(figsize=(2.5 + 1.5 * len(benchmarks), 1.2 + 0.7 * len(students)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(table, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes.set_xticks(range(len(benchmarks)), map(_short, benchmarks))
    axes.set_yticks(range(len(students)), map(_short, students))
    axes.set_title(titled(name)[0], fontsize=10)
    for (row, column), value in np.ndenumerate(np.array(table)):
        known = found.get((students[row], benchmarks[column]), UNKNOWN)
        text = "–" if known.value is None else f"{known.value:.0%}"
        if known.low is not None and known.high is not None:
            text += f"\n[{known.low:.0%} … {known.high:.0%}]"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color="w" if value <= 0.6 else "k")
    figure.colorbar(image, ax=axes, format=lambda value, _: f"{value:.0%}")
    return figure


def plasticity(record: Record) -> Figure | str:
    """How often answers change, succeed and gain with hints and with controls, and the one minus the other."""
    if not record.cells:
        return _held_out(record, ("plasticity",), "no dialogues of two turns in which an answer was wrong")
    if all(cell.taught.get("plasticity", UNKNOWN).value is None for cell in record.cells):
        return "no wrong answer was followed by another"
    _, benchmarks = _names(record)
    controls = list(dict.fromkeys(name for cell in record.cells for name in cell.controls))
    columns = 1 + (len(SPECIFIC) if controls else 0)
    figure, panels = _grid(len(benchmarks), columns, width=3.6)
    for place, axes in enumerate(panels):
        benchmark, column = benchmarks[place // columns], place % columns
        cells = {cell.student: cell for cell in record.cells if cell.benchmark == benchmark}
        metric = "plasticity" if not column else SPECIFIC[-column]
        bars = {} if column else {record.config.get("hints", "hints"): [c.taught.get(metric) for c in cells.values()]}
        for name in controls:
            sides = [(cell.specific if column else cell.controls).get(name, {}) for cell in cells.values()]
            bars[name] = [side.get(metric) for side in sides]
        for number, (name, found) in enumerate(bars.items()):
            at = np.arange(len(cells)) + (number - (len(bars) - 1) / 2) * 0.8 / len(bars)
            color = f"C{number + bool(column)}"
            _bars(
                axes, at, [each or UNKNOWN for each in found], 0.8 / len(bars), color, f"– {name}" if column else name
            )
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.set_xticks(range(len(cells)), map(_short, cells), fontsize=7, rotation=15)
        label = titled(metric)[0]
        axes.set_title(f"{_short(benchmark)}: {f'{label}, less controls' if column else label}", fontsize=9)
        axes.legend(framealpha=0.7, fontsize=7)
    return figure


def accuracy(record: Record) -> Figure | str:
    """Accuracy by each turn: of all students, and of each beside its controls."""
    if not record.cells:
        names = [f"acc@{turn}" for turn in range(1, record.max_turns + 1)]
        known = {step: found for step, found in record.evaluations.items() if names[-1] in found}
        if not known:
            return "no dialogues of several turns were evaluated"
        figure, [axes] = _grid(1, 1, width=5.5)
        marked = [("before", min(known)), ("best", record.best), ("last", max(known))]
        for number, (name, step) in enumerate(marked):
            if step in known and (step != min(known) or not number):
                _curve(axes, known[step], record.max_turns, f"C{number}", f"{name} (step {step})")
        return _turns([axes], figure)
    students, benchmarks = _names(record)
    rows = [None, *students] if len(students) > 1 else students
    figure, panels = _grid(len(rows), len(benchmarks))
    for place, axes in enumerate(panels):
        student, benchmark = rows[place // len(benchmarks)], benchmarks[place % len(benchmarks)]
        for cell in record.cells:
            if cell.benchmark != benchmark or student not in (None, cell.student):
                continue
            color = "C0" if student else f"C{students.index(cell.student)}"
            label = record.config.get("hints", "hints") if student else _short(cell.student)
            _curve(axes, cell.taught, record.max_turns, color, label)
            for number, (name, found) in enumerate(cell.controls.items() if student else ()):
                _curve(axes, found, record.max_turns, f"C{number + 1}", name, "--")
        axes.set_title(f"{_short(student or 'all students')} on {_short(benchmark)}", fontsize=9)
    return _turns(panels, figure)


FIGURES: Mapping[str, tuple[str, Callable[[Record], Figure | str]]] = {
    "training": ("Training curves", training),
    "rewards": ("Reward distribution", rewards),
    "heatmap": ("Evaluation heat-map", heatmap),
    "plasticity": ("Plasticity", plasticity),
    "turns": ("Accuracy per turn", accuracy),
}


def draw(record: Record) -> tuple[dict[str, bytes], dict[str, str]]:
    """Pictures in <run>/figures by their titles, and why others are missing."""
    folder = record.folder / "figures"
    folder.mkdir(exist_ok=True)
    drawn, missing = {}, {}
    for name, (title, make) in FIGURES.items():
        path = folder / f"{name}.png"
        with rc_context({"text.parse_math": False}):  # a name may hold a $
            figure = make(record)
            if isinstance(figure, str):
                missing[title] = figure
                path.unlink(missing_ok=True)  # of an earlier state of the run
                continue
            with replacing(path) as part:
                figure.savefig(part, dpi=120, format="png")
        drawn[title] = path.read_bytes()
    return drawn, missing


def _held_out(record: Record, names: Sequence[str], why: str) -> Figure | str:
    """Metrics of held-out lessons by step."""
    steps = sorted(record.evaluations)
    known = [n for n in names if any(record.evaluations[s].get(n, UNKNOWN).value is not None for s in steps)]
    if not known:
        return why
    figure, panels = _grid(1, len(known), width=5.5)
    for axes, name in zip(panels, known, strict=True):
        _band(axes, steps, [record.evaluations[step].get(name, UNKNOWN) for step in steps], "C0", "held out")
        axes.set_title(titled(name)[0], fontsize=9)
        axes.set_xlabel("step", fontsize=8)
    return figure


def _names(record: Record) -> tuple[list[str], list[str]]:
    students = dict.fromkeys(cell.student for cell in record.cells)
    return list(students), list(dict.fromkeys(cell.benchmark for cell in record.cells))


def _grid(rows: int, columns: int, count: int | None = None, width: float = 3.2) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(max(4.0, width * columns), 2.6 * rows + 0.4), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels[count or len(panels) :]:
        axes.set_visible(False)
    return figure, panels[: count or len(panels)]


def _short(name: str) -> str:
    """A folder's name ends in what tells it from others."""
    return name if len(name) <= 24 else f"…{name[-23:]}"


def _number(value: float | None) -> float:
    return math.nan if value is None else value  # undefined is None, and NaN to a picture


def _band(axes: Any, at: Sequence[float], found: Sequence[Estimate], color: str, label: str, line: str = "-") -> None:
    axes.plot(at, [_number(each.value) for each in found], line, marker="o", markersize=3, color=color, label=label)
    low, high = ([_number(getattr(each, side)) for each in found] for side in ("low", "high"))
    axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)


def _curve(axes: Any, found: Mapping[str, Estimate], turns: int, color: str, label: str, line: str = "-") -> None:
    at = range(1, turns + 1)
    _band(axes, at, [found.get(f"acc@{turn}", UNKNOWN) for turn in at], color, label, line)


def _turns(panels: Sequence[Any], figure: Figure) -> Figure:
    for axes in panels:
        axes.set(ylim=(-0.02, 1.02), xlabel="turn", ylabel="solved by then")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if axes.get_lines():
            axes.legend(frameon=False, fontsize=7)
    return figure


def _bars(axes: Any, at: Any, found: Sequence[Estimate], width: float, color: str, label: str) -> None:
    values, low, high = (
        np.array([_number(getattr(each, side)) for each in found]) for side in ("value", "low", "high")
    )
    axes.bar(at, values, width, color=color, alpha=0.7, label=label)
    axes.errorbar(at, values, np.maximum(0, [values - low, high - values]), fmt="none", ecolor="0.2", capsize=2)
