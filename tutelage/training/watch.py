"""Watching a training: lessons shown, held-out evaluations with intervals, the best teacher kept, a picture drawn."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from rich.console import Console
from transformers import ProgressCallback, TrainerCallback

from tutelage import report
from tutelage.files import write
from tutelage.metrics import Estimate, interval, to_dict
from tutelage.problem import Problem
from tutelage.training.config import Train
from tutelage.training.rollout import Rollout, rewind

RESAMPLES = 2000  # bootstrap resamples behind an evaluation's intervals


class Brief(ProgressCallback):
    """The bar with its ETA, and of each line of metrics the few that tell how it goes; TensorBoard has all."""

    KEYS = (
        "loss mean_token_accuracy reward lessons/apg lessons/ndr lessons/abstention_rate lessons/malformed_rate kl "
        "lessons/solution_logprob lessons/restated lessons/acc@1 lessons/gain lessons/zero_variance "
        "eval_reward eval_apg eval_ndr eval_taught_accuracy eval_solution_logprob eval_acc@1 eval_gain eval_csr"
    ).split()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        shown = [f"{name.rpartition('/')[2]} {logs[name]:.3g}" for name in self.KEYS if name in logs]
        if state.is_world_process_zero and self.training_bar is not None and shown:
            self.training_bar.write(f"step {state.global_step}: {', '.join(shown)}", file=sys.stderr)


def brief(trainer: Any) -> None:
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(Brief)


class Watch(TrainerCallback):
    """Looks on from inside the trainer; every process takes its share of the held-out lessons."""

    def __init__(self, config: Train, folder: Path, rollout: Rollout, held_out: list[Problem], trainer: Any):
        self.config, self.folder, self.rollout, self.held_out = config, folder, rollout, held_out
        self.log = folder / "evaluations.jsonl"
        self.trainer = trainer
        self.best: dict[str, Any] = {}  # the first process's

    def rewind(self, step: int) -> None:
        """Forget what was found after the step that training goes on from."""
        rewind(self.log, lambda line: line["step"] <= step)
        file = self.folder / "best.json"
        if file.exists():
            self.best = json.loads(file.read_text())
            if self.best["step"] > step:
                self.best = {}
                file.unlink()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.global_step:
            self.evaluate()  # where it begins

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero and state.global_step % self.config.sample_steps == 0:
            report.transcript(Console(stderr=True), self.rollout.episodes[0])
        if self.config.eval_steps and state.global_step % self.config.eval_steps == 0:
            self.evaluate()

    def evaluate(self) -> None:
        """Held-out lessons with intervals; the best weights so far are kept."""
        step = self.trainer.state.global_step
        main = self.trainer.is_world_process_zero()
        known = [main and step in {line["step"] for line in self.evaluations()}]
        broadcast_object_list(known)  # the first process has written the log, others may not see it yet
        if not self.held_out or known[0]:
            return
        self.trainer.sync()
        course = self.rollout.course
        episodes = self.rollout.spread(self.held_out, course.examine)
        found = course.measure(episodes, RESAMPLES)
        found["reward"] = interval([sum(course.parts(episode).values()) for episode in episodes])
        self.keep(step, course.rank(found))
        if main:  # last: what is in the log will not be done again
            self.show(step, found)

    def show(self, step: int, found: dict[str, Estimate]) -> None:
        logs = {f"eval_{name}": e.value for name, e in found.items() if e.value is not None}
        logs |= {f"eval_reward_{side}": getattr(found["reward"], side) for side in ("low", "high")}
        self.trainer.note(logs)
        with self.log.open("a") as file:
            file.write(json.dumps({"step": step, **to_dict(found)}) + "\n")
        self.draw()

    def keep(self, step: int, rank: tuple[float, ...]) -> None:
        better = [not self.best or rank > tuple(self.best["rank"])]
        broadcast_object_list(better)
        if not better[0]:
            return
        self.best = {"step": step, "rank": rank}
        part, best = self.folder / "best.part", self.folder / "best"
        self.trainer.save_model(str(part))
        if self.trainer.is_world_process_zero():  # whole or not at all
            shutil.rmtree(best, ignore_errors=True)
            part.rename(best)
            write(self.folder / "best.json", json.dumps(self.best) + "\n")

    def evaluations(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def draw(self) -> None:
        rewards = [(log["step"], log["reward"]) for log in self.trainer.state.log_history if "reward" in log]
        headline = self.rollout.course.headline
        label = report.titled(headline)[0]
        report.learning(self.folder / "learning.png", self.evaluations(), rewards, headline, label)

    def sum_up(self) -> None:
        """What the training changed, and where the picture of it is."""
        lines = self.evaluations()
        if not lines:
            return
        self.draw()
        ends = [(line.pop("step"), line) for line in (lines[:1] + lines[1:][-1:])]
        columns = {f"after {step} step{'s' * (step != 1)}": line for step, line in ends}
        Console().print(report.compared(columns, len(self.held_out)))
        report.say(f"picture: {self.folder / 'learning.png'}")
