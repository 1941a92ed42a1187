"""Dialogues to imitate: a student's own turns, on the ids it sampled or spelled anew, and only where they are good."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from talker import Talker
from tokenizers import Tokenizer
from transformers import AddedToken, PreTrainedTokenizerFast

from tutelage import models
from tutelage.composing import compose
from tutelage.errors import DataError
from tutelage.files import cache_home
from tutelage.lessons import Episode, Plan, feedback, independent, prompts, prompts_feedback
from tutelage.lessons.feedback import attempts, conversation
from tutelage.lessons.guard import Guard
from tutelage.lessons.sequence import sequence
from tutelage.lessons.teachers import Null, Tutor
from tutelage.problem import Problem
from tutelage.training.config import Train
from tutelage.training.discussed import example, native, read, retold
from tutelage.training.recipe import resolve
from tutelage.training.run import place, train
from tutelage.training.sft import dialogues, tokenised

TOKENS = models.tokenizer("smollm2-135m")
PLAN = Plan(max_turns=4)
PROBLEM = Problem("What is 17 * 6?", "zebra7731: 17 * 6 = 102", "102", kind="number")
RIGHT, WRONG = "So it is <solution>102</solution>", "Perhaps <solution>98</solution>"


def student(*said: str, context: int = 2048) -> Talker:
    """Says these, one after the other."""
    left = list(said)
    return Talker(TOKENS, lambda _: left.pop(0), context)


def held(*said: str, plan: Plan = PLAN, problem: Problem = PROBLEM) -> Episode:
    hints = Talker(TOKENS, lambda _: "Count the tens.")
    return asyncio.run(feedback(problem, student(*said), Tutor(hints, plan, Guard(plan)), plan))


def written(folder: Path, *episodes: Episode) -> Path:
    file = folder / "rollouts.jsonl"
    file.write_text("".join(f"{episode.to_json()}\n" for episode in episodes))
    return file


def learnt(ids: list[int], labels: list[int]) -> list[str]:
    """The texts of the labelled regions."""
    assert len(ids) == len(labels) and all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    regions, before = [], -100
    for label in labels:
        if label != -100:
            regions.append([*(regions.pop() if before != -100 else []), label])
        before = label
    return [TOKENS.decode(region) for region in regions]


def test_each_of_the_students_turns_is_learned_with_its_end() -> None:
    engine, end = student(), TOKENS.eos_token
    episode = held(WRONG, "I do not know.", RIGHT)
    ids, labels = example(episode, engine)
    assert learnt(ids, labels) == [WRONG + end, f"I do not know.{end}", RIGHT + end]
    assert tuple(ids) == attempts(episode)[-1].sample.prompt_ids + attempts(episode)[-1].sample.ids
    text = TOKENS.decode(ids)
    assert prompts_feedback.again("Count the tens.", "number") in text and "zebra" not in text


def test_ids_are_the_sampled_ones_or_spelled_anew() -> None:
    """No tokenizer would cut the word in two as here it was sampled."""
    engine, episode = student(), held(WRONG, RIGHT)
    assert native(episode, engine)
    assert sequence(retold(episode, engine))._replace(logprobs=()) == sequence(episode)._replace(logprobs=())
    odd = (*TOKENS.encode("Per"), *TOKENS.encode("haps <solution>98</solution>"), TOKENS.eos_token_id)
    first, hint, second = episode.turns
    said = replace(first.sample, ids=odd)
    assert odd != first.sample.ids and engine.decode(odd) == WRONG
    prompt = engine.follow(said, conversation(episode)[-2]["content"])
    sampled = replace(first, sample=said), hint, replace(second, sample=replace(second.sample, prompt_ids=prompt))
    _, labels = example(replace(episode, turns=sampled), engine)
    assert tuple(token for token in labels if token != -100)[: len(odd)] == odd
    # An endpoint's words, or another model's tokens: the same text, spelled by this one.
    for foreign in ({"ids": (), "prompt_ids": ()}, {"prompt_ids": (1, 2)}, {"ids": (5, 6, 7)}):
        turns = [replace(turn, sample=replace(turn.sample, **foreign)) for turn in episode.turns]  # type: ignore[arg-type]
        assert not native(replace(episode, turns=tuple(turns)), engine)
        assert example(replace(episode, turns=tuple(turns)), engine) == example(episode, engine)


def test_a_turn_ends_as_its_template_ends_it() -> None:
    """Gemma's way: another token than the one that ends a text."""
    words = Tokenizer.from_str(TOKENS.backend_tokenizer.to_str())
    other = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|endoftext|>")
    other.chat_template = TOKENS.chat_template.replace("<|im_end|>", "<end_of_turn>")
    other.add_tokens([AddedToken("<end_of_turn>", special=True)])
    engine = Talker(other, lambda _: "")
    ids, labels = example(held(WRONG, RIGHT), engine)
    end = other.convert_tokens_to_ids("<end_of_turn>")
    assert [token for token in labels if token in (end, other.eos_token_id)] == [end, end]
    assert other.decode(ids).count("<end_of_turn>") == len(prompts.solve(PROBLEM.public)) + 3  # none twice
    bare = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>")
    bare.chat_template = "{{ messages[-1]['content'] }}"  # no second turn, and no end
    assert Talker(bare, lambda _: "").spell("Hm.")[-1] == bare.eos_token_id


def test_cut_off_attempts_are_read_but_not_learned() -> None:
    short = replace(PLAN, solving=PLAN.solving.but(max_tokens=len(TOKENS.encode(RIGHT)) + 1))
    episode = held(f"{WRONG} or more or less or so", RIGHT, plan=short)
    assert attempts(episode)[0].sample.finish == "length"
    engine = student()
    for one in (episode, retold(episode, engine)):
        assert learnt(*example(one, engine)) == [RIGHT + TOKENS.eos_token]
        first, second = learnt(*example(one, engine, mask_truncated=False))
        assert first == attempts(episode)[0].sample.text and second == RIGHT + TOKENS.eos_token


def test_only_good_dialogues_are_kept_and_the_rest_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = held(WRONG, RIGHT), held(*[WRONG] * 4)
    cut = held(RIGHT)
    cut = replace(cut, turns=(replace(cut.turns[0], sample=replace(cut.turns[0].sample, finish="length")),))
    apart = asyncio.run(independent(PROBLEM, student(WRONG, RIGHT), PLAN))
    alone = asyncio.run(feedback(PROBLEM, student(RIGHT), Null(), PLAN))
    leaked = replace(good, leaked=True)
    flagged = replace(good, meta=good.meta | {"flagged": 1})
    file = written(tmp_path, good, bad, cut, apart, alone, leaked, flagged)
    with file.open("a") as lines:
        lines.write('{"question": "q", "answer": "a"}\n\n' + good.to_json()[:50] + "\n")
    kept, dropped = read(str(file))
    assert kept == [good, alone]
    assert dropped == Counter({
        "it was not solved": 1, "every attempt was cut off by its token limit": 1, "it gives the answer away": 1,
        "hints had to be held back in it": 1,
        "its attempts are independent of each other": 1, "no dialogue in that line": 2,
    })  # fmt: skip
    assert len(read(str(file), mask_truncated=False)[0]) == 3
    config = compose(Train, ["run=student_sft_dialogues", f"dataset_id_or_path={file}", "limit=1"])
    assert dialogues(config) == [good]
    assert "1 of 9 rows dropped: it gives the answer away" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b'{"question": "q", "answer": "a"}\n', b"PAR1\x00\xff\xfe\x00PAR1", b"[1]\n7\n"])
def test_another_kind_of_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"rows.jsonl holds no dialogues .* tutelage dialogues output="):
        read(str(tmp_path / "rows.jsonl"))


def test_no_file_and_no_good_dialogue(tmp_path: Path) -> None:
    for missing in (tmp_path / "gone.jsonl", tmp_path):
        with pytest.raises(DataError, match=r"no file .*: hold dialogues first"):
            read(str(missing))
    for found, why in (([held(*[WRONG] * 4)], "it was not solved"), ([], "it is empty")):
        file = written(tmp_path, *found)
        with pytest.raises(DataError, match=f"can be learned from .*{why}"):
            dialogues(compose(Train, ["run=student_sft_dialogues", f"dataset_id_or_path={file}"]))


def test_long_dialogues_are_dropped_whole() -> None:
    engine: Any = student()
    short, long = held(RIGHT), held(WRONG, RIGHT)
    limit = len(example(short, engine)[0])
    examples, told = tokenised([short, long], engine, limit)
    assert [len(one["input_ids"]) for one in examples] == [limit]
    assert told == f"1 of 2 rows dropped: longer than max_length={limit}"


def test_a_student_is_trained_on_its_dialogues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the published recipe, where no hub is: the embedded model learns, and stands where users look for it."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/models").symlink_to(cache_home() / "models")
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    written(tmp_path, held(WRONG, RIGHT), held(RIGHT), held(*[WRONG] * 4))
    words = ["run=student_sft_dialogues", "report_to=null", "max_steps=1", "train_batch_size=2"]
    config = resolve(words)
    assert (config.model_name_or_path, config.lora_r, config.lora_alpha) == ("smollm2-135m", 64, 128)
    before = place(config)
    folder = train(words)
    assert folder == before and folder.name.startswith("sft-rollouts-")
    assert Path("results/sft").resolve() == folder.resolve() and (folder / "adapter_config.json").is_file()
    assert "1 of 3 rows dropped: it was not solved" in capsys.readouterr().err
    written(tmp_path, held(RIGHT))
    assert place(config) != before  # other dialogues, another training


def test_the_settings_of_the_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.training.recipe.reachable", lambda: True)
    config = resolve(["run=student_sft_dialogues"])
    assert (config.method, config.lesson, config.dataset_id_or_path) == ("sft", "feedback", "rollouts.jsonl")
    assert (config.student_model, config.lora_r, config.lora_alpha) == ("google/gemma-3-12b-it", 64, 128)
    assert (config.learning_rate, config.lr_scheduler_type, config.num_train_epochs) == (2e-5, "cosine", 3)
    assert config.train_batch_size == 32
