"""Packed numbers are taken for the tuple that they stand for."""

import copy
import json
import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tutelage.engines import Sample
from tutelage.engines.packed import Packed
from tutelage.lessons.episode import Episode, Turn

Ids = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(tuple)


@given(Ids, Ids, Ids, st.slices(18))
def test_as_a_tuple(one: Any, two: Any, three: Any, part: slice) -> None:
    whole = one + two + three
    for packed in (Packed("i", three, one, two), Packed("i", three, Packed("i", two, one)), Packed("i", whole)):
        assert packed == whole and whole == packed
        assert hash(packed) == hash(whole) and len(packed) == len(whole) and bool(packed) == bool(whole)
        assert packed[part] == whole[part] and list(packed) == list(whole)
        assert packed + one == whole + one and one + packed == one + whole
        assert packed != (*whole, 1)
        assert pickle.loads(pickle.dumps(packed)) == copy.deepcopy(packed) == whole


@given(st.lists(st.floats(allow_nan=False)))
def test_log_probs_lose_nothing(values: list[float]) -> None:
    assert Packed("d", values) == tuple(values)


def test_on_disk_they_are_lists() -> None:
    first = Sample("a", "stop", 2, (3, 4), (-0.1, -0.2), (1, 2))
    again = Sample("b", "stop", 1, (6,), Packed("d", (-0.3,)), Packed("i", (5,), first.prompt_ids, first.ids))
    turns = tuple(Turn("student", "attempt", sample) for sample in (first, again))
    episode = Episode("feedback", "u", "q", "a", turns)
    written = json.loads(episode.to_json())["turns"][1]["sample"]
    assert (written["prompt_ids"], written["logprobs"]) == ([1, 2, 3, 4, 5], [-0.3])
    assert Episode.from_json(episode.to_json()) == episode
