"""Of very many lessons a balanced few, uniformly drawn, in little memory."""

import tracemalloc
from collections import Counter
from statistics import fmean

from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.report.lessons import Balanced


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=120), st.integers(0, 40))
def test_kinds_share_the_room_as_evenly_as_they_can(kinds: list[str], size: int) -> None:
    sample = Balanced(size)
    for place, kind in enumerate(kinds):
        sample.offer(kind, lambda place=place, kind=kind: (place, kind))  # type: ignore[misc]
    held = sample.items()
    assert held == sorted(set(held)) and len(held) == min(size, len(kinds)) and sample.seen == len(kinds)
    there, mine = Counter(kinds), Counter(kind for _, kind in held)
    for kind in mine:  # nobody has more than another who still has some to give
        assert all(mine[kind] <= mine[other] + 1 for other in there if mine[other] < there[other])


def test_a_kind_that_comes_late_finds_room_and_early_ones_stay_uniform_in_little_memory() -> None:
    tracemalloc.start()
    sample = Balanced(200)
    for place in range(20_000):
        sample.offer("common", lambda place=place: (place, "x" * 5_000 + str(place)))  # type: ignore[misc]
    for place in range(300):
        sample.offer("rare", lambda place=place: (place, "rare"))  # type: ignore[misc]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    common = [place for place, text in sample.items() if text != "rare"]
    rare = [place for place, text in sample.items() if text == "rare"]
    assert (len(common), len(rare)) == (100, 100)
    assert abs(fmean(common) / 20_000 - 0.5) < 0.1 and abs(fmean(rare) / 300 - 0.5) < 0.1
    assert peak < 4e6  # all of them are 100 MB
