"""What crosses between a program and its tests."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.verify.box.wire import Channel, Ended, decode, encode

NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False), st.complex_numbers(allow_nan=False))
ATOMS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(), st.binary(), st.sampled_from([int, str]))
KEYS = st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.frozensets(st.integers()))


def nested(inner):
    return st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS)


VALUES = st.recursive(ATOMS, nested, max_leaves=6)
JSON = st.recursive(st.none() | st.integers() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i))


def refuse(*_: object) -> int:
    raise AssertionError("nothing here is kept")


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_data_arrives_as_it_was(value):
    crossed = decode(json.loads(json.dumps(encode(value, refuse))), refuse)
    assert crossed == value and type(crossed) is type(value)


def test_subclasses_become_what_they_are_made_of():
    from collections import Counter, OrderedDict, namedtuple

    class Yes(int):
        def __eq__(self, other):
            return True

    class Shout(str):
        def __str__(self):
            return "other"

    point = namedtuple("point", "x y")(1, 2)
    for value, plain in [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (point, (1, 2)),
        (True, True),
    ]:
        crossed = decode(encode(value, refuse), refuse)
        assert crossed == plain and type(crossed) is type(plain)
    assert type(decode(encode(Yes(7), refuse), refuse)) is int
    assert decode(encode(Shout("said"), refuse), refuse) == "said"


def test_objects_are_kept_and_numbered():
    kept = []
    encoded = encode([object(), 1], lambda thing: kept.append(thing) or 5)
    assert encoded == ["list", ["object", 5], 1] and len(kept) == 1
    assert decode(encoded, lambda number: f"thing {number}") == ["thing 5", 1]


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_nonsense_is_an_error_of_a_known_kind(data):
    try:
        decode(data, refuse)
    except (ValueError, TypeError, LookupError, AssertionError):
        return


def test_types_are_builtin_ones():
    with pytest.raises(ValueError):
        decode(["type", "eval"], refuse)


def test_a_channel_carries_whole_messages_and_knows_its_end():
    reading, writing = os.pipe()
    channel = Channel(reading, writing)
    channel.send({"a": "ä" * 1000})
    assert channel.receive() == {"a": "ä" * 1000}
    os.write(writing, b"\xff\xff\xff\xff")
    with pytest.raises(Ended):
        channel.receive()
    os.write(writing, b"\x02\0\0\0{{")
    with pytest.raises(Ended):
        channel.receive()
    os.close(writing)
    with pytest.raises(Ended):
        channel.receive()
    os.close(reading)
