"""Promises that are counted, not timed, hold at every change."""

import runpy
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_a_group_of_lessons_needs_fewer_tokens_than_the_published_schedule() -> None:
    found = runpy.run_path(str(BENCHMARKS / "rollout.py"))["tokens"]()
    assert found["none abstain"]["cold ratio"] <= 0.65
    assert found["none abstain"]["warm ratio"] <= 0.58
    assert found["half abstain"]["warm ratio"] < found["a quarter abstains"]["warm ratio"] < 0.58
