"""RL2F, provably right: credit reaches the tokens it belongs to and no others, with one turn it is RLVR."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import judged
import pytest
import torch

from tutelage import launch
from tutelage.composing import compose
from tutelage.engines.local import TransformersEngine
from tutelage.lessons import Episode
from tutelage.lessons.feedback import critiqued, solved, trainable
from tutelage.lessons.prompts_feedback import hint_in
from tutelage.lessons.sequence import sequence
from tutelage.problem import Problem, Verdict
from tutelage.training import critique, rl
from tutelage.training.batch import sizes
from tutelage.training.config import Train
from tutelage.training.rollout import Rollout

ORIGINAL = rl.Trainer
LESSON = sys.modules["tutelage.lessons.feedback"]  # the package has a function of that name
WORDS = """run=quickstart_rl2f num_generations=4 train_batch_size=8 per_device_train_batch_size=4 max_turns=3
max_tokens=5 max_completion_length=6 limit=12 eval_limit=0 eval_steps=null resample=0 report_to=null sample_steps=1000
save_steps=1000 mask_truncated=false learning_rate=0.02 lr_scheduler_type=constant device=cpu""".split()


async def leaky(hint: str, *_: Any) -> bool:
    return crc32(hint.encode()) % 4 == 0


@pytest.fixture(autouse=True)
def toyland(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(LESSON, "judge", judged.judge)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))


class Spy:
    """Keeps the trainer, what its loss saw and made of it, and the advantages that TRL itself would have used."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.inputs: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.gaps: list[float] = []
        self.plain: list[torch.Tensor] = []
        spy = self

        class Trainer(ORIGINAL):
            def __init__(self, *args: Any, **kwargs: Any):
                super().__init__(*args, **kwargs)
                spy.trainer = self

            def _generate_and_score_completions(self, inputs: Any) -> Any:
                scored = super()._generate_and_score_completions(inputs)
                scored["plain"] = spy.plain[-1]
                return scored

            def _compute_loss(self, model: Any, inputs: Any) -> Any:
                ids, mask = (torch.cat([inputs[f"prompt_{n}"], inputs[f"completion_{n}"]], 1) for n in ("ids", "mask"))
                with torch.no_grad():
                    logps, *_ = self._get_per_token_logps_and_entropies(
                        model, ids, mask, inputs["completion_ids"].size(1)
                    )
                gap = (logps - inputs["sampling_per_token_logps"]) * own(inputs)
                spy.gaps.append(float(gap.abs().max()))
                loss = super()._compute_loss(model, inputs)
                spy.inputs.append(inputs)
                spy.losses.append(float(loss.detach()))
                return loss

        score = rl.GRPOTrainer._generate_and_score_completions

        def keep(self: Any, inputs: Any) -> Any:
            scored = score(self, inputs)
            spy.plain.append(scored["advantages"])
            return scored

        patch.setattr(rl.GRPOTrainer, "_generate_and_score_completions", keep)
        patch.setattr(rl, "Trainer", Trainer)

    @property
    def logs(self) -> list[dict[str, Any]]:
        return [line for line in self.trainer.state.log_history if "loss" in line]


def own(inputs: dict[str, Any]) -> torch.Tensor:
    return inputs["completion_mask"] * inputs["tool_mask"]


def configured(tiny: Path, *words: str) -> Train:
    return compose(Train, [*WORDS, f"student_model={tiny}", f"model_name_or_path={tiny}", *words])


def train(config: Train, folder: Path) -> list[Episode]:
    folder.mkdir(parents=True, exist_ok=True)
    rl.reinforce(config, folder, sizes(config, 1))
    return [Episode.from_json(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def rows(spy: Spy) -> Iterator[tuple[tuple[int, ...], torch.Tensor, torch.Tensor]]:
    """Of all that the loss saw: the ids of a dialogue, what is its student's, and the advantages."""
    for inputs in spy.inputs:
        whole = zip(
            *(inputs[n] for n in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")),
            own(inputs), inputs["advantages"], strict=True,
        )  # fmt: skip
        for prompt, shown, ids, there, mask, advantages in whole:
            yield tuple(prompt[shown.bool()].tolist() + ids[there.bool()].tolist()), mask[there.bool()], advantages


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Spy, list[Episode]]:
    """Two steps with a teacher that leaks now and then."""
    folder = tmp_path_factory.mktemp("rl2f")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUTELAGE_CACHE", str(folder / "cache"))
        patch.setattr(LESSON, "judge", judged.judge)
        patch.setattr(LESSON, "gives_away", leaky)
        spy = Spy(patch)
        return spy, train(configured(tiny, "max_steps=2", "train_batch_size=16"), folder / "run")


def test_the_trainer_agrees_with_the_sampler_and_the_ratio_is_one(run: tuple[Spy, list[Episode]]) -> None:
    """On the student's tokens, turn after turn, also after an update; a ratio of one leaves the mean advantage."""
    spy, _ = run
    assert max(spy.gaps) < 1e-4
    for inputs, loss in zip(spy.inputs, spy.losses, strict=True):
        expected = -float((inputs["advantages"] * own(inputs)).sum()) / float(inputs["num_items_in_batch"])
        assert loss == pytest.approx(expected, abs=1e-6)
        assert abs(loss) <= float(inputs["advantages"].abs().max())
    assert all(log["clip_ratio/region_mean"] == 0 for log in spy.logs)


def test_advantages_reach_the_tokens_of_their_turn(run: tuple[Spy, list[Episode]]) -> None:
    """Against returns, means and spans worked out once more, from the log alone."""
    spy, episodes = run
    groups = defaultdict(list)
    for episode in episodes:
        groups[episode.meta["step"], episode.uid].append(episode)
    expected: dict[tuple[int, ...], list[float]] = {}
    for group in groups.values():
        gained = {}
        for place, episode in enumerate(group):
            said = [turn for turn in episode.turns if turn.act == "attempt"]
            last = len(said) - 1
            gained[place] = [0.7 ** (last - turn) if said[last].correct else 0.0 for turn in range(len(said))]
        for place, episode in enumerate(group):
            said = [turn.sample for turn in episode.turns if turn.act == "attempt"]
            tokens = [0.0] * (len(said[-1].prompt_ids) + len(said[-1].ids))
            for turn, sample in enumerate(said if trainable(episode) else []):
                alive = [values[turn] for p, values in gained.items() if trainable(group[p]) and len(values) > turn]
                start = len(sample.prompt_ids)
                worth = gained[place][turn] - sum(alive) / len(alive)
                tokens[start : start + len(sample.ids)] = [worth] * len(sample.ids)
            expected[said[-1].prompt_ids + said[-1].ids] = tokens[len(said[0].prompt_ids) :]
    found = list(rows(spy))
    assert len(found) == len(episodes) == 32
    for ids, mask, advantages in found:
        assert (advantages[: len(mask)] * mask).tolist() == pytest.approx(expected[ids], abs=1e-6)
    assert len({round(value, 3) for values in expected.values() for value in values}) > 6  # it was not all the same


def test_flagged_dialogues_and_teachers_get_no_gradient(run: tuple[Spy, list[Episode]]) -> None:
    spy, episodes = run
    flagged = {sequence(e).prompt_ids + sequence(e).completion_ids for e in episodes if not trainable(e)}
    assert 0 < len(flagged) < len(episodes)
    for ids, mask, _ in rows(spy):
        assert bool(mask.any()) == (ids not in flagged)

    trainer = spy.trainer
    seen = 0
    for inputs in spy.inputs:
        mask = own(inputs).bool()

        def gradient(advantages: torch.Tensor, inputs: Any = inputs) -> tuple[torch.Tensor, torch.Tensor]:
            """By log-prob of each token, and by weight."""
            kept: list[torch.Tensor] = []
            weigh = ORIGINAL._get_per_token_logps_and_entropies

            def watched(*args: Any, **kwargs: Any) -> Any:
                logps, *rest = weigh(trainer, *args, **kwargs)
                logps.retain_grad()
                kept.append(logps)
                return logps, *rest

            trainer.model.zero_grad()
            trainer._get_per_token_logps_and_entropies = watched
            try:
                ORIGINAL._compute_loss(trainer, trainer.model, {**inputs, "advantages": advantages}).backward()
            finally:
                del trainer._get_per_token_logps_and_entropies
            weights = [p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]
            return kept[0].grad, torch.cat(weights)  # type: ignore[return-value]

        by_token, by_weight = gradient(inputs["advantages"])
        assert not by_token[~mask].any()
        assert torch.equal(by_token[mask] != 0, inputs["advantages"][mask] != 0)
        there = inputs["completion_mask"].bool() & ~mask  # teacher, glue and flagged dialogues
        seen += int(there.sum())
        wild = torch.where(mask, inputs["advantages"], 1000.0)
        assert torch.equal(gradient(wild)[1], by_weight)
    assert seen > 100


def test_one_turn_is_plain_grpo(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own advantages of the same rewards, for whole completions and without a mask, give the same loss."""
    spy = Spy(monkeypatch)
    episodes = train(configured(tiny, "max_steps=1", "max_turns=1", "temperature=0.8"), tmp_path / "run")
    assert all(len(episode.turns) == 1 for episode in episodes) and any(map(solved, episodes))
    assert max(spy.gaps) < 1e-4
    for inputs, loss in zip(spy.inputs, spy.losses, strict=True):
        assert torch.equal(own(inputs), inputs["completion_mask"]) and inputs["plain"].abs().max() > 0
        bare = {name: value for name, value in inputs.items() if name != "tool_mask"} | {"advantages": inputs["plain"]}
        again = ORIGINAL._compute_loss(spy.trainer, spy.trainer.model, bare)
        assert loss == pytest.approx(float(again.detach()), abs=1e-7)


def test_a_loss_has_a_floor(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale samples, far too large steps: a clipped ratio cannot earn more than its clip times the best advantage."""
    spy = Spy(monkeypatch)
    words = ("max_steps=4", "num_iterations=2", "learning_rate=0.3", "beta=0", "epsilon_high=0.28")
    train(configured(tiny, *words), tmp_path / "run")
    best = max(float(inputs["advantages"].max()) for inputs in spy.inputs)
    assert best > 0 and min(spy.losses) >= -1.28 * best - 1e-6
    assert max(log["clip_ratio/region_mean"] for log in spy.logs) > 0  # it really clipped


def test_equal_dialogues_are_held_again_and_teach_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def strict(problem: Problem, text: str) -> Verdict:
        return Verdict("incorrect")

    held: list[Any] = []
    hold = Rollout.hold
    monkeypatch.setattr(Rollout, "hold", lambda self, *args: held.append(args[2]) or hold(self, *args))
    monkeypatch.setattr(LESSON, "judge", strict)
    spy = Spy(monkeypatch)
    train(configured(tiny, "max_steps=1", "resample=2", "max_turns=2"), tmp_path / "run")
    assert held == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    assert spy.logs[0]["grad_norm"] == 0 and spy.logs[0]["lessons/zero_variance"] == 1
    assert all(
        float(p.detach().abs().max()) == 0 for name, p in spy.trainer.model.named_parameters() if "lora_B" in name
    )


def test_taken_up_again_with_the_same_losses(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with self-critique, whose share of the loss is there."""
    words = ("save_steps=1", "self_critique=0.1", "hints=program")
    whole = Spy(monkeypatch)
    train(configured(tiny, *words, "max_steps=3"), tmp_path / "whole")
    torn = Spy(monkeypatch)
    train(configured(tiny, *words, "max_steps=1"), tmp_path / "torn")
    train(configured(tiny, *words, "max_steps=3"), tmp_path / "torn")
    assert torn.losses == pytest.approx(whole.losses, abs=1e-6)
    assert any(critique.ITEMS in inputs for inputs in whole.inputs)


def test_second_attempts_are_learned(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First ones are never right here, so all that is learned is what to say after a hint: soon that is right."""
    made = ContextVar("made", default=0)  # each dialogue is a task of its own

    async def brief(problem: Problem, text: str) -> Verdict:
        made.set(made.get() + 1)
        right = made.get() == 2 and sum(len(word) < 4 for word in text.split()) >= 4
        return Verdict("correct" if right else "incorrect")

    monkeypatch.setattr(LESSON, "judge", brief)
    words = "max_steps=12 train_batch_size=32 per_device_train_batch_size=16 num_generations=8 max_turns=2 hints=null"
    episodes = train(configured(tiny, *words.split(), "learning_rate=0.03"), tmp_path / "run")
    early, late = ([e for e in episodes if e.meta["step"] in steps] for steps in (range(2), range(10, 12)))
    assert len(early) == len(late) == 64
    assert sum(map(solved, early)) < 16 and sum(map(solved, late)) > 48


def test_critiques_are_learned_in_the_same_step(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However TRL shuffled and split the batch: the added loss is the mean over all tokens of all hints that helped."""
    spy = Spy(monkeypatch)
    words = ("max_steps=1", "self_critique=0.5", "train_batch_size=16", "hints=program")
    episodes = train(configured(tiny, *words), tmp_path / "run")
    assert {int(inputs[critique.ITEMS]) for inputs in spy.inputs} == {int(spy.inputs[0][critique.ITEMS])}
    wanted = {sequence(e).prompt_ids + sequence(e).completion_ids: critiqued(e) for e in episodes}
    trainer = spy.trainer
    engine = TransformersEngine(trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class, name="tiny")
    tokens, total, added = 0, 0.0, 0.0
    for inputs in spy.inputs:
        for row, (ids, *_) in enumerate(rows(SimpleNamespace(inputs=[inputs]))):  # type: ignore[arg-type]
            prompt, hint = (
                inputs[f"critique_{part}_ids"][row][inputs[f"critique_{part}_mask"][row].bool()].tolist()
                for part in ("prompt", "hint")
            )
            if wanted[ids] is None:
                assert not hint
                continue
            messages, sample = wanted[ids]  # type: ignore[misc]
            assert tuple(prompt) == engine.render(messages)
            assert tuple(hint) == engine.spell(hint_in(sample.text))
            with torch.no_grad():  # one by one, without padding
                logits = trainer.model(input_ids=torch.tensor([prompt + hint])).logits[0].log_softmax(-1)
            places = range(len(prompt) - 1, len(prompt) + len(hint) - 1)
            total -= sum(float(logits[place, token]) for place, token in zip(places, hint, strict=True))
            tokens += len(hint)
        with torch.no_grad():
            added += float(critique.loss(trainer, trainer.model, inputs))
    assert tokens == int(spy.inputs[0][critique.ITEMS]) > 0
    assert added == pytest.approx(total / tokens, rel=1e-4)
    assert spy.logs[0]["critique/share"] == sum(one is not None for one in wanted.values()) / len(episodes)
    policy = -sum(float((i["advantages"] * own(i)).sum()) / float(i["num_items_in_batch"]) for i in spy.inputs)
    assert sum(spy.losses) > policy + 0.1  # and it is in the loss


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tiny: Path, tmp_path: Path) -> None:
    """Each holds the dialogues of one problem and has its own critiques, of which one process may have none."""
    script = judged.__file__
    found = []
    for name in ("1", "cpu:2"):
        folder = tmp_path / name.replace(":", "")
        chosen = [
            f"student_model={tiny}",
            f"model_name_or_path={tiny}",
            f"output_dir={folder}",
            f"results_dir={tmp_path}",
        ]
        words = [*WORDS[1:], "self_critique=0.1", "hints=program", "max_steps=3", "save_steps=3", *chosen]
        argv = launch.command([name, "quickstart_rl2f", *words], gpus=0)
        place = argv.index("tutelage.cli") - 1
        argv = [*argv[:place], script, *argv[place + 3 :]]
        env = os.environ | {"OMP_NUM_THREADS": "1", "TUTELAGE_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        history = json.loads((folder / "checkpoint-3/trainer_state.json").read_text())["log_history"]
        names = ("loss", "grad_norm", "critique/share", "lessons/zero_variance")
        found.append([[log[name] for name in names] for log in history if "loss" in log])
    one, two = found
    assert len(list((tmp_path / "cpu2").glob("episodes*.jsonl"))) == 2
    assert two == [pytest.approx(step, rel=1e-3, abs=1e-5) for step in one] and any(step[2] for step in one)
