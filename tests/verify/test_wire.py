"""What crosses between a program and its tests."""

import json
import os
from collections import deque
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.verify.box.wire import MADE, SERIES, Channel, Ended, decode, encode

NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False), st.complex_numbers(allow_nan=False))
EXACT = st.one_of(st.decimals(allow_nan=False), st.fractions(), st.dates(), st.datetimes(), st.timedeltas())
RANGES = st.builds(range, st.integers(), st.integers(), st.integers(min_value=1))
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(), st.binary(), st.sampled_from([int, str]))
ATOMS = PLAIN | EXACT | RANGES
KEYS = st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.frozensets(st.integers()))


def nested(inner):
    return (
        st.lists(inner)
        | st.lists(inner).map(deque)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner)
        | st.sets(KEYS)
    )


VALUES = st.recursive(ATOMS, nested, max_leaves=6)
NAMES = st.sampled_from([*SERIES, *MADE, "dict", "int", "complex", "bytes", "type", "object"])
JSON = st.recursive(
    st.none() | st.integers() | st.text() | NAMES,
    lambda i: (
        st.lists(i) | st.builds(lambda name, rest: [name, *rest], NAMES, st.lists(i)) | st.dictionaries(st.text(), i)
    ),
)


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
    assert encode(datetime.now(UTC), lambda thing: 6) == ["object", 6]  # a zone may be anything


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_nonsense_is_an_error_of_a_known_kind(data):
    try:
        decode(data, refuse)
    except (ValueError, TypeError, LookupError, AssertionError):
        return


@pytest.mark.parametrize("lie", [["Fraction", 1, 0], ["Decimal", "x"], ["date", ["int", hex(10**30)], 1, 1]])
def test_numbers_and_days_that_do_not_exist_are_nonsense(lie):
    with pytest.raises(ValueError):
        decode(lie, refuse)


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
