"""Reinforcement, provably right: sampler and trainer agree, gradients are in their place, nothing is lost."""

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from toy import even

from tutelage import rewards
from tutelage.composing import compose
from tutelage.engines.fleet import Fleet
from tutelage.engines.slots import ATTENTION
from tutelage.errors import DataError, EngineError, TutelageError
from tutelage.lessons import Episode
from tutelage.metrics import Estimate
from tutelage.training import cast, rl, watch
from tutelage.training.batch import sizes
from tutelage.training.config import Train
from tutelage.training.courses.adaptive import Adaptive

ORIGINAL = rl.Trainer
WORDS = """num_generations=4 train_batch_size=8 max_completion_length=12 max_tokens=6 max_probe_tokens=6 limit=12
baseline_samples=1 taught_samples=1 eval_limit=0 resample=0 report_to=null temperature=1.0 reward=toy
sample_steps=1000 save_steps=1000 format_penalty=0""".split()


@pytest.fixture(autouse=True)
def toyland(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(rewards.adaptive.REWARDS, "toy", even)
    monkeypatch.setitem(rewards.adaptive.REWARDS, "same", lambda *_: {"same": 1.0})
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))


def configured(tiny: Path, *words: str) -> Train:
    return compose(Train, [*WORDS, f"student_model={tiny}", f"model_name_or_path={tiny}", *words])


class Spy:
    """Keeps the trainer that rcl makes, and what its loss saw."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.inputs: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.gaps: list[float] = []
        spy = self

        class Trainer(ORIGINAL):
            def __init__(self, *args: Any, **kwargs: Any):
                super().__init__(*args, **kwargs)
                spy.trainer = self

            def _compute_loss(self, model: Any, inputs: Any) -> Any:
                ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
                mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
                with torch.no_grad():
                    logps, *_ = self._get_per_token_logps_and_entropies(
                        model, ids, mask, inputs["completion_ids"].size(1)
                    )
                spy.gaps.append(
                    float(((logps - inputs["sampling_per_token_logps"]) * inputs["completion_mask"]).abs().max())
                )
                loss = super()._compute_loss(model, inputs)
                spy.inputs.append(inputs)
                spy.losses.append(float(loss.detach()))
                return loss

        monkeypatch.setattr(rl, "Trainer", Trainer)


def train(config: Train, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rl.reinforce(config, folder, sizes(config, 1))


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_bytes().splitlines()]


def test_the_trainer_sees_the_probabilities_the_sampler_saw(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after updates: the next rollout uses the new weights, or this gap would open."""
    spy = Spy(monkeypatch)
    train(configured(tiny, "max_steps=3", "learning_rate=0.05", "beta=0"), tmp_path / "run")
    assert max(spy.gaps) < 1e-4
    policy = spy.trainer.accelerator.unwrap_model(spy.trainer.model)
    last = spy.inputs[-1]
    ids = torch.cat([last["prompt_ids"], last["completion_ids"]], dim=1)
    mask = torch.cat([last["prompt_mask"], last["completion_mask"]], dim=1)
    with torch.no_grad(), policy.disable_adapter():
        logps, *_ = spy.trainer._get_per_token_logps_and_entropies(policy, ids, mask, last["completion_ids"].size(1))
    assert float(((logps - last["sampling_per_token_logps"]) * last["completion_mask"]).abs().max()) > 1e-2


def test_equal_rewards_give_no_gradient_and_are_counted(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    train(configured(tiny, "max_steps=1", "reward=same", "beta=0", "learning_rate=1"), tmp_path / "run")
    policy = spy.trainer.model
    assert all(float(p.abs().max()) == 0 for name, p in policy.named_parameters() if "lora_B" in name)
    logs = spy.trainer.state.log_history
    assert logs[0]["grad_norm"] == 0 and logs[0]["lessons/zero_variance"] == 1


def test_masked_tokens_get_no_gradient(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    train(configured(tiny, "max_steps=1", "beta=0"), tmp_path / "run")
    trainer, inputs = spy.trainer, dict(spy.inputs[0])
    mask = torch.ones_like(inputs["completion_ids"])
    mask[:, ::2] = 0

    def gradient(tool_mask: torch.Tensor, elsewhere: float) -> torch.Tensor:
        """Of a loss in which every other token has this advantage."""
        trainer.model.zero_grad()
        advantages = torch.where(mask.bool(), 1.0, elsewhere)
        trainer._compute_loss(trainer.model, {**inputs, "tool_mask": tool_mask, "advantages": advantages}).backward()
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])

    trainer.model.train()
    assert torch.equal(gradient(mask, 0.0), gradient(mask, 1000.0))
    assert not torch.allclose(gradient(torch.ones_like(mask), 0.0), gradient(torch.ones_like(mask), 1000.0))


def test_a_loss_has_a_floor(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clipped ratio cannot earn more than its clip times the best advantage."""
    spy = Spy(monkeypatch)
    train(configured(tiny, "max_steps=3", "learning_rate=0.5", "num_iterations=2", "beta=0"), tmp_path / "run")
    best = max(float(inputs["advantages"].max()) for inputs in spy.inputs)
    assert min(spy.losses) >= -1.2 * best - 1e-6
    assert max(log["clip_ratio/region_mean"] for log in spy.trainer.state.log_history[:-1]) > 0  # it really clipped


def test_a_toy_task_is_learned(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Early and late rewards differ by far more than chance allows."""
    words = ("max_steps=40", "train_batch_size=32", "num_generations=8", "learning_rate=0.03", "beta=0")
    train(configured(tiny, *words), tmp_path / "run")
    by_step: dict[int, list[float]] = {}
    for line in logged(tmp_path / "run"):
        by_step.setdefault(line["meta"]["step"], []).append(line["meta"]["worth"])
    early = [value for step in range(8) for value in by_step[step]]
    late = [value for step in range(32, 40) for value in by_step[step]]

    def mean_and_error(values: list[float]) -> tuple[float, float]:
        mean = sum(values) / len(values)
        return mean, sum((v - mean) ** 2 for v in values) / len(values) ** 2

    (before, one), (after, other) = mean_and_error(early), mean_and_error(late)
    assert (after - before) / math.sqrt(one + other) > 5


def test_the_model_is_the_trainers_again_when_lessons_end(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long an engine takes to switch the adapter on again."""
    seen: list[bool] = []
    disable, hold = PeftModel.disable_adapter, rl.Rollout.hold

    @contextlib.contextmanager
    def slow(self: Any) -> Any:
        with disable(self):
            yield
            time.sleep(0.3)

    def watched(self: Any, *args: Any) -> Any:
        episodes = hold(self, *args)
        policy = self.course.cast.policy.model
        seen.append(all(p.requires_grad for name, p in policy.named_parameters() if "lora_" in name))
        seen.append(policy.config._attn_implementation != ATTENTION)
        return episodes

    monkeypatch.setattr(PeftModel, "disable_adapter", slow)
    monkeypatch.setattr(rl.Rollout, "hold", watched)
    train(configured(tiny, "max_steps=1", "beta=0"), tmp_path / "run")
    assert seen and all(seen)


def test_dead_groups_are_replaced_by_other_problems(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[str] = []

    def picky(episode: Episode, terms: Any) -> dict[str, float]:
        if len(alive) < 6 and episode.uid not in alive:
            alive.append(episode.uid)
        return even(episode, terms) if episode.uid in alive[1:] else {"even": 0.0}

    monkeypatch.setitem(rewards.adaptive.REWARDS, "toy", picky)
    spy = Spy(monkeypatch)
    train(configured(tiny, "max_steps=1", "resample=3", "beta=0"), tmp_path / "run")
    assert spy.trainer.state.log_history[0]["lessons/zero_variance"] >= 0.5  # before replacement
    assert spy.trainer.state.log_history[0]["frac_reward_zero_std"] == 0  # after


def test_a_loss_that_is_no_number_stops_the_run(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ORIGINAL):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return super()._compute_loss(model, inputs) * float("nan")

    monkeypatch.setattr(rl, "Trainer", Broken)
    with pytest.raises(TutelageError, match="the loss became nan at step 1: lower learning_rate"):
        train(configured(tiny, "max_steps=2"), tmp_path / "run")


def test_a_gradient_that_is_no_number_stops_the_run(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finite loss may have one; it must not reach the weights."""

    class Broken(ORIGINAL):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            if self.state.global_step == 1:
                next(p for p in self.model.parameters() if p.grad is not None).grad.fill_(float("nan"))
            return loss

    monkeypatch.setattr(rl, "Trainer", Broken)
    with pytest.raises(TutelageError, match=r"the gradient became nan at step 2: .*checkpoint-1 is kept"):
        train(configured(tiny, "max_steps=3", "save_steps=1", "save_total_limit=1"), tmp_path / "run")


def test_a_moved_reference_is_taken_up_again(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "lora_r=0 sync_ref_model=true ref_model_sync_steps=1 beta=0.1 save_steps=2 learning_rate=0.01".split()
    whole = Spy(monkeypatch)
    train(configured(tiny, *words, "max_steps=4"), tmp_path / "whole")
    torn = Spy(monkeypatch)
    train(configured(tiny, *words, "max_steps=2"), tmp_path / "torn")
    train(configured(tiny, *words, "max_steps=4"), tmp_path / "torn")
    assert torn.losses == pytest.approx(whole.losses, abs=1e-6)


def test_too_few_problems_for_a_step_are_refused(tiny: Path, tmp_path: Path) -> None:
    """TRL would train nothing, save a model and be content."""
    with pytest.raises(DataError, match="a step takes 2 problems and there are 1: type train_batch_size=4"):
        train(configured(tiny, "limit=1"), tmp_path / "run")


def test_connections_are_closed_where_no_server_is_up(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last words a user reads are aiohttp's."""
    fleets: list[Fleet] = []
    monkeypatch.setattr(cast, "Fleet", lambda urls: fleets.append(Fleet(urls, backoff=0)) or fleets[-1])
    with pytest.raises(EngineError, match="cannot be reached"):
        train(configured(tiny, "engine=vllm", "vllm_host=127.0.0.1", "vllm_port=9"), tmp_path / "run")
    sessions = [fleet._client._session for fleet in fleets]
    assert sessions and all(session and session.closed for session in sessions)


def test_evaluation_keeps_the_first_of_equal_teachers(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(configured(tiny, "max_steps=2", "eval_steps=1", "eval_limit=2"), folder)
    lines = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert {"value", "low", "high"} == set(lines[0]["apg"])
    assert (folder / "best/adapter_config.json").exists()
    assert json.loads((folder / "best.json").read_text())["step"] == 0
    assert (folder / "adapter_config.json").exists()
    assert not (folder / "runs").exists()  # report_to=null


def test_too_long_prompts_are_dropped_and_named(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="raise max_prompt_length=100"):
        train(configured(tiny, "max_prompt_length=100"), tmp_path / "run")
    assert "12 of 12 problems dropped" in capsys.readouterr().err


@pytest.mark.parametrize(("apg", "ndr", "kept"), [(0.3, 0.9, False), (0.1, 1.0, True), (0.05, 1.0, False)])
def test_safe_teachers_come_first(apg: float, ndr: float, kept: bool, tmp_path: Path) -> None:
    class Saved:
        saved = False

        def save_model(self, folder: str) -> None:
            Path(folder).mkdir()
            self.saved = True

        def is_world_process_zero(self) -> bool:
            return True

    def rank(apg: float, ndr: float) -> tuple[float, ...]:
        return course.rank({"apg": Estimate(apg, None, None), "ndr": Estimate(ndr, None, None)})

    trainer = Saved()
    course = Adaptive(compose(Train, []), None)  # type: ignore[arg-type]
    watcher = watch.Watch(course.config, tmp_path, None, [], trainer)  # type: ignore[arg-type]
    watcher.best = {"step": 1, "rank": list(rank(0.06, 0.99))}  # as read from its file
    watcher.keep(2, rank(apg, ndr))
    assert trainer.saved is (tmp_path / "best").exists() is (tmp_path / "best.json").exists() is kept
