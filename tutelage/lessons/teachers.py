"""Who gives hints: a model that knows the answer, the verifier, the student itself, and the controls."""

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tutelage.engines.base import Engine, Sample
from tutelage.errors import PromptTooLong, Refused
from tutelage.lessons import prompts_feedback as prompts
from tutelage.lessons.adaptive import Plan, seed
from tutelage.lessons.dialogue import Dialogue, Hint, Teacher
from tutelage.lessons.guard import Guard
from tutelage.lessons.leak import gives_away
from tutelage.problem import Problem, Verdict
from tutelage.verify import feedback as remarks
from tutelage.verify import judge

NEIGHBOURS = 8  # problems asked for a wrong attempt before a shuffled teacher has nothing to say


@dataclass
class Tutor:
    """A model that sees problem, solution and answer; a guard stands between it and the student."""

    engine: Engine
    plan: Plan
    guard: Guard
    name: str = "llm"
    knows: bool = True

    async def hint(self, problem: Problem, talk: Dialogue, verdict: Verdict, turn: int, copy: int) -> Hint:
        messages = prompts.hint(problem, talk.attempts[-1].text, talk.hints)

        async def propose(attempt: int) -> Sample:
            place = seed(self.plan, problem, "hint", copy, turn, attempt)
            [sample] = await self.engine.generate(messages, self.plan.teaching, seed=place)
            return sample

        return await self.guard.pass_on(propose, problem, talk, turn, copy)


@dataclass
class Program:
    """What the verifier can say of an attempt without a model; the same words each time, so no second try."""

    name: str = "program"
    knows: bool = True

    async def hint(self, problem: Problem, talk: Dialogue, verdict: Verdict, turn: int, copy: int) -> Hint:
        text = remarks.remark(problem, verdict)
        if await gives_away(text, problem, talk.written):
            return Hint(prompts.GENERIC, flagged=True, rejected=Counter(match=1))
        return Hint(text)


@dataclass
class Null:
    """Control: only that the answer was wrong. What is gained with it is gained by trying again."""

    name: str = "null"
    knows: bool = False

    async def hint(self, problem: Problem, talk: Dialogue, verdict: Verdict, turn: int, copy: int) -> Hint:
        return Hint("")


@dataclass
class Self:
    """The student as its own critic: its model, and nothing that it could not know."""

    engine: Engine
    plan: Plan
    name: str = "self"
    knows: bool = False

    async def hint(self, problem: Problem, talk: Dialogue, verdict: Verdict, turn: int, copy: int) -> Hint:
        messages = prompts.critique(talk.public, talk.attempts[-1].text, talk.hints)
        place = seed(self.plan, problem, "hint", copy, turn)
        [sample] = await self.engine.generate(messages, self.plan.teaching, seed=place)
        return Hint(prompts.hint_in(sample.text), sample)


class Shuffled:
    """Control: a good hint for another problem. What is gained with it is gained by any words of that kind.

    The problems stand in one shuffled ring. A problem gets the hint that the teacher gives on the next one round the
    ring whose first attempt, by the same student and copy, is wrong. Where nobody near is wrong there is no hint.
    """

    def __init__(self, teacher: Teacher, student: Engine, problems: Sequence[Problem], plan: Plan) -> None:
        self.name, self.knows = "shuffled", teacher.knows
        self.teacher, self.student, self.plan = teacher, student, plan
        ring = sorted(problems, key=lambda problem: problem.uid)
        random.Random(plan.seed).shuffle(ring)
        self.after = {a.uid: b for a, b in zip(ring, ring[1:] + ring[:1], strict=True)}

    async def hint(self, problem: Problem, talk: Dialogue, verdict: Verdict, turn: int, copy: int) -> Hint:
        other = self.after[problem.uid]
        for _ in range(NEIGHBOURS):
            if other.uid == problem.uid:
                break
            theirs = Dialogue(other.public)
            with contextlib.suppress(PromptTooLong, Refused):
                theirs.said(await attempt(other, theirs, self.student, self.plan, 1, copy))
                found = await judge(other, theirs.attempts[-1].text)
                if found.outcome == "incorrect":
                    return await self.teacher.hint(other, theirs, found, turn, copy)
            other = self.after[other.uid]
        return Hint("")


async def attempt(problem: Problem, talk: Dialogue, student: Engine, plan: Plan, turn: int, copy: int) -> Sample:
    """The student's turn. Its random numbers do not depend on who teaches: first attempts are shared by all."""
    place = seed(plan, problem, "attempt", copy, turn)
    [said] = await student.proceed(talk.messages, talk.last, plan.solving, seed=place)
    return said
