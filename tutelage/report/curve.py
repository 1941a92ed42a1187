"""Pictures of a training."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def learning(
    path: Path,
    evaluations: Sequence[Mapping[str, Any]],
    rewards: Sequence[tuple[int, float]],
    headline: str = "apg",
    label: str = "accuracy gained by teaching",
) -> None:
    """The learning curve: what lessons were worth while training, and held-out reward and headline with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [line["step"] for line in evaluations]
    if rewards:
        left.plot(*zip(*rewards, strict=True), ".", color="0.6", label="in training")
    for axes, name, title in ((left, "reward", "reward of a lesson"), (right, headline, label)):
        # Undefined is None, and NaN to a picture.
        low, value, high = (
            [math.nan if line[name][part] is None else line[name][part] for line in evaluations]
            for part in ("low", "value", "high")
        )
        axes.plot(steps, value, "o-", color="C0", label="held out")
        axes.fill_between(steps, low, high, color="C0", alpha=0.2, label="95% interval")
        axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axes.set(xlabel="step", title=title)
        axes.xaxis.get_major_locator().set_params(integer=True)
    left.legend(frameon=False)
    part = path.with_suffix(".part.png")
    figure.savefig(part, dpi=120)
    part.replace(path)
