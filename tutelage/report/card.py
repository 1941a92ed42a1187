"""A data card: what a set of traces holds, where it comes from, and what was left out and why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def card(
    title: str,
    counts: Mapping[str, int],
    dropped: Mapping[str, Counter[str]],
    columns: Mapping[str, Sequence[float]],
    origin: Mapping[str, Any],
) -> str:
    """Markdown. `dropped` are counted reasons, by what was dropped; `columns` are shown by their quantiles."""
    lines = [f"# {title}", ""]
    lines += [f"- {name}: {count:,}" for name, count in counts.items()]
    for what, reasons in dropped.items():
        if reasons:
            lines += ["", f"## {what}", ""]
            lines += [f"- {count:,}: {why}" for why, count in reasons.most_common()]
    lines += ["", "## Distributions", "", f"| | {' | '.join(map(_share, SHARES))} | mean |"]
    lines.append("|---" * (len(SHARES) + 2) + "|")
    for name, values in columns.items():
        cells = [*np.quantile(values, SHARES), np.mean(values)]
        lines.append(f"| {name} | {' | '.join(f'{cell:.6g}' for cell in cells)} |")
    lines += ["", "## Origin", ""]
    lines += [f"- {name}: {value}" for name, value in origin.items()]
    return "\n".join(lines) + "\n"


def _share(share: float) -> str:
    return {0.0: "least", 0.5: "median", 1.0: "most"}.get(share, f"{share:.0%}")
