"""How one optimizer step is split: over processes, backward passes and groups of lessons."""

from dataclasses import dataclass
from math import lcm

from tutelage.errors import ConfigError
from tutelage.training.config import Train

WIDEST = 8  # sequences in one backward pass, unless the user says otherwise


@dataclass(frozen=True)
class Sizes:
    """processes × per_device × accumulation = total, the sequences of one optimizer step."""

    per_device: int
    accumulation: int
    total: int


def sizes(config: Train, processes: int) -> Sizes:
    """The split, or an error that names numbers which would work."""
    group = config.num_generations if config.method != "sft" else 1
    per_device = config.per_device_train_batch_size
    unit = lcm(processes * (per_device or 1), group)  # any multiple of it can be split
    usual = 4 * group if config.method != "sft" else 8
    total = config.train_batch_size or -(-usual // unit) * unit
    if total % unit:
        raise ConfigError(_instead(total, processes, per_device, group, unit))
    per_device = per_device or _largest(total // processes, WIDEST)
    return Sizes(per_device, total // (processes * per_device), total)


def _largest(number: int, limit: int) -> int:
    """The largest divisor up to a limit."""
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)


def _instead(total: int, processes: int, per_device: int | None, group: int, unit: int) -> str:
    """What is wrong, and every single change that puts it right."""
    each = per_device or 1
    below = total // unit * unit
    ways = [f"train_batch_size={' or '.join(str(size) for size in (below, below + unit) if size)}"]
    if total % group:
        problem = f"is not a multiple of num_generations={group}"
        fewer = _largest(total, group)
        if fewer > 1 and total % (processes * each) == 0:
            ways.append(f"num_generations={fewer}")
        return f"train_batch_size={total} {problem}: type {' or '.join(ways)}"
    if total % processes == 0:
        problem = f"cannot be split over {_count(processes)} by per_device_train_batch_size={per_device}"
        ways.append(f"per_device_train_batch_size={_largest(total // processes, each)}")
        return f"train_batch_size={total} {problem}: type {' or '.join(ways)}"
    # Fewer processes always are at hand; more may be.
    fits = [number for number in range(1, 2 * processes + 1) if total % (number * each) == 0]
    near = [max((n for n in fits if n < processes), default=0), min((n for n in fits if n > processes), default=0)]
    if counts := " or ".join(str(number) for number in near if number):
        ways.append(f"use {counts} process{'es' * (counts != '1')}")
    return f"train_batch_size={total} cannot be split over {_count(processes)}: type {', or '.join(ways)}"


def _count(processes: int) -> str:
    return f"{processes} process{'es' * (processes > 1)}"
