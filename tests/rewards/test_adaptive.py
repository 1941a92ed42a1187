"""Rewards by hand and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.engines import Sample
from tutelage.errors import ConfigError
from tutelage.lessons import Episode, Turn
from tutelage.problem import Verdict
from tutelage.rewards import Terms, paired, penalty, worth, zero


def turns(*right: int) -> tuple[Turn, ...]:
    sample = Sample("", "stop", 1)
    return tuple(Turn("student", "alone", sample, Verdict("correct" if r else "incorrect")) for r in right)


def lesson(alone: tuple[int, ...], taught: tuple[int, ...], tokens: int = 100, **flags: bool) -> Episode:
    teaching = "hint" if tokens else None
    return Episode("adaptive", "u", "q", "a", (), turns(*alone), turns(*taught), teaching, tokens, **flags)


def total(parts: dict[str, float]) -> float:
    return sum(parts.values())


# e = 100 / (100 + 100) = 1/2 everywhere; w = 1, m = 2
@pytest.mark.parametrize(
    ("alone", "taught", "as_penalty", "as_zero", "as_paired"),
    [
        ((1,), (0,), -2.0, 0.0, -2.0),  # degraded
        ((1,), (1,), 0.75, 0.75, 0.0),  # 0.5 * (1 + 1/2)
        ((0,), (0,), 0.0, 0.0, 0.0),
        ((0,), (1,), 1.5, 1.5, 1.5),  # 1 * (1 + 1/2)
        ((1, 0, 0, 0), (1, 1), 0.75 * 1.5 + 0.5 * 1.5 * 0.25, 1.3125, 0.75 * 1.5),
        ((1, 1, 1, 0), (1, 0), -0.5, 0.0, -0.5),  # gain -1/4, harm twice
    ],
)
def test_by_hand(
    alone: tuple[int, ...], taught: tuple[int, ...], as_penalty: float, as_zero: float, as_paired: float
) -> None:
    episode, terms = lesson(alone, taught), Terms()
    assert total(penalty(episode, terms)) == pytest.approx(as_penalty)
    assert total(zero(episode, terms)) == pytest.approx(as_zero)
    assert total(paired(episode, terms)) == pytest.approx(as_paired)


def test_a_leak_forfeits_what_it_gained_and_format_costs() -> None:
    terms = Terms(leak_penalty=0.7, format_penalty=0.3)
    assert total(paired(lesson((0,), (1,), leaked=True), terms)) == pytest.approx(-0.7)
    assert total(paired(lesson((1,), (0,), leaked=True), terms)) == pytest.approx(-2.7)
    assert total(paired(lesson((0,), (0,), malformed=True), terms)) == pytest.approx(-0.3)


answers = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)


@given(answers, answers, st.integers(0, 4000), st.floats(1, 5), st.floats(0, 3))
def test_paired_orders_lessons_as_a_teacher_should_want_them(
    alone: tuple[int, ...], taught: tuple[int, ...], tokens: int, m: float, w: float
) -> None:
    terms = Terms(degradation_penalty_multiplier=m, efficiency_weight=w)
    value = total(paired(lesson(alone, taught, tokens), terms))
    gain = sum(taught) / len(taught) - sum(alone) / len(alone)
    silent = total(paired(lesson(alone, alone, 0), terms))
    assert silent == 0  # abstention: never paid, never punished
    assert (value > 0) == (gain > 0) and (value < 0) == (gain < 0)
    assert value <= total(paired(lesson(alone, taught, tokens // 2), terms)) + 1e-12  # shorter is no worse
    assert total(paired(lesson(alone, taught, tokens, leaked=True), terms)) < value + 1e-12


@given(answers, st.integers(1, 4000))
def test_published_rewards_are_exact_on_single_answers(alone: tuple[int, ...], tokens: int) -> None:
    episode = lesson(alone[:1], alone[:1], tokens)
    expected = 0.5 * (1 + 100 / (100 + tokens)) * alone[0]
    assert total(penalty(episode, Terms())) == pytest.approx(expected)
    assert total(zero(episode, Terms())) == pytest.approx(expected)


def test_an_unknown_reward_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean paired"):
        worth("paird", lesson((1,), (1,)), Terms())
