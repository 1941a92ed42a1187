"""What a step of reinforcement costs: tokens against the published schedule, and time outside engines and learner.

python benchmarks/rollout.py [tokens|time]     writes rollout.json
"""

import asyncio
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from tutelage.engines import Engine, Sample, Sampling
from tutelage.engines.memo import Memo
from tutelage.problem import Problem
from tutelage.training.cast import Cast
from tutelage.training.config import Train
from tutelage.training.courses.adaptive import Adaptive
from tutelage.training.rollout import Rollout

HERE = Path(__file__).parent
GROUP, TEXT, PROBE = 32, 100, 50
# Baseline, probe, teaching and taught answer, generated anew for each of the copies.
PUBLISHED = GROUP * (TEXT + PROBE + TEXT + TEXT)


class Counting(Engine):
    """Says as many tokens as it may, and counts them."""

    name, revision = "counting", "1"

    def __init__(self, abstains: float = 0.0):
        self.spent = self.replies = 0
        self.abstains = abstains

    async def generate(self, messages: Sequence[Any], sampling: Sampling, n: int = 1, seed: int = 0) -> list[Sample]:
        self.spent += n * sampling.max_tokens
        return [self._sample(sampling.max_tokens) for _ in range(n)]

    def _sample(self, tokens: int) -> Sample:
        self.replies += 1
        silent = self.replies * self.abstains % 1 + self.abstains >= 1  # evenly, so many of them
        teaching = "" if silent else "Add the ones first."
        return Sample(f"<thinking>Hm.</thinking>\n<teaching>{teaching}</teaching>", "stop", tokens)

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        return [0.0] * len(completion)


def tokens() -> dict[str, Any]:
    """Of one group of 32 lessons, through the rollout that training uses."""
    config = Train(
        max_probe_tokens=PROBE, max_completion_length=TEXT, max_tokens=TEXT, baseline_samples=4, taught_samples=1
    )
    problem = Problem("What is 17 + 26?", "17 + 26 = 43", "43")
    found: dict[str, Any] = {"published": PUBLISHED}
    for name, abstains in (("none abstain", 0.0), ("a quarter abstains", 0.25), ("half abstain", 0.5)):
        with tempfile.TemporaryDirectory() as folder:
            teacher, student = Counting(abstains), Counting()
            cast: Any = Cast(teacher, student, Memo(student, Path(folder) / "samples.sqlite"))  # type: ignore[arg-type]
            log = Path(folder) / "episodes.jsonl"
            rollout = Rollout([problem], Adaptive(config, cast), 0, log, asyncio.Runner(), threading.Lock())
            spent = []
            for step in (0, 1):  # the second time probe and baseline are known
                before = teacher.spent + student.spent
                rollout.hold(dict.fromkeys(range(GROUP), problem), GROUP, (step, 0, 0))
                spent.append(teacher.spent + student.spent - before)
        found[name] = {
            "cold": spent[0], "warm": spent[1],
            "cold ratio": round(spent[0] / PUBLISHED, 3), "warm ratio": round(spent[1] / PUBLISHED, 3),
        }  # fmt: skip
    return found


def timed(steps: int = 3) -> dict[str, Any]:
    """Of real steps on the embedded model: how long rollouts take beyond the engines that speak in them."""
    from tutelage.engines.local import TransformersEngine
    from tutelage.training import rl
    from tutelage.training.run import train

    spent = {"step": 0.0, "rollout": 0.0, "engines": 0.0, "reward": 0.0}

    def clocked(name: str, work: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - began

        return wrapper

    turn = TransformersEngine._turn

    class Turn:
        """The time in which an engine has the model: those that share one take turns, so times add up."""

        def __init__(self, engine: Any):
            self.inner = turn(engine)

        def __enter__(self) -> None:
            self.inner.__enter__()
            self.began = time.perf_counter()

        def __exit__(self, *error: Any) -> Any:
            spent["engines"] += time.perf_counter() - self.began
            return self.inner.__exit__(*error)

    TransformersEngine._turn = lambda self: Turn(self)  # type: ignore[assignment,method-assign]
    rl.Trainer.training_step = clocked("step", rl.Trainer.training_step)  # type: ignore[method-assign]
    Rollout.__call__ = clocked("rollout", Rollout.__call__)  # type: ignore[method-assign]
    Rollout.value = clocked("reward", Rollout.value)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        words = f"run=quickstart max_steps={steps} eval_limit=0 sample_steps=1000 save_steps=1000 report_to=null"
        train([*words.split(), f"results_dir={folder}", "save_final_model=false"])
    outside = spent["rollout"] - spent["engines"] + spent["reward"]
    return {name: round(value, 2) for name, value in spent.items()} | {
        "steps": steps, "outside": round(outside, 3), "outside share": round(outside / spent["step"], 4),
    }  # fmt: skip


def main(parts: Sequence[str]) -> None:
    path = HERE / "rollout.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    if "tokens" in parts:
        found["tokens of a group of 32"] = tokens()
    if "time" in parts:
        found["seconds"] = timed()
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main(sys.argv[1:] or ["tokens", "time"])
