"""The sampler against its definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.engines.sampler import draw, pick, truncate


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 700), st.integers(0, 2**31), st.floats(0, 0.999999))
def test_pick_inverts_the_cumulative_distribution(size: int, seed: int, uniform: float) -> None:
    weights = torch.rand(1, size, generator=torch.Generator().manual_seed(seed)) ** 8
    probs = weights / weights.sum()
    token = int(pick(probs, torch.tensor([uniform])))
    ends = probs[0].double().cumsum(0) / probs.double().sum()
    start = float(ends[token] - probs[0, token].double() / probs.double().sum())
    assert probs[0, token] > 0
    assert start - 1e-5 <= uniform <= float(ends[token]) + 1e-5


def test_pick_never_takes_what_has_no_probability() -> None:
    probs = torch.zeros(3, 600)
    probs[:, 255] = 1.0  # the last of its block
    assert pick(probs, torch.tensor([0.0, 0.5, 1.0])).tolist() == [255, 255, 255]


def test_frequencies_follow_the_probabilities() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(4000, 4)
    uniform = torch.rand(4000, generator=torch.Generator().manual_seed(0))
    plain = torch.tensor([[0.5], [1.0], [0.0]]).expand(-1, 4000)
    ids, logprobs = draw(logits, torch.cat((plain, uniform[None])))
    expected = (logits[0] / 0.5).softmax(-1)
    observed = torch.bincount(ids, minlength=4) / 4000
    assert observed.tolist() == pytest.approx(expected.tolist(), abs=0.02)
    assert logprobs.tolist() == pytest.approx(expected.log()[ids].tolist(), abs=1e-5)


def test_truncation_by_hand() -> None:
    probs = torch.tensor([[0.1, 0.5, 0.15, 0.25]] * 4)
    top_p, top_k = torch.tensor([1.0, 0.6, 0.01, 1.0]), torch.tensor([0.0, 0.0, 0.0, 3.0])
    kept = truncate(probs, top_p, top_k) > 0
    assert kept.tolist() == [
        [True, True, True, True],
        [False, True, False, True],  # 0.5 is not yet 0.6, so 0.25 comes along
        [False, True, False, False],  # at least one always stays
        [False, True, True, True],
    ]


def test_logprobs_ignore_truncation_and_greedy_ignores_chance() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0]] * 2)
    greedy, cut = [0.0, 1.0, 0.0, 0.0], [1.0, 0.01, 0.0, 0.0]
    ids, logprobs = draw(logits, torch.tensor([greedy, cut]).T)
    assert ids.tolist() == [2, 2]
    assert logprobs.tolist() == pytest.approx([float(logits[0].log_softmax(-1)[2])] * 2)
