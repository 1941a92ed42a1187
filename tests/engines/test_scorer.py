"""Scoring against the plain way: the model's own logits of one text, and a log-softmax over the whole vocabulary."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from tutelage.engines import scorer
from tutelage.engines.jobs import Job
from tutelage.engines.local import TransformersEngine
from tutelage.errors import EngineError

Text = tuple[tuple[int, ...], tuple[int, ...], float]  # prompt, completion, temperature

SMALL: dict[str, Any] = dict(
    vocab_size=160, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    initializer_range=0.4,
)  # fmt: skip
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=24)),
    "experts": lambda: MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=2)),
    "soft cap": lambda: Gemma2ForCausalLM(
        Gemma2Config(
            **SMALL, head_dim=8, sliding_window=24, attn_logit_softcapping=None, final_logit_softcapping=2.0,
            query_pre_attn_scalar=8,
        )
    ),
    "scale": lambda: CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.25)),
    "divisor": lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=3.0)),
}  # fmt: skip


class NoTokenizer:
    eos_token_id = None


def texts(seed: int = 0) -> list[Text]:
    """Ragged, at several temperatures; four share a beginning of 96 tokens, three of them the whole prompt."""
    torch.manual_seed(seed)
    draw = lambda count: tuple(torch.randint(1, 160, (count,)).tolist())  # noqa: E731
    question = draw(100)
    group = [(question, draw(n), t) for n, t in ((1, 1.0), (40, 0.7), (33, 1.3))]
    others = [
        (draw(m), draw(n), t) for m, n, t in ((1, 5, 1.0), (1, 1, 2.0), (64, 64, 0.7), (90, 21, 0.0), (7, 31, 1.0))
    ]
    return [*group, (question[:97] + draw(2), draw(20), 0.7), *others]


def plain(model: Any, text: Text) -> list[float]:
    prompt, completion, temperature = text
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    logps = (logits.float() / (temperature or 1.0)).log_softmax(-1)
    return logps.gather(1, torch.tensor(completion)[:, None])[:, 0].tolist()


def scores(model: Any, asked: list[Text], tokenizer: Any = None, **options: Any) -> list[list[float]]:
    async def main() -> list[list[float]]:
        async with TransformersEngine(model, tokenizer or NoTokenizer(), name="model", **options) as engine:
            return await asyncio.gather(*(engine.score(*text) for text in asked))

    return asyncio.run(main())


def agree(found: list[list[float]], exact: list[list[float]], within: float = 1e-5) -> bool:
    return all(one == pytest.approx(other, abs=within) for one, other in zip(found, exact, strict=True))


@contextlib.contextmanager
def reads(model: Any) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of what the layers read."""
    seen: list[tuple[int, ...]] = []
    hook = model.model.embed_tokens.register_forward_hook(lambda _m, inputs, _o: seen.append(tuple(inputs[0].shape)))
    yield seen
    hook.remove()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shares", [True, False])
def test_scores_are_those_of_the_models_own_logits(name: str, shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    monkeypatch.setitem(scorer.PASS, "cpu", 0 if shares else float("inf"))
    monkeypatch.setattr(scorer, "LOGITS", 3 * 32 * 4 * 160)
    with reads(model) as seen:
        found = scores(model, texts())
    assert ((1, 96) in seen) == shares
    assert agree(found, [plain(model, text) for text in texts()])


def test_an_adapter_on_layers_and_head_speaks_or_is_silent() -> None:
    torch.manual_seed(2)
    base = MODELS["llama"]().eval()
    without = [plain(base, text) for text in texts()]
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "down_proj", "lm_head"]))
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.3)
    exact = [plain(model, text) for text in texts()]
    assert not agree(exact, without, within=0.1)
    assert agree(scores(model, texts()), exact)
    assert agree(scores(model, texts(), voice=model.disable_adapter), without)
    assert agree(scores(model, texts()), exact)


def test_the_real_model_scores_alike_alone_in_a_crowd_and_after_a_shared_prompt(smollm: Any) -> None:
    model, tokenizer, _ = smollm
    asked = texts(seed=3)[:5]
    with reads(model) as seen:
        found = scores(model, asked, tokenizer)
    # The beginning, the rest of each, and the one text that has nothing in common: 608 tokens if each were read whole.
    assert sum(rows * length for rows, length in seen if length > 1) == 96 + (32 + 64 + 64 + 32) + 32
    assert found == [scores(model, [text], tokenizer)[0] for text in asked]  # bit for bit
    assert agree(found, [plain(model, text) for text in asked], within=5e-5)


def test_never_more_logits_than_allowed_and_the_model_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["llama"]().eval()
    monkeypatch.setattr(scorer, "LOGITS", 2 * 32 * 4 * 160)
    rows: list[int] = []
    hook = model.lm_head.register_forward_hook(lambda _m, inputs, _o: rows.append(inputs[0][..., 0].numel()))
    scores(model, [((1,) * 9, (2,) * 400, 1.0)])
    hook.remove()
    assert rows == [0, 64, 64, 64, 64, 64, 64, 32]

    def failing(*_: Any) -> None:
        raise ValueError("the head is gone")

    before = model.lm_head.forward
    model.lm_head.forward = failing
    with pytest.raises(EngineError, match="the head is gone"):
        scores(model, texts())
    model.lm_head.forward = before
    assert "forward" not in vars(model.model) and not model.model._forward_hooks
    assert agree(scores(model, texts()), [plain(model, text) for text in texts()])


def test_half_precision_models_are_scored_in_float32() -> None:
    torch.manual_seed(4)
    head, hidden = torch.nn.Linear(16, 50, bias=False).bfloat16(), torch.randn(70, 16).bfloat16()
    wanted, heats = torch.randint(0, 50, (70,)), torch.linspace(0.5, 2, 70)
    with torch.inference_mode():
        found = scorer.logprobs(head, hidden, wanted, heats, 50)
        exact = (head(hidden).float() / heats[:, None]).log_softmax(-1).gather(1, wanted[:, None])[:, 0]
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(exact.tolist(), abs=1e-5)


def test_a_model_without_layers_of_its_own_is_refused() -> None:
    model = MODELS["llama"]()
    model.base_model_prefix = "elsewhere"
    with pytest.raises(EngineError, match="score with another model"):
        scores(model, texts())


def job(prompt: tuple[int, ...], count: int) -> Job:
    return Job(prompt, done=lambda _: None, cancelled=lambda: False, completion=(1,) * count)


prompts = st.tuples(st.integers(1, 3), st.integers(1, 200)).map(lambda pair: (pair[0],) * pair[1])
jobs = st.lists(st.tuples(prompts, st.integers(1, 300)).map(lambda pair: job(*pair)), max_size=20)


@given(jobs, st.integers(0, 400))
def test_only_a_beginning_that_pays_is_shared(asked: list[Job], least: int) -> None:
    groups = scorer.shared(asked, least)
    assert sorted(map(id, (one for _, group in groups for one in group))) == sorted(map(id, asked))
    for prefix, group in groups[1:]:
        assert prefix > 0 and prefix % 32 == 0 and (len(group) - 1) * prefix >= least
        assert len({one.prompt[:prefix] for one in group}) == 1
        assert all(prefix < len(one.prompt) for one in group)  # the last token is left: the first score needs it


@given(jobs, st.integers(32, 2000), st.booleans())
def test_batches_hold_each_text_once_within_the_budget(asked: list[Job], tokens: int, alike: bool) -> None:
    batches = list(scorer.batches(asked, 0, tokens, alike))
    assert sorted(map(id, (one for batch in batches for one in batch))) == sorted(map(id, asked))
    for batch in batches:
        lengths = [scorer.reach(one) for one in batch]
        assert lengths[0] == max(lengths) <= 2 * min(lengths)
        assert len(batch) * lengths[0] <= tokens or len(batch) == 1
        assert not alike or len(set(lengths)) == 1
