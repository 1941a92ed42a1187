"""The vLLM engine on a real server on the CPU: the same tokens and log-probs as in this process."""

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tutelage import models
from tutelage.cli import main
from tutelage.engines import Sample, Sampling, adapters, sync
from tutelage.engines.fleet import Fleet
from tutelage.engines.local import TransformersEngine
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import EngineError, PromptTooLong

BASE = "smollm2-135m"
PROMPTS = ["Count to five.", "Name a colour. " * 9, "Hi"]
LONG = "Why is the sky blue, and the sea? " * 20  # more than a block of vLLM's prefix cache on a CPU


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


@functools.cache
def words() -> Any:
    return models.tokenizer(BASE)


def served(url: str, work: Callable[[VLLMEngine], Awaitable[Any]], model: str = BASE) -> Any:
    async def main() -> Any:
        async with Fleet([url]) as fleet:
            return await work(await VLLMEngine(model, fleet, words()).connect())

    return asyncio.run(main())


def local(model: Any, tokenizer: Any, work: Callable[[TransformersEngine], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with TransformersEngine(model, tokenizer, name=BASE) as engine:
            return await work(engine)

    return asyncio.run(main())


def gap(model: Any, tokenizer: Any, samples: Sequence[Sample], temperature: float) -> float:
    """The largest difference between what the server said of its samples and what the model says of them."""

    async def scores(engine: TransformersEngine) -> list[list[float]]:
        return await asyncio.gather(*(engine.score(s.prompt_ids, s.ids, temperature) for s in samples))

    pairs = zip(samples, local(model, tokenizer, scores), strict=True)
    return max(abs(a - b) for sample, score in pairs for a, b in zip(sample.logprobs, score, strict=True))


@pytest.fixture(scope="module")
def policy() -> Any:
    """The embedded model with an adapter that changes what it says."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(models.load(BASE)[0], config)
    move(model, seed=1)
    return model.eval()


def move(model: Any, seed: int) -> None:
    """As a training step does, only more."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight += 0.02 * torch.randn_like(weight)


def test_greedy_tokens_are_those_of_the_model_in_this_process(vllm: str, smollm: Any) -> None:
    async def work(engine: Any) -> list[list[Sample]]:
        greedy = Sampling(max_tokens=16, temperature=0.0)
        return await asyncio.gather(*(engine.generate(ask(text), greedy) for text in PROMPTS))

    for [here], [there] in zip(local(*smollm[:2], work), served(vllm, work), strict=True):
        assert (here.ids, here.text, here.finish) == (there.ids, there.text, there.finish)
        assert (here.prompt_ids, here.tokens) == (there.prompt_ids, there.tokens)
        assert there.logprobs == pytest.approx(here.logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.7, pytest.param(1.3, marks=pytest.mark.slow)])
def test_sampled_logprobs_are_those_at_the_sampling_temperature(vllm: str, smollm: Any, temperature: float) -> None:
    async def work(engine: VLLMEngine) -> list[Sample]:
        sampling = Sampling(max_tokens=12, temperature=temperature)
        groups = [engine.generate(ask(text), sampling, n=2, seed=3) for text in PROMPTS]
        return [sample for group in await asyncio.gather(*groups) for sample in group]

    samples = served(vllm, work)
    assert gap(*smollm[:2], samples, temperature) <= 1e-4
    assert gap(*smollm[:2], samples, 1.0) > 0.01  # the check can tell


def test_seeds(vllm: str) -> None:
    sampling = Sampling(max_tokens=10, temperature=1.0)

    async def work(engine: VLLMEngine) -> list[list[Sample]]:
        asked = [(PROMPTS[0], 5, 7), (PROMPTS[0], 5, 8), (PROMPTS[1], 2, 7), (PROMPTS[0], 2, 7)]
        return await asyncio.gather(*(engine.generate(ask(text), sampling, n=n, seed=seed) for text, n, seed in asked))

    first, other, _, fewer = served(vllm, work)
    again = served(vllm, lambda engine: engine.generate(ask(PROMPTS[0]), sampling, n=5, seed=7))
    assert [sample.ids for sample in first] == [sample.ids for sample in again]
    assert [sample.ids for sample in first[:2]] == [sample.ids for sample in fewer]
    assert len({sample.ids for sample in [*first, *other]}) == 10  # neighbouring seeds share no sample


def test_both_endpoints_say_the_same(vllm: str) -> None:
    async def work(engine: VLLMEngine) -> list[list[Sample]]:
        [server] = engine.fleet.servers
        assert server.terse
        found = []
        for server.terse in (True, False):
            for sampling in (Sampling(8, 1.0), Sampling(8, 1.0, top_p=0.5), Sampling(8, 0.0)):
                found.append(await engine.generate(ask(PROMPTS[0]), sampling, n=2, seed=3))
        return found

    found = served(vllm, work)
    for terse, plain in zip(found[:3], found[3:], strict=True):
        for one, two in zip(terse, plain, strict=True):
            assert (one.ids, one.text, one.finish) == (two.ids, two.text, two.finish)
            assert one.logprobs == pytest.approx(two.logprobs, abs=1e-4)


def test_a_sample_ends_with_the_end_token_or_was_cut(vllm: str, smollm: Any) -> None:
    async def work(engine: VLLMEngine) -> list[Sample]:
        whole = engine.generate(ask("What is 2 + 2? One number."), Sampling(max_tokens=32), n=4)
        cut = engine.generate(ask("Tell me a long story."), Sampling(max_tokens=3), n=2)
        return [sample for group in await asyncio.gather(whole, cut) for sample in group]

    samples, end = served(vllm, work), smollm[1].eos_token_id
    assert {sample.finish for sample in samples} == {"stop", "length"}
    for sample in samples:
        assert (sample.finish == "stop") == (sample.ids[-1] == end)
        assert sample.tokens == len(sample.ids) == len(sample.logprobs) and "<|im_end|>" not in sample.text
        assert sample.seconds > 0


def test_a_cut_distribution_gives_no_logprobs_rather_than_wrong_ones(vllm: str) -> None:
    async def work(engine: VLLMEngine) -> list[list[Sample]]:
        cuts = (Sampling(max_tokens=4, top_p=0.5), Sampling(max_tokens=4, top_k=1), Sampling(4, temperature=0.0))
        return [await engine.generate(ask(PROMPTS[0]), sampling, n=2) for sampling in cuts]

    nucleus, best, greedy = served(vllm, work)
    assert all(sample.ids and not sample.logprobs for sample in [*nucleus, *best])
    assert {sample.ids for sample in best} == {sample.ids for sample in greedy}  # top_k arrived


def test_scores_are_those_of_the_model_in_this_process(vllm: str, smollm: Any) -> None:
    async def work(engine: Any) -> Any:
        prompt, reply = engine.render(ask(PROMPTS[1])), engine.tokenizer.encode("Blue, or is it green?")
        assert await engine.score(prompt, []) == []
        assert engine.count("Blue, or", Sample("Blue, or is it green?", "stop", 9)) == 3
        return await engine.score(prompt, reply)

    assert served(vllm, work) == pytest.approx(local(*smollm[:2], work), abs=1e-4)


def test_a_prefill_is_continued(vllm: str, smollm: Any) -> None:
    messages = [*ask("A number?"), {"role": "assistant", "content": "The number is"}]

    async def work(engine: Any) -> list[Sample]:
        return await engine.generate(messages, Sampling(max_tokens=6, temperature=0.0))

    assert served(vllm, work)[0].ids == local(*smollm[:2], work)[0].ids


def test_what_does_not_fit(vllm: str) -> None:
    async def work(engine: VLLMEngine) -> None:
        assert engine.context == 1024
        with pytest.raises(PromptTooLong, match="1024-token context"):
            await engine.generate_ids([5] * 1024, Sampling())
        with pytest.raises(PromptTooLong, match="no room for the one token"):
            await engine.score([5] * 1000, [6] * 24)
        assert len(await engine.score([5] * 1000, [6] * 23)) == 23
        [sample] = await engine.generate_ids([5] * 1022, Sampling(max_tokens=50))
        assert sample.tokens <= 2
        engine.context = 4096  # as if the server had said so
        with pytest.raises(PromptTooLong, match="raise max_model_len"):
            await engine.generate_ids([5] * 2000, Sampling())
        with pytest.raises(EngineError, match=r"temperature 1, not 0\.7"):
            await engine.score([5], [6], temperature=0.7)

    served(vllm, work)


@pytest.mark.slow
def test_a_crowd_of_long_prompts_is_answered(vllm: str) -> None:
    """More prompt tokens than one step reads: a seeded sample read in parts would kill a CPU server."""

    async def work(engine: VLLMEngine) -> list[list[Sample]]:
        asked = (engine.generate(ask(f"{i} {LONG}"), Sampling(max_tokens=2), n=2) for i in range(8))
        return await asyncio.gather(*asked)

    assert [len(group) for group in served(vllm, work)] == [2] * 8


def test_an_adapter_is_synced_and_the_prefix_cache_forgets(vllm: str, policy: Any, smollm: Any, tmp_path: Path) -> None:
    """The same long prompt before and after: what the old weights left in the cache must not be read."""
    tokenizer = smollm[1]

    async def work(engine: VLLMEngine) -> Any:
        async def speak() -> list[Sample]:
            return await engine.generate(ask(LONG), Sampling(max_tokens=4), n=2)

        base = await speak()
        policy.save_pretrained(tmp_path / "first")
        await sync.lora(engine, tmp_path / "first", 1)
        revision = engine.revision
        first = await speak()
        assert (await asyncio.to_thread(gap, policy, tokenizer, first, 0.7)) <= 1e-4
        move(policy, seed=2)
        stale = await speak()
        policy.save_pretrained(tmp_path / "first")  # the same folder, as a trainer may
        await sync.lora(engine, tmp_path / "first", 2)
        assert engine.model == f"{BASE}@2" and engine.revision != revision
        second = await speak()
        await engine.fleet.connect()
        assert sorted(engine.fleet.servers[0].models) == [BASE, f"{BASE}@2"]  # the old one is gone
        with pytest.raises(EngineError, match=f"has a {BASE}@2 already: give each sync a version of its own"):
            await sync.lora(engine, tmp_path / "first", 2)
        student = VLLMEngine(BASE, engine.fleet, tokenizer)
        student.context = engine.context
        again = await student.generate(ask(LONG), Sampling(max_tokens=4), n=2)
        return base, stale, second, again

    base, stale, second, again = served(vllm, work)
    assert gap(policy, tokenizer, stale, 0.7) > 0.05  # without a sync it shows
    assert gap(policy, tokenizer, second, 0.7) <= 1e-4
    assert [sample.ids for sample in again] == [sample.ids for sample in base]  # one server, two roles
    assert gap(*smollm[:2], again, 0.7) <= 1e-4


def test_several_adapters_speak_through_one_server_and_leave_it(
    vllm: str, policy: Any, smollm: Any, tmp_path: Path
) -> None:
    names = [str(tmp_path / "one"), str(tmp_path / "two"), BASE]
    for seed, name in enumerate(names[:2]):
        move(policy, seed)
        policy.peft_config["default"].base_model_name_or_path = BASE
        policy.save_pretrained(name)

    async def main() -> Any:
        async with Fleet([vllm]) as fleet, contextlib.AsyncExitStack() as stack:
            await fleet.connect()
            before = set(fleet.servers[0].models)
            engines = [await stack.enter_async_context(adapters.served(name, fleet)) for name in names]
            # At once: on a CPU, vLLM would add an adapter to a base that shares its batch.
            found = await asyncio.gather(*(engine.generate(ask(LONG), Sampling(max_tokens=4)) for engine in engines))
            assert [engine.name for engine in engines] == names
            revisions = [engine.revision for engine in engines]
            await stack.aclose()
            await fleet.connect()
            assert set(fleet.servers[0].models) == before
            async with adapters.served(names[1], fleet) as again:
                assert again.revision == revisions[1] != revisions[0]  # a run finds itself again
            return [sample for [sample] in found]

    one, two, base = asyncio.run(main())
    assert gap(policy, smollm[1], [two], 0.7) <= 1e-4 < 0.01 < gap(policy, smollm[1], [one], 0.7)
    assert gap(*smollm[:2], [base], 0.7) <= 1e-4


def test_an_adapter_the_server_cannot_take(vllm: str, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=32, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(models.load(BASE)[0], config).save_pretrained(tmp_path / "wide")

    async def work(engine: VLLMEngine) -> None:
        with pytest.raises(EngineError, match=r"has rank 32 and .* takes at most 16: train with lora_r=16"):
            await sync.lora(engine, tmp_path / "wide", 1)
        (tmp_path / "empty").mkdir()
        with pytest.raises(EngineError, match=r"cannot read an adapter in .*empty"):
            await sync.lora(engine, tmp_path / "empty", 1)
        assert engine.model == BASE
        assert await engine.generate(ask("Hi"), Sampling(max_tokens=1))  # and it goes on
        engine.model = f"{BASE}@9"  # a process that believes in a sync that never was
        with pytest.raises(EngineError, match=rf"has no model {BASE}@9: did you mean {BASE}"):
            await engine.generate(ask("Hi"), Sampling(max_tokens=1))

    served(vllm, work)


@pytest.mark.slow
def test_all_weights_are_reloaded_from_a_folder(
    vllm: str, smollm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, tokenizer, _ = models.load(BASE)
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in changed.named_parameters():
            if "embed" not in name:  # a CPU server would keep its packed copy of those, which are the output layer too
                weight += 0.01 * weight.std() * torch.randn_like(weight)
    changed.save_pretrained(tmp_path / "whole")

    async def work(engine: VLLMEngine) -> Any:
        async def speak() -> list[Sample]:
            return await engine.generate(ask(LONG), Sampling(max_tokens=4), n=2)

        with pytest.raises(EngineError, match="whole, which is tied to its embeddings"):
            await sync.disk(engine, tmp_path / "whole", 1)
        with pytest.raises(EngineError, match="nowhere holds no saved model"):
            await sync.disk(engine, tmp_path / "nowhere", 1)
        before, revision = await speak(), engine.revision
        monkeypatch.setattr(sync, "tied", lambda _: False)
        try:
            await sync.disk(engine, tmp_path / "whole", 1)
            assert engine.revision != revision
            after = await speak()
        finally:
            await sync.disk(engine, models.locate(BASE), 2)
        return before, after, await speak()

    before, after, back = served(vllm, work)
    assert gap(changed, tokenizer, before, 0.7) > 0.01
    assert gap(changed, tokenizer, after, 0.7) <= 1e-4
    assert gap(*smollm[:2], back, 0.7) <= 1e-4


def test_lessons_on_a_server(vllm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "embedded", lambda _: pytest.fail("the weights are the server's"))
    where, port = vllm.removeprefix("http://").split(":")
    brief = "limit=2 max_tokens=8 max_completion_length=8 max_probe_tokens=8 baseline_samples=1 taught_samples=1"
    words = f"evaluate engine=vllm vllm_host={where} vllm_port={port} results_dir={tmp_path} {brief}"
    assert main(words.split()) == 0
    rows = [json.loads(line) for line in (tmp_path / "latest_run" / "episodes.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all(turn["sample"]["logprobs"] for row in rows for turn in row["turns"])
    assert main(words.replace(where, vllm).split()) == 0  # the same run, by another address
    assert len(list(tmp_path.glob("evaluate-*"))) == 1


def test_an_unknown_model(vllm: str) -> None:
    async def nothing(_: VLLMEngine) -> None: ...

    with pytest.raises(EngineError, match=f"has no model smollm: did you mean {BASE}"):
        served(vllm, nothing, model="smollm")


def test_a_wrong_address_says_how_to_look() -> None:
    async def nothing(_: VLLMEngine) -> None: ...

    with socket.socket() as taken:  # bound and not listening: nobody else can open it meanwhile
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EngineError, match=rf"is the server running\? try: curl {url}/health"):
            served(url, nothing)
    with pytest.raises(EngineError, match="write it like http://"):
        served("localhost:8765", nothing)
