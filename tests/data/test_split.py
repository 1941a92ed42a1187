import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.data import split
from tutelage.errors import ConfigError
from tutelage.problem import Problem

questions = st.lists(st.text(alphabet="ab C", min_size=1, max_size=4), max_size=30)
shares = st.floats(0.01, 0.99)
seeds = st.integers(0, 5)


def problems(texts):
    return [Problem(text, "s", "a") for text in texts]


def uids(side):
    return {problem.uid for problem in side}


@given(questions, shares, seeds)
def test_disjoint_complete_and_deterministic(texts, share, seed):
    rows = problems(texts)
    train, out = split(rows, share, seed)
    assert not uids(train) & uids(out)
    assert sorted(train + out, key=repr) == sorted(rows, key=repr)
    assert [row for row in rows if row in train] == train  # order is kept
    assert (train, out) == split(rows, share, seed)


@given(questions, shares, seeds, st.randoms())
def test_order_does_not_matter(texts, share, seed, random):
    shuffled = random.sample(texts, len(texts))
    assert uids(split(problems(texts), share, seed)[1]) == uids(split(problems(shuffled), share, seed)[1])


@given(questions, questions, shares, seeds)
def test_adding_rows_moves_at_most_the_one_that_filled_an_empty_side(texts, more, share, seed):
    before, after = split(problems(texts), share, seed), split(problems(texts + more), share, seed)
    for side in (0, 1):
        moved = uids(before[side]) & uids(after[1 - side])
        assert not moved or (len(moved) == 1 and uids(before[side]) == moved)


@given(questions, shares, seeds)
def test_no_side_is_empty(texts, share, seed):
    train, out = split(problems(texts), share, seed)
    assert (train and out) or len(uids(train + out)) < 2


def test_share_seed_and_the_literal_ends():
    rows = problems(str(number) for number in range(2000))
    train, out = split(rows, 0.1, 42)
    assert 150 < len(out) < 250
    assert uids(out) != uids(split(rows, 0.1, 43)[1])
    assert uids(out) < uids(split(rows, 0.2, 42)[1])  # a larger share keeps what was held out
    assert split(rows, 0.0, 42) == (rows, [])
    assert split(rows, 1.0, 42) == ([], rows)
    assert len(train) + len(out) == 2000


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_not_a_share(share):
    with pytest.raises(ConfigError, match=r"held_out=0\.1"):
        split([], share, 0)
