"""The dense reward by hand and by property."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.engines import Sample
from tutelage.errors import ConfigError
from tutelage.lessons import Episode, Scores, Turn
from tutelage.rewards import Likelihood, explained, likelihood

NAN, INF = float("nan"), float("inf")


def parts(
    solution: list[float], thought: list[float], teacher: list[float] | None, closed: bool = True, **terms: Any
) -> dict[str, float]:
    own = None if teacher is None else np.array(teacher)
    return likelihood(np.array(solution), np.array(thought), own, closed, Likelihood(**terms))


def total(*values: Any, **terms: Any) -> float:
    return sum(parts(*values, **terms).values())


# One solution of log-probs -1 and -3, one thought of gaps 0.5 and 1.5 between teacher and student.
S, T, P = [-1.0, -3.0], [-1.0, -2.0], [-0.5, -0.5]


@pytest.mark.parametrize(
    ("values", "terms", "expected"),
    [
        # -2 - 0.03 - 3 * 1 - 0.03 * 1.5
        ((S, T, P), {}, {"answer_mean": -2, "answer_min": -0.03, "kl_mean": -3, "kl_max": -0.045, "format": 0}),
        ((S, T, P, False), {}, {"answer_mean": -2, "answer_min": -0.03, "kl_mean": -3, "kl_max": -0.045, "format": -1}),
        ((S, T, P), {"kl_penalty_reward_coeff": [0, 0]},
            {"answer_mean": -2, "answer_min": -0.03, "kl_mean": 0, "kl_max": 0, "format": 0}),
        # one weight, one reduction, no lists
        ((S, T, P), {"answer_log_prob_coeff": 2, "reduction_log_prob_fn": "sum", "kl_penalty_reward_coeff": 1,
            "reduction_kl_fn": "median"}, {"answer_sum": -8, "kl_median": -1, "format": 0}),
        # quartiles of -1 and -3 are -2.5 and -1.5, of 0.5 and 1.5 they are 0.75 and 1.25
        ((S, T, P), {"reduction_log_prob_fn": ["first_quartile", "last_quartile"], "answer_log_prob_coeff": [1, 1],
            "reduction_kl_fn": ["first_quartile", "last_quartile"], "kl_penalty_reward_coeff": [1, 1]},
            {"answer_first_quartile": -2.5, "answer_last_quartile": -1.5, "kl_first_quartile": -0.75,
             "kl_last_quartile": -1.25, "format": 0}),
        # k3: 0.5 - 1 + e^-0.5 and 1.5 - 1 + e^-1.5
        ((S, T, P), {"use_schulman_kl_estimation": True, "kl_penalty_reward_coeff": [1, 1],
            "reduction_kl_fn": ["min", "max"]},
            {"answer_mean": -2, "answer_min": -0.03, "kl_min": -(-0.5 + math.exp(-0.5)),
             "kl_max": -(0.5 + math.exp(-1.5)), "format": 0}),
        # without the teacher's entropy the gaps are 1 and 2
        ((S, T, P), {"include_teacher_think_entropy": False},
            {"answer_mean": -2, "answer_min": -0.03, "kl_mean": -4.5, "kl_max": -0.06, "format": 0}),
        # normalised by token, before reducing: (e^-1 + e^-3) / 2, and 1 - e^-0.5, 1 - e^-1.5
        ((S, T, P), {"normalize_log_prob_fn": "exp", "normalize_kl_fn": "exp_norm"},
            {"answer_mean": (math.exp(-1) + math.exp(-3)) / 2, "answer_min": 0.01 * math.exp(-3),
             "kl_mean": -3 * (1 - (math.exp(-0.5) + math.exp(-1.5)) / 2), "kl_max": -0.03 * (1 - math.exp(-1.5)),
             "format": 0}),
        # clipped by token: -1 and -2, 0.5 and 1
        ((S, T, P), {"clip_log_prob": 2, "clip_kl": 1},
            {"answer_mean": -1.5, "answer_min": -0.02, "kl_mean": -2.25, "kl_max": -0.03, "format": 0}),
        # impossible words are clipped, not undefined
        (([-INF, 0.0], [-INF], [0.0]), {},
            {"answer_mean": -5e4, "answer_min": -1e3, "kl_mean": -3e5, "kl_max": -3e3, "format": 0}),
        # undefined: S is -1, K is +1
        (([NAN, -1.0], [NAN], [0.0]), {},
            {"answer_mean": -1, "answer_min": -0.01, "kl_mean": -3, "kl_max": -0.03, "format": 0}),
        # an empty explanation
        ((S, [], [], False), {},
            {"answer_mean": -2, "answer_min": -0.03, "kl_mean": -3, "kl_max": -0.03, "format": -1}),
        # nothing scored, and a penalty of one's own, which is for the form only
        (([], [], [], False), {"not_matched_penalty": -0.5},
            {"answer_mean": -1, "answer_min": -0.01, "kl_mean": -3, "kl_max": -0.03, "format": -0.5}),
        (([-INF], T, P), {"clip_log_prob": None, "kl_penalty_reward_coeff": [0, 0]},
            {"answer_mean": -1, "answer_min": -0.01, "kl_mean": 0, "kl_max": 0, "format": 0}),
    ],
)  # fmt: skip
def test_by_hand(values: Any, terms: dict[str, Any], expected: dict[str, float]) -> None:
    assert parts(*values, **terms) == pytest.approx(expected)


logprobs = st.floats(-50, 0)
tokens = st.lists(logprobs, min_size=1, max_size=12)
pairs = st.lists(st.tuples(logprobs, logprobs), min_size=1, max_size=12)
settings = st.fixed_dictionaries({
    "use_schulman_kl_estimation": st.booleans(),
    "normalize_log_prob_fn": st.sampled_from([None, "exp"]),
    "normalize_kl_fn": st.sampled_from([None, "exp_norm"]),
    "reduction_log_prob_fn": st.sampled_from([("mean", "min"), ("median", "sum"), ("first_quartile", "max")]),
})  # fmt: skip


@given(tokens, pairs, settings, st.data())
def test_a_likelier_solution_is_worth_no_less(
    solution: list[float], thought: list[tuple[float, float]], terms: dict[str, Any], data: st.DataObject
) -> None:
    student, teacher = map(list, zip(*thought, strict=True))
    better = [data.draw(st.floats(value, 0)) for value in solution]
    assert total(better, student, teacher, **terms) >= total(solution, student, teacher, **terms) - 1e-9


@given(tokens, pairs, settings)
def test_without_kl_the_teacher_is_not_asked(
    solution: list[float], thought: list[tuple[float, float]], terms: dict[str, Any]
) -> None:
    student, teacher = map(list, zip(*thought, strict=True))
    terms |= {"kl_penalty_reward_coeff": [0, 0]}
    alike = {total(solution, student, other, **terms) for other in (teacher, student, None)}
    assert len(alike | {total(solution, [], [], **terms)}) == 1


@given(tokens, pairs, settings, st.randoms())
def test_the_order_of_tokens_does_not_matter(
    solution: list[float], thought: list[tuple[float, float]], terms: dict[str, Any], chance: Any
) -> None:
    mixed, answers = chance.sample(thought, len(thought)), chance.sample(solution, len(solution))
    one = total(solution, *map(list, zip(*thought, strict=True)), **terms)
    assert total(answers, *map(list, zip(*mixed, strict=True)), **terms) == pytest.approx(one, rel=1e-9, abs=1e-9)


@given(tokens, st.lists(logprobs, min_size=1, max_size=12))
def test_agreement_costs_nothing_and_k3_is_never_negative(solution: list[float], thought: list[float]) -> None:
    for schulman in (False, True):
        found = parts(solution, thought, thought, use_schulman_kl_estimation=schulman)
        assert found["kl_mean"] == found["kl_max"] == 0
    other = [value - 1 for value in thought]
    assert parts(solution, other, thought, use_schulman_kl_estimation=True)["kl_mean"] < 0


number = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(number, max_size=6), st.lists(st.tuples(number, number), max_size=6), settings, st.booleans())
def test_every_reward_is_a_number(
    solution: list[float], thought: list[tuple[float, float]], terms: dict[str, Any], closed: bool
) -> None:
    student, teacher = [a for a, _ in thought], [b for _, b in thought]
    assert all(math.isfinite(value) for value in parts(solution, student, teacher, closed, **terms).values())


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"reduction_kl_fn": ["mean", "maxx"]}, "no reduction_kl_fn 'maxx'; did you mean max"),
        ({"kl_penalty_reward_coeff": [0]}, r"type as many, e.g. kl_penalty_reward_coeff=\[0,0\]"),
        ({"answer_log_prob_coeff": ["a", "b"]}, "must hold numbers"),
        ({"answer_log_prob_coeff": [NAN, 1]}, "must hold numbers"),
        ({"reduction_log_prob_fn": ["mean", "mean"]}, "names one twice"),
        ({"normalize_kl_fn": "exp_nrom"}, "did you mean exp_norm"),
        ({"clip_kl": 0}, "type a number above 0"),
        ({"not_matched_penalty": 1}, "type not_matched_penalty=-1"),
        ({"use_schulman_kl_estimation": True, "include_teacher_think_entropy": False}, "add include_teacher"),
    ],
)
def test_what_cannot_work_is_refused(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Likelihood(**terms)


def test_other_tokens_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match=r"type kl_penalty_reward_coeff=\[0,0\]"):
        parts(S, T, None)
    assert parts(S, T, None, include_teacher_think_entropy=False)["kl_mean"] == -4.5
    with pytest.raises(ConfigError, match="different tokenizers"):
        Likelihood().needs(comparable=False)
    Likelihood(kl_penalty_reward_coeff=[0, 0]).needs(comparable=False)


def lesson(scores: Scores) -> Episode:
    said = Turn("teacher", "explain", Sample("go", "stop", 1))
    return Episode("explain", "u", "q", "a", (said,), teaching="go", teaching_tokens=2, scores=scores)


@pytest.mark.parametrize(
    ("form", "cost"),
    [("closed", 0), ("trailing", 0), ("missing", -1), ("truncated", -1), ("empty", -1), ("tagged", -1)],
)
def test_how_an_explanation_ends_decides_its_format(form: Any, cost: float) -> None:
    found = explained(lesson(Scores(form, (-1.0, -3.0), (-1.0, -2.0), (-0.5, -0.5))), Likelihood())
    assert found["format"] == cost
    assert sum(found.values()) == pytest.approx(-2 - 0.03 - 3 - 0.045 + cost)


def test_what_was_not_scored_is_worth_what_is_undefined() -> None:
    for own in ((), None):
        found = explained(lesson(Scores("closed", teacher=own, unscored="too long")), Likelihood())
        assert sum(found.values()) == pytest.approx(-1 - 0.01 - 3 - 0.03 - 1)  # and pays as if it had not ended
