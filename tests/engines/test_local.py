"""The in-process engine on the real embedded model, and on small random models of other architectures."""

import asyncio
import copy
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tutelage.engines import Sample, Sampling, linear
from tutelage.engines.local import TransformersEngine
from tutelage.engines.slots import attend
from tutelage.errors import EngineError, PromptTooLong

PROMPTS = ["Count to five.", "Name a colour. " * 9, "Why is the sky blue? " * 23, "Hi"]


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def run(smollm: tuple[Any, Any, str], work: Callable[[TransformersEngine], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        model, tokenizer, revision = smollm
        async with TransformersEngine(model, tokenizer, name="smollm", revision=revision, **options) as engine:
            return await work(engine)

    return asyncio.run(main())


def test_samples_do_not_depend_on_batch_neighbours(smollm: Any) -> None:
    sampling = Sampling(max_tokens=12, temperature=1.0)

    async def alone(engine: TransformersEngine) -> list[Sample]:
        return await engine.generate(ask(PROMPTS[0]), sampling, n=3, seed=7)

    async def crowded(engine: TransformersEngine) -> list[Sample]:
        others = [
            engine.generate(ask(text), sampling.but(max_tokens=4 + 5 * i), n=1 + i, seed=i)
            for i, text in enumerate(PROMPTS)
        ]
        return (await asyncio.gather(*others, engine.generate(ask(PROMPTS[0]), sampling, n=3, seed=7)))[-1]

    first, second = run(smollm, alone), run(smollm, crowded)
    assert [sample.ids for sample in first] == [sample.ids for sample in second]
    assert [sample.logprobs for sample in first] == [sample.logprobs for sample in second]  # bit for bit


def test_a_late_request_joins_and_changes_nothing(smollm: Any) -> None:
    sampling = Sampling(max_tokens=20, temperature=1.0)

    async def staggered(engine: TransformersEngine) -> list[list[Sample]]:
        early = asyncio.create_task(engine.generate(ask(PROMPTS[2]), sampling, seed=1))
        while engine.generated < 5:
            await asyncio.sleep(0.01)
        late = await engine.generate(ask(PROMPTS[3]), sampling.but(max_tokens=6), seed=2)
        assert not early.done()  # it really joined a running batch
        return [await early, late]

    async def apart(engine: TransformersEngine) -> list[list[Sample]]:
        return [
            await engine.generate(ask(PROMPTS[2]), sampling, seed=1),
            await engine.generate(ask(PROMPTS[3]), sampling.but(max_tokens=6), seed=2),
        ]

    joined, separate = run(smollm, staggered), run(smollm, apart)
    assert [[s.ids for s in group] for group in joined] == [[s.ids for s in group] for group in separate]


def test_a_text_has_the_same_scores_while_others_write(smollm: Any) -> None:
    text = tuple(range(100, 160)), tuple(range(200, 230))

    async def meanwhile(engine: TransformersEngine) -> list[float]:
        writing = asyncio.create_task(engine.generate(ask(PROMPTS[2]), Sampling(max_tokens=30), seed=1))
        while engine.generated < 3:
            await asyncio.sleep(0.01)
        found = await engine.score(*text)
        assert not writing.done()
        await writing
        return found

    assert run(smollm, meanwhile) == run(smollm, lambda engine: engine.score(*text))


def test_sampled_logprobs_equal_recomputed_ones(smollm: Any) -> None:
    model = smollm[0]
    sampling = Sampling(max_tokens=16, temperature=0.7, top_p=0.9)

    async def work(engine: TransformersEngine) -> Any:
        groups = await asyncio.gather(*(engine.generate(ask(text), sampling, n=2, seed=3) for text in PROMPTS))
        samples = [sample for group in groups for sample in group]
        scores = await asyncio.gather(*(engine.score(s.prompt_ids, s.ids, 0.7) for s in samples))
        return samples, scores

    samples, scores = run(smollm, work)
    for sample, score in zip(samples, scores, strict=True):
        text = torch.tensor([sample.prompt_ids + sample.ids])
        with torch.no_grad():
            logits = model(text, use_cache=False).logits[0, len(sample.prompt_ids) - 1 : -1] / 0.7
        exact = logits.log_softmax(-1).gather(1, torch.tensor(sample.ids)[:, None])[:, 0].tolist()
        assert sample.logprobs == pytest.approx(exact, abs=1e-4)
        assert score == pytest.approx(exact, abs=1e-4)


def test_greedy_is_what_generate_writes(smollm: Any) -> None:
    model, tokenizer, _ = smollm

    async def work(engine: TransformersEngine) -> list[list[Sample]]:
        greedy = Sampling(max_tokens=12, temperature=0.0)
        return await asyncio.gather(*(engine.generate(ask(text), greedy) for text in PROMPTS))

    for [sample] in run(smollm, work):
        prompt = torch.tensor([sample.prompt_ids])
        expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12)
        assert list(sample.ids) == expected[0, prompt.shape[1] :].tolist()
        assert sample.text == tokenizer.decode(sample.ids, skip_special_tokens=True)
        assert (sample.finish == "stop") == (sample.ids[-1] == tokenizer.eos_token_id)


def test_a_shared_prompt_is_read_once_and_seeds_differ_by_sample(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> Any:
        read: list[int] = []
        forward = engine._forward
        engine._forward = lambda ids, *a, **k: (read.append(ids.shape[1]), forward(ids, *a, **k))[1]  # type: ignore[method-assign,func-returns-value]
        samples = await engine.generate(ask(PROMPTS[1]), Sampling(max_tokens=10, temperature=1.5), n=5, seed=1)
        return samples, [length for length in read if length > 1]

    samples, prefills = run(smollm, work)
    assert len(prefills) == 1
    assert len({sample.ids for sample in samples}) > 1


def test_memory_stays_within_its_budget_and_samples_the_same(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> Any:
        peak = 0
        step = engine._step

        def watched(rows: list[Any]) -> None:
            nonlocal peak
            peak = max(peak, engine.slots.rows * engine.slots.length)
            step(rows)

        engine._step = watched  # type: ignore[method-assign]
        long = asyncio.create_task(engine.generate(ask("a b c " * 60), Sampling(max_tokens=16), seed=9))
        while not engine.generated:
            await asyncio.sleep(0.01)
        groups = [engine.generate(ask(f"{i} apples"), Sampling(max_tokens=6), n=4, seed=i) for i in range(6)]
        found = [[s.ids for s in group] for group in [*await asyncio.gather(*groups), await long]]
        return found, peak

    wide, _ = run(smollm, work)
    tokens = 4 * 320  # four rows of the long request
    narrow, peak = run(smollm, work, cache_gb=tokens * 46080 / 2**30)
    assert peak <= tokens
    assert wide == narrow


def test_limits_and_finish_reasons_are_per_request(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> Any:
        return await asyncio.gather(
            *(engine.generate(ask("Tell a long story."), Sampling(max_tokens=n), seed=1) for n in (1, 5, 9))
        )

    for [sample], limit in zip(run(smollm, work), (1, 5, 9), strict=True):
        assert (sample.tokens, sample.finish) == (limit, "length")
        assert len(sample.ids) == len(sample.logprobs) == limit


def test_a_prompt_over_the_context_is_refused(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> None:
        engine.context = 64
        with pytest.raises(PromptTooLong, match="64-token context"):
            await engine.generate(ask("word " * 80), Sampling())
        [sample] = await engine.generate(ask("Tell a long story."), Sampling(max_tokens=500, temperature=0))
        assert len(sample.prompt_ids) + sample.tokens <= 64

    run(smollm, work)


def test_a_failure_raises_and_the_engine_goes_on(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> None:
        forward, engine._forward = engine._forward, None  # type: ignore[method-assign,assignment]
        with pytest.raises(EngineError, match="failed"):
            await engine.generate(ask("Hi"), Sampling(max_tokens=2))
        engine._forward = forward  # type: ignore[method-assign]
        assert await engine.generate(ask("Hi"), Sampling(max_tokens=2))

    run(smollm, work)


@pytest.mark.skipif(not linear.KNOWN, reason="needs oneDNN on x86")
@pytest.mark.parametrize("fails", [False, True])
def test_copies_of_weights_are_given_back_without_work(smollm: Any, fails: bool, monkeypatch: Any) -> None:
    model, tokenizer, revision = smollm
    engine = TransformersEngine(model, tokenizer, name="smollm", revision=revision, cache_gb=0.0001)
    asyncio.run(engine.generate(ask("Hi"), Sampling(max_tokens=2)))
    if fails:
        monkeypatch.setattr(engine, "_step", lambda rows: 1 / 0)
        with pytest.raises(EngineError):
            asyncio.run(engine.generate(ask("Hi"), Sampling(max_tokens=2)))
    deadline = time.monotonic() + 10
    while linear.held(model) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not linear.held(model)
    asyncio.run(engine.close())


def test_a_closed_engine_refuses_instead_of_hanging(smollm: Any) -> None:
    async def main() -> None:
        engine = TransformersEngine(*smollm[:2], name="smollm")
        asking = asyncio.create_task(engine.generate(ask("Tell a story."), Sampling(max_tokens=5000)))
        while not engine.generated:
            await asyncio.sleep(0.01)
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await asking
        with pytest.raises(EngineError, match="closed"):
            await engine.generate(ask("Hi"), Sampling())

    asyncio.run(main())


def test_senseless_requests_are_refused(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> None:
        for prompt, n in (((), 1), ((1, 2), 0)):
            with pytest.raises(EngineError, match="was asked for"):
                await engine.generate_ids(prompt, Sampling(), n)
        with pytest.raises(EngineError, match="at least one token"):
            await engine.score((), (1,))
        assert await engine.score((5, 6), (7,), 0.0) == await engine.score((5, 6), (7,), 1.0)

    run(smollm, work)


def test_a_template_without_a_system_role(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> str:
        engine.tokenizer = copy.deepcopy(engine.tokenizer)
        engine.tokenizer.chat_template = (
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
            "<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
        )
        return engine.tokenizer.decode(engine.render([{"role": "system", "content": "Be kind."}, *ask("Hi")]))

    assert run(smollm, work) == "<user>Be kind.\n\nHi<assistant>"


def test_attention_that_is_not_ours_is_refused() -> None:
    query = torch.zeros(1, 2, 3, 8)
    with pytest.raises(EngineError, match="student_url"):
        attend(torch.nn.Identity(), query, query, query, None, softcap=50.0)


def test_a_cancelled_request_leaves_the_batch(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.generate(ask("Tell a story."), Sampling(max_tokens=5000), n=8), 0.5)
        before = engine.generated
        await engine.generate(ask("Hi"), Sampling(max_tokens=3))
        assert engine.generated - before <= 3 + 16  # at most two more tokens for each of the eight

    run(smollm, work)


def test_prefill_is_continued(smollm: Any) -> None:
    async def work(engine: TransformersEngine) -> Any:
        messages = [*ask("Which number?"), {"role": "assistant", "content": "The number is"}]
        return engine.tokenizer.decode(engine.render(messages))

    assert run(smollm, work).endswith("<|im_start|>assistant\nThe number is")


SMALL: dict[str, Any] = dict(
    vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)  # fmt: skip
ARCHITECTURES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=16)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=12)),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=12, query_pre_attn_scalar=8)
    ),
}


class NoTokenizer:
    eos_token_id = None

    def decode(self, ids: list[int], **_: Any) -> str:
        return " ".join(map(str, ids))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures_match_generate(name: str) -> None:
    torch.manual_seed(0)
    model = ARCHITECTURES[name]().eval()
    prompts = [tuple(range(2, 2 + n)) for n in (1, 5, 31, 33, 40)]

    async def main() -> list[list[Sample]]:
        async with TransformersEngine(model, NoTokenizer(), name=name) as engine:
            greedy = Sampling(max_tokens=30, temperature=0.0)
            return await asyncio.gather(*(engine.generate_ids(prompt, greedy) for prompt in prompts))

    for prompt, [sample] in zip(prompts, asyncio.run(main()), strict=True):
        ids = torch.tensor([prompt])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30)
        assert list(sample.ids) == expected[0, len(prompt) :].tolist()
        assert all(math.isfinite(logprob) for logprob in sample.logprobs)


def test_weights_that_are_no_numbers_are_an_error_not_words(smollm: Any) -> None:
    model, tokenizer, revision = smollm
    broken = copy.deepcopy(model)
    broken.model.norm.weight.data.fill_(math.nan)

    async def work(engine: TransformersEngine) -> None:
        for _ in range(2):  # and it is still there to say so
            with pytest.raises(EngineError, match="no numbers"):
                await engine.generate(ask("Hi"), Sampling(max_tokens=2))

    run((broken, tokenizer, revision), work)
