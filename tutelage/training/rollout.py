"""Where lessons meet TRL: the one file that knows GRPOTrainer's rollout function and its reward functions."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import gather_object

from tutelage.engines.chorus import Chorus
from tutelage.lessons import Episode
from tutelage.problem import Problem
from tutelage.training.courses import Course, Trained

T = TypeVar("T")


class Rollout:
    """Holds the lessons of a step. The sampled ids themselves, with the prompt they were sampled from, are trained on.

    TRL hands over prompts that are already repeated G times and without dataset columns; the uid inside the
    message says which problem is meant. Every process holds its own share of the lessons.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        course: Course,
        resample: int,
        log: Path,
        runner: asyncio.Runner,
        lock: AbstractContextManager[Any],
    ):
        self.problems: Mapping[str, Problem] = {problem.uid: problem for problem in problems}
        self.course, self.resample, self.log, self.lock = course, resample, log, lock
        self.episodes: list[Episode] = []  # the last step's
        self.trained: list[Trained] = []
        self.advantages: list[list[float]] | None = None  # of their tokens, where a course gives credit by turn
        self._runner = runner
        self._calls: dict[int, int] = {}

    def rows(self) -> list[dict[str, Any]]:
        """The dataset as TRL wants it."""
        return [
            {"prompt": [{"role": "user", "content": problem.question, "uid": uid}]}
            for uid, problem in self.problems.items()
        ]

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        step, size = trainer.state.global_step, trainer.num_generations
        call = self._calls[step] = self._calls.get(step, -1) + 1
        first = trainer.accelerator.process_index * len(prompts)
        asked = {first + index: self.problems[prompt[0]["uid"]] for index, prompt in enumerate(prompts)}
        episodes = self.hold(asked, size, (step, call, 0))
        dead = self.dead(episodes, size)
        rate = len(dead) * size / (len(prompts) * trainer.accelerator.num_processes)
        for attempt in range(1, self.resample + 1):
            if not dead:
                break
            # Equal rewards teach nothing: hold the lessons on other problems instead, the same ones on every process.
            chance = random.Random(f"{self.course.plan.seed}/{step}/{call}/{attempt}")
            chosen = chance.sample(sorted(self.problems), min(len(dead), len(self.problems)))
            fresh = dict(zip(dead, chosen, strict=False))  # few problems may not be enough for all
            again = {place: self.problems[fresh[place // size]] for place in asked if place // size in fresh}
            episodes |= self.hold(again, size, (step, call, attempt))
            dead = [group for group in self.dead(episodes, size) if group in dead]
        self.episodes = list(episodes.values())
        self._write(self.episodes)
        trained = self.trained = [self.course.trained(episode) for episode in self.episodes]
        masks = [list(one.mask or [1] * len(one.completion)) for one in trained]
        self.advantages = self.credit(episodes, trained, size)
        return {
            "prompt_ids": [list(one.prompt) for one in trained],
            "completion_ids": [list(one.completion) for one in trained],
            "logprobs": [list(one.logprobs) for one in trained],
            "env_mask": masks,
            "worth": [episode.meta["worth"] for episode in self.episodes],
            "zero_variance": [rate] * len(trained),
        }

    def hold(self, asked: Mapping[int, Problem], size: int, when: tuple[int, int, int]) -> dict[int, Episode]:
        """A lesson at each place of the batch, concurrently; random numbers are fixed by step and place, and by the
        process only where it holds a part of a group."""

        copies = Counter(place // size for place in asked)
        chorus = {group: Chorus(self.course.cast.policy, count) for group, count in copies.items()}

        async def one(place: int, problem: Problem) -> Episode:
            step, call, attempt = when
            copy = ((step * 8 + call) * 8 + attempt) * 4096 + place % size + 1
            episode = await self.course.hold(problem, chorus[place // size], copy)
            return self.course.valued(episode, step=step, copy=copy)

        async def everyone() -> list[Episode]:
            return await asyncio.gather(*(one(place, problem) for place, problem in asked.items()))

        return dict(zip(asked, self.run(everyone()), strict=True))

    def dead(self, episodes: Mapping[int, Episode], size: int) -> list[int]:
        """The groups, over all processes, in which all that may be trained on was worth the same at every turn."""
        groups: dict[int, list[Sequence[float]]] = {}
        for place, outcome in gather_object([(place, self.course.outcome(e)) for place, e in episodes.items()]):
            groups.setdefault(place // size, []).append(outcome or ())
        return sorted(
            group
            for group, outcomes in groups.items()
            if all(len(set(turn) - {None}) < 2 for turn in zip_longest(*outcomes))
        )

    def credit(
        self, episodes: Mapping[int, Episode], trained: Sequence[Trained], size: int
    ) -> list[list[float]] | None:
        """The advantage of each token; a group's lessons may be on several processes."""
        if trained[0].turns is None:
            return None
        groups: dict[int, dict[int, Episode]] = {}
        for place, episode in gather_object([(place, light(episode)) for place, episode in episodes.items()]):
            groups.setdefault(place // size, {})[place] = episode
        turns = {
            place: values
            for group in groups.values()
            for place, values in zip(group, self.course.credit(list(group.values())) or (), strict=True)
        }
        return [[turns[place][turn] for turn in one.turns or ()] for place, one in zip(episodes, trained, strict=True)]

    def run(self, work: Any) -> Any:
        """Wait for lessons, and then until the engines have put the model back as the trainer left it."""
        try:
            return self._runner.run(work)
        finally:
            with self.lock:
                pass

    def spread(self, problems: list[Problem], work: Callable[[Problem], Awaitable[T]]) -> list[T]:
        """Work on every problem, each process on its share; all processes get all results, in order."""

        async def mine(share: list[Problem]) -> list[T]:
            return await asyncio.gather(*map(work, share))

        with PartialState().split_between_processes(problems) as share:
            found: list[T] = gather_object(self.run(mine(share)))
        return found

    def _write(self, episodes: Sequence[Episode]) -> None:
        with self.log.open("ab") as file:
            file.writelines(f"{episode.to_json()}\n".encode() for episode in episodes)

    def value(
        self, prompts: list[Any], completions: list[Any], worth: list[float | None], **fields: Any
    ) -> list[float | None]:
        """The reward function: what each lesson was worth. Everything the lessons show goes to the log."""
        report = fields["log_metric"]
        for name, estimate in self.course.measure(self.episodes, resamples=0).items():
            if estimate.value is not None:
                report(f"lessons/{name}", estimate.value)
        for part in self.episodes[0].meta["reward"]:
            report(f"reward/{part}", sum(e.meta["reward"][part] for e in self.episodes) / len(self.episodes))
        report("lessons/zero_variance", fields["zero_variance"][0])
        return worth


def rewind(path: Path, keep: Callable[[Any], bool]) -> None:
    """Keep the whole lines of a log that are still true; the last may be torn, and there may be gigabytes of them."""
    if path.exists():
        part = path.with_suffix(".part")
        with path.open("rb") as lines, part.open("wb") as kept:
            kept.writelines(line for line in lines if line.endswith(b"\n") and keep(json.loads(line)))
        part.replace(path)


def light(episode: Episode) -> Episode:
    """Without its tokens, which other processes have no use for."""
    bare = [replace(turn, sample=replace(turn.sample, ids=(), logprobs=(), prompt_ids=())) for turn in episode.turns]
    return replace(episode, turns=tuple(bare))
