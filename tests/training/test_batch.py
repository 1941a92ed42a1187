"""A step is split exactly, or the error names numbers that work."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.errors import ConfigError
from tutelage.training.batch import Sizes, sizes
from tutelage.training.config import Train

few = st.integers(1, 12)
maybe = st.none() | st.integers(1, 200)


@given(st.sampled_from(["sft", "rcl"]), maybe, st.none() | few, st.integers(2, 40), few)
def test_the_identities_hold_and_every_suggestion_works(
    method: str, total: int | None, per_device: int | None, generations: int, processes: int
) -> None:
    config = Train(
        method=method, train_batch_size=total, per_device_train_batch_size=per_device, num_generations=generations
    )
    try:
        found = sizes(config, processes)
    except ConfigError as error:
        assert total is not None
        suggested = suggestions(str(error))
        assert suggested
        for name, value in suggested:
            if name == "processes":
                sizes(config, value)
            else:
                sizes(replace(config, **{name: value}), processes)
        return
    assert found.per_device * found.accumulation * processes == found.total
    assert found.total == (total or found.total)
    assert found.per_device == (per_device or found.per_device)
    assert per_device or found.per_device <= 8
    assert method == "sft" or found.total % generations == 0


def suggestions(text: str) -> list[tuple[str, int]]:
    advice = text.partition(": type ")[2]
    named = re.findall(r"(\w+)=(\d+)(?: or (\d+))?", advice)
    counts = re.findall(r"()use (\d+)(?: or (\d+))? process", advice)
    return [(name or "processes", int(value)) for name, *values in named + counts for value in values if value]


@pytest.mark.parametrize(
    ("config", "processes", "expected"),
    [
        (Train(method="rcl", num_generations=8), 1, Sizes(8, 4, 32)),
        (Train(method="rcl", num_generations=8), 3, Sizes(8, 2, 48)),  # still whole groups
        (Train(method="sft"), 1, Sizes(8, 1, 8)),
        (Train(method="sft"), 3, Sizes(3, 1, 9)),
        (Train(method="rcl", num_generations=32, train_batch_size=128), 4, Sizes(8, 4, 128)),
        (Train(method="sft", train_batch_size=16, per_device_train_batch_size=1), 8, Sizes(1, 2, 16)),
        (Train(method="sft", per_device_train_batch_size=16), 1, Sizes(16, 1, 16)),
    ],
)
def test_sizes(config: Train, processes: int, expected: Sizes) -> None:
    assert sizes(config, processes) == expected


@pytest.mark.parametrize(
    ("config", "processes", "text"),
    [
        (
            Train(train_batch_size=128, num_generations=32),
            3,
            "train_batch_size=128 cannot be split over 3 processes: "
            "type train_batch_size=96 or 192, or use 2 or 4 processes",
        ),
        (
            Train(train_batch_size=16, num_generations=32),
            1,
            "train_batch_size=16 is not a multiple of num_generations=32: "
            "type train_batch_size=32 or num_generations=16",
        ),
        (
            Train(method="sft", train_batch_size=16, per_device_train_batch_size=3),
            2,
            "train_batch_size=16 cannot be split over 2 processes by per_device_train_batch_size=3: "
            "type train_batch_size=12 or 18 or per_device_train_batch_size=2",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_what_does(config: Train, processes: int, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        sizes(config, processes)
    assert str(error.value) == text
