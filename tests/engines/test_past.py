"""What was read or written before is not read again, and nothing else changes: bit for bit on a CPU."""

import asyncio
import random
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from tutelage.engines import Sample, Sampling
from tutelage.engines.jobs import Span, batches
from tutelage.engines.local import TransformersEngine
from tutelage.engines.past import Past, alike_until

SMALL: dict[str, Any] = dict(
    vocab_size=160, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    initializer_range=0.4,
)  # fmt: skip
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=24)),
}
HOW = Sampling(max_tokens=6, temperature=1.0)


class Words:
    eos_token_id = None

    def decode(self, ids: Any, **_: Any) -> str:
        return " ".join(map(str, ids))


def small(name: str = "llama") -> Any:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def engine(model: Any, past: bool = True, **options: Any) -> TransformersEngine:
    made = TransformersEngine(model, Words(), name="small", **options)
    made._past.least = 0
    if not past:
        made._past.fit = lambda room: None  # type: ignore[method-assign]
    return made


def some(chance: random.Random, count: int) -> tuple[int, ...]:
    return tuple(chance.randrange(2, 160) for _ in range(count))


def prompts() -> list[tuple[int, ...]]:
    """Two openings of 100 and 70 tokens with endings of all lengths, one that is only an opening, and strangers."""
    chance = random.Random(0)
    first, second = some(chance, 100), some(chance, 70)
    found = [first + some(chance, count) for count in (1, 2, 5, 29, 30, 31, 60)]
    found += [second + some(chance, count) for count in (3, 40)]
    return [*found, first, first[:97], some(chance, 20), some(chance, 90), first[:64] + some(chance, 50)]


def counted(model: Any, work: Any) -> tuple[Any, int]:
    """What the work gives, and how many tokens the model read for it."""
    read = [0]
    hook = model.get_input_embeddings().register_forward_hook(lambda _m, inputs, _o: read.append(inputs[0].numel()))
    found = asyncio.run(work)
    hook.remove()
    return found, sum(read)


def said(samples: Any) -> list[Any]:
    return [(sample.ids, sample.logprobs, sample.prompt_ids) for sample in samples]


async def opened(model: Any, past: bool) -> list[Any]:
    async with engine(model, past) as speaker:
        asked = [speaker.generate_ids(prompt, HOW, n=2, seed=seed) for seed, prompt in enumerate(prompts())]
        return [said(group) for group in await asyncio.gather(*asked)]


async def dialogue(speaker: TransformersEngine, number: int, turns: int = 4) -> list[Any]:
    """Each turn goes on from what was sampled; some turns are short, some long."""
    chance = random.Random(number)
    prompt, found = some(chance, 5 + 9 * number), []
    for turn in range(turns):
        [sample] = await speaker.generate_ids(prompt, HOW.but(max_tokens=3 + 7 * (number % 3)), seed=turn)
        found += said([sample])
        prompt = sample.prompt_ids + sample.ids + some(chance, 1 + 11 * (turn % 2))
    return found


async def dialogues(model: Any, past: bool, **options: Any) -> list[Any]:
    async with engine(model, past, **options) as speaker:
        return await asyncio.gather(*(dialogue(speaker, number) for number in range(9)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("work", [opened, dialogues])
def test_the_same_samples_with_less_reading(name: str, work: Any) -> None:
    model = small(name)
    (plain, whole), (known, less) = counted(model, work(model, False)), counted(model, work(model, True))
    assert plain == known
    assert less < 0.75 * whole


@pytest.mark.parametrize("tokens", [64, 640, 1600])
def test_memory_is_bounded_and_what_was_given_up_is_read_again(tokens: int) -> None:
    model = small()
    speaker = engine(model, cache_gb=tokens * 512 / 2**30)
    assert speaker.budget == tokens
    keep, most = speaker._past.keep, 0

    def kept(text: Any, place: int) -> None:
        nonlocal most
        keep(text, place)
        assert speaker._past.tokens == sum(map(len, speaker._past._sorted))
        if speaker._past:
            most = max(most, speaker._past.tokens + speaker.slots.rows * speaker.slots.length)

    speaker._past.keep = kept  # type: ignore[method-assign]

    async def work() -> list[Any]:
        async with speaker:
            return await asyncio.gather(*(dialogue(speaker, number) for number in range(9)))

    assert asyncio.run(work()) == asyncio.run(dialogues(model, False))
    assert most <= tokens


@pytest.mark.parametrize("way", ["in place", "behind torch"])
def test_new_weights_are_not_taken_for_the_old_ones(way: str) -> None:
    model = small()

    def change() -> None:
        with torch.no_grad():
            for weights in model.parameters():
                target = weights if way == "in place" else weights.data
                target += 0.05 * torch.randn_like(weights)

    async def ask(speaker: TransformersEngine) -> list[Any]:
        return [said(one) for one in await asyncio.gather(*(speaker.generate_ids(p, HOW) for p in prompts()[:5]))]

    async def main() -> list[Any]:
        async with engine(model) as speaker:
            before = await ask(speaker)
            change()
            return [before, await ask(speaker)]

    async def plainly() -> list[Any]:
        async with engine(model, past=False) as speaker:
            return await ask(speaker)

    before, after = asyncio.run(main())
    assert before != after
    assert after == asyncio.run(plainly())


def test_each_voice_has_a_past_of_its_own() -> None:
    """A base and its adapter speak in turns in one dialogue each, with one copy of the weights."""
    model = get_peft_model(small(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)).eval()

    async def main(past: bool) -> list[Any]:
        lock = threading.Lock()
        async with (
            engine(model, past, lock=lock) as adapted,
            engine(model, past, lock=lock, voice=model.disable_adapter) as base,
        ):
            return await asyncio.gather(*(dialogue(speaker, 3) for speaker in (adapted, base)))

    (plain, whole), (known, less) = counted(model, main(False)), counted(model, main(True))
    assert plain == known and plain[0] != plain[1]
    assert less < whole


def test_who_no_longer_waits_leaves_nothing_wrong_behind() -> None:
    model = small()

    async def main() -> list[Any]:
        async with engine(model) as speaker:
            long = asyncio.create_task(speaker.generate_ids(prompts()[0], HOW.but(max_tokens=300)))
            while speaker.generated < 20:
                await asyncio.sleep(0.001)
            long.cancel()
            return [said(await speaker.generate_ids(prompt, HOW, seed=1)) for prompt in prompts()[:3]]

    async def plainly() -> list[Any]:
        async with engine(model, past=False) as speaker:
            return [said(await speaker.generate_ids(prompt, HOW, seed=1)) for prompt in prompts()[:3]]

    assert asyncio.run(main()) == asyncio.run(plainly())


def test_memory_is_given_back_when_no_lesson_is_held() -> None:
    model = small()
    speaker = engine(model)
    with asyncio.Runner() as runner:
        runner.run(speaker.generate_ids(prompts()[0], HOW))
        for _ in range(200):
            if not speaker._past:
                break
            threading.Event().wait(0.05)
        assert not speaker._past
        runner.run(speaker.close())


class Shelf:
    """Slots that hold nothing."""

    device = torch.device("cpu")

    def take(self, place: int, length: int) -> int:
        return place


Texts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12)


@given(Texts, st.integers(0, 40))
def test_the_longest_beginning_is_found(texts: list[tuple[int, ...]], room: int) -> None:
    past = Past(torch.nn.Linear(1, 1), Shelf())  # type: ignore[arg-type]
    past.fit(room)
    for place, text in enumerate(texts):
        known, kept = past.find(text)
        assert known == max((alike_until(text, old) for old in past._kept), default=0)
        if known:
            assert alike_until(text, texts[kept]) >= known  # type: ignore[call-overload]
        past.keep(text, place)
        assert past._sorted == sorted(past._kept) and past.tokens == sum(map(len, past._kept)) <= room
    past.fit(0)
    assert not past and past.find(texts[0]) == (0, None)


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 200)), max_size=30), st.integers(0, 50))
def test_prompts_are_read_together_within_bounds(sizes: list[tuple[int, int]], spare: int) -> None:
    spans = [Span((0,) * size, start, place) for place, (size, start) in enumerate(sizes)]
    found = list(batches(spans, 256, spare))
    assert sorted(span.place for batch in found for span in batch) == list(range(len(spans)))
    for batch in found:
        lengths = [len(span.ids) for span in batch]
        assert lengths[0] == max(lengths)
        assert len(batch) == 1 or len(batch) * max(lengths) <= 256
        assert len(lengths) * max(lengths) - sum(lengths) <= spare


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_where_two_texts_part(one: list[int], other: list[int]) -> None:
    common = alike_until(one, other)
    assert one[:common] == other[:common]
    assert common == min(len(one), len(other)) or one[common] != other[common]


def test_a_token_has_the_same_bits_read_or_written(smollm: Any) -> None:
    """Log-probs of a later turn do not depend on whether its beginning was kept; and they are the model's own."""
    model, tokenizer, _ = smollm

    async def talk(past: bool) -> list[Sample]:
        async with TransformersEngine(model, tokenizer, name="smollm") as speaker:
            if not past:
                speaker._past.fit = lambda room: None  # type: ignore[method-assign]
            found: list[Sample] = []
            for turn, text in enumerate(("What is 17 + 25? " * 9, "No. Try again.", "Wrong. Add the tens first.")):
                last = found[-1] if found else None
                found += await speaker.proceed(
                    [{"role": "user", "content": text}], last, Sampling(12, temperature=1.0), seed=turn
                )
            return found

    known, plain = asyncio.run(talk(True)), asyncio.run(talk(False))
    assert said(known) == said(plain)
    last = known[-1]
    with torch.no_grad():
        logits = model(torch.tensor([last.prompt_ids + last.ids]), use_cache=False).logits[0]
    exact = logits[len(last.prompt_ids) - 1 : -1].log_softmax(-1).gather(1, torch.tensor(last.ids)[:, None])[:, 0]
    assert last.logprobs == pytest.approx(exact.tolist(), abs=1e-4)
