"""The adaptive lesson (RCL / ATLAS): probe the student, diagnose, teach what it needs or step aside."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tutelage.engines.base import Engine, Message, Sampling
from tutelage.lessons import prompts
from tutelage.lessons.episode import Act, Episode, Turn
from tutelage.lessons.leak import gives_away
from tutelage.problem import Problem
from tutelage.verify import judge


@dataclass(frozen=True)
class Plan:
    """How a lesson is held. K alone and M taught attempts estimate what the teaching is worth."""

    probing: Sampling = Sampling(max_tokens=50)
    teaching: Sampling = Sampling(max_tokens=256)
    solving: Sampling = Sampling(max_tokens=256)
    baseline_samples: int = 4
    taught_samples: int = 4
    max_turns: int = 5  # attempts in a dialogue
    seed: int = 42


async def adaptive(
    problem: Problem, teacher: Engine, student: Engine, frozen: Engine, plan: Plan, copy: int = 0
) -> Episode:
    """One lesson. `frozen` is the student behind a memory: probe and baseline are asked once for all copies."""
    public = problem.public
    [approach], alone = await asyncio.gather(
        frozen.generate(prompts.probe(public), plan.probing, seed=seed(plan, problem, "probe")),
        attempt(problem, None, frozen, plan, plan.baseline_samples),
    )
    [said] = await teacher.generate(
        prompts.teach(public, approach.text), plan.teaching, seed=seed(plan, problem, "teach", copy)
    )
    teaching, well_formed = prompts.teaching_in(said.text)
    taught = alone
    if teaching is not None:
        taught = await attempt(problem, teaching, student, plan, plan.taught_samples, copy)
    return Episode(
        lesson="adaptive",
        uid=problem.uid,
        question=problem.question,
        answer=problem.answer,
        turns=(Turn("student", "probe", approach), Turn("teacher", "teach", said)),
        alone=alone,
        taught=taught,
        teaching=teaching,
        teaching_tokens=0 if teaching is None else teacher.count(teaching, said),
        malformed=not well_formed,
        leaked=teaching is not None and await gives_away(teaching, problem),
    )


async def attempt(
    problem: Problem, teaching: str | None, engine: Engine, plan: Plan, samples: int, copy: int = 0
) -> tuple[Turn, ...]:
    """The student solves, alone or taught."""
    act: Act = "alone" if teaching is None else "taught"
    prompt = prompts.solve(problem.public, teaching)
    return await answered(problem, prompt, act, engine, plan.solving, samples, seed(plan, problem, act, copy))


async def answered(
    problem: Problem, prompt: Sequence[Message], act: Act, engine: Engine, how: Sampling, samples: int, seed: int
) -> tuple[Turn, ...]:
    """Answers of the student to a prompt, each judged."""
    replies = await engine.generate(prompt, how, samples, seed)
    if not problem.answer:  # nothing to judge by: a question somebody just asked
        return tuple(Turn("student", act, reply) for reply in replies)
    verdicts = await asyncio.gather(*(judge(problem, reply.text) for reply in replies))
    return tuple(Turn("student", act, reply, verdict) for reply, verdict in zip(replies, verdicts, strict=True))


class Seeded(Protocol):
    """A plan of any lesson."""

    @property
    def seed(self) -> int: ...


def seed(plan: Seeded, problem: Problem, act: str, copy: int = 0, *place: int) -> int:
    """Every request has its own random numbers, fixed by what it is and not by when it runs; `place` tells apart those
    of one dialogue.

    What a frozen student does alone is the same whatever the run: asked once, it is known for all seeds.
    """
    text = f"{problem.uid}/{act}" if act in ("probe", "alone") else f"{plan.seed}/{problem.uid}/{act}/{copy}"
    text = "/".join([text, *map(str, place)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest())
