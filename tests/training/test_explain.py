"""RLT: the reward of a training is what the frozen student really says, and the teacher learns from it."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pieces
import pytest
import torch
from pieces import Pieces

from tutelage import models
from tutelage.composing import compose
from tutelage.errors import ConfigError, DataError
from tutelage.lessons import Episode, prompts
from tutelage.lessons.explain import assemble, heard
from tutelage.problem import Problem
from tutelage.training import rl
from tutelage.training.batch import sizes
from tutelage.training.config import Train
from tutelage.training.courses.explain import Explain

WORDS = """run=quickstart_rlt num_generations=4 train_batch_size=8 max_completion_length=12 max_tokens=6 limit=12
baseline_samples=1 taught_samples=1 eval_limit=0 report_to=null temperature=1.0 sample_steps=1000 save_steps=1000
learning_rate=0.05""".split()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))


def train(tiny: Path, folder: Path, *words: str) -> list[Episode]:
    config = compose(Train, [*WORDS, f"student_model={tiny}", f"model_name_or_path={tiny}", *words])
    folder.mkdir(parents=True, exist_ok=True)
    rl.reinforce(config, folder, sizes(config, 1))
    return [Episode.from_json(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


class Reader:
    """Just enough of an engine to assemble a text."""

    def __init__(self, tokenizer: Any):
        from tutelage.engines.tokens import TokenEngine

        self.tokenizer, self.name, self.context = tokenizer, "tiny", 2048
        self.render = TokenEngine.render.__get__(self)
        self.decode = TokenEngine.decode.__get__(self)


def test_the_reward_is_what_the_frozen_student_says(tiny: Path, tmp_path: Path) -> None:
    """Recomputed from the base's own logits, also after updates that moved the teacher far away."""
    from tutelage.data import load
    from tutelage.lessons import STYLES

    episodes = train(tiny, tmp_path / "run", "max_steps=3")
    model, tokenizer, _ = models.load(str(tiny))
    problems = {
        p.uid: p for p in load("generated", tasks=compose(Train, WORDS).tasks, size=compose(Train, WORDS).size).problems
    }
    reader: Any = Reader(tokenizer)
    seen = 0
    for episode in [one for one in episodes if one.meta["step"] == 2]:
        said = episode.turns[0].sample
        form, thought, _ = heard(said, STYLES["r1"].closing, reader.decode)
        reading = assemble(problems[episode.uid], STYLES["r1"], reader, thought)
        ids = torch.tensor([[*reading.prompt, *reading.completion]])
        with torch.no_grad():
            logps = torch.log_softmax(model(ids).logits[0, :-1].float() / 0.7, dim=-1)
        found = logps.gather(1, ids[0, 1:, None])[len(reading.prompt) - 1 :, 0].numpy()
        gap = np.array(said.logprobs[: len(thought)]) - found[reading.thought]
        by_hand = {
            "answer_mean": found[reading.solution].mean(),
            "answer_min": 0.01 * found[reading.solution].min(),
            "kl_mean": -3 * gap.mean() if len(thought) else -3,
            "kl_max": -0.03 * gap.max() if len(thought) else -0.03,
            "format": 0 if form in ("closed", "trailing") else -1,
        }
        assert episode.meta["reward"] == pytest.approx(by_hand, abs=1e-3)
        assert episode.meta["worth"] == pytest.approx(sum(by_hand.values()), abs=1e-3)
        seen += 1
    assert seen == 8


def test_the_teacher_learns_to_explain(tiny: Path, tmp_path: Path) -> None:
    """A random teacher whose words mean nothing to a random student can still find words that do."""
    words = ("max_steps=25", "kl_penalty_reward_coeff=[0, 0]", "not_matched_penalty=0", "limit=2", "learning_rate=0.03")
    episodes = train(tiny, tmp_path / "run", *words)
    worth = [np.mean([e.meta["worth"] for e in episodes if e.meta["step"] == step]) for step in range(25)]
    noise = np.std([e.meta["worth"] for e in episodes if e.meta["step"] < 5]) / np.sqrt(40)
    assert np.mean(worth[-5:]) - np.mean(worth[:5]) > 3 * noise


def test_held_out_lessons_show_what_the_student_gains(tiny: Path, tmp_path: Path) -> None:
    train(tiny, tmp_path / "run", "max_steps=1", "eval_limit=2", "eval_steps=1")
    lines = [json.loads(line) for line in (tmp_path / "run/evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    for line in lines:
        gained = line["solution_logprob"]["value"] - line["solution_logprob_alone"]["value"]
        assert line["solution_gain"]["value"] == pytest.approx(gained)
        assert {"apg", "taught_accuracy", "reward", "restated"} <= line.keys()
    assert (tmp_path / "run/learning.png").stat().st_size > 0
    assert (tmp_path / "run/best/adapter_config.json").is_file()


def test_rows_without_a_solution_are_dropped_and_named(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"State {n} + 1", "solution": "" if n < 3 else f"{n} + 1 = {n + 1}"} for n in range(6)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = (f"dataset_id_or_path={file}", "held_out=0", "train_batch_size=4", "max_steps=1")
    episodes = train(tiny, tmp_path / "run", *data)
    assert "3 of 6 problems dropped" in capsys.readouterr().err
    assert {episode.question for episode in episodes} <= {row["question"] for row in rows[3:]}
    file.write_text("".join(json.dumps({**row, "solution": ""}) + "\n" for row in rows))
    with pytest.raises(DataError, match="it has no solution"):
        train(tiny, tmp_path / "none", *data)


def test_only_a_curriculum_needs_room_for_the_students_own_answers() -> None:
    question = Problem("What is 17 * 6?", "17 * 6 = 102", "102")
    words = Pieces("\n\n")
    context = len(pieces.Reader(tokenizer=words).render(prompts.solve(question.public)))
    teacher, student = pieces.Reader("Add.", tokenizer=words), pieces.Reader(tokenizer=words, context=context)
    cast: Any = SimpleNamespace(policy=teacher, partner=student, frozen=student)
    for rated, why in (
        ((), ""),
        (("min_baseline=0.1",), "the prompt is too long"),
        (("max_baseline=0.9",), "the prompt"),
    ):
        course = Explain(compose(Train, ["run=quickstart_rlt", *rated]), cast)
        assert course.unfit(question).startswith(why) and bool(course.unfit(question)) == bool(why)
    assert not asyncio.run(Explain(compose(Train, ["run=quickstart_rlt"]), cast).examine(question)).alone


def test_other_words_are_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="type as many"):
        train(tiny, tmp_path / "run", "kl_penalty_reward_coeff=[1]")
    with pytest.raises(ConfigError, match="trains by its own lesson"):
        compose(Train, ["run=quickstart_rlt", "lesson=solo"])
