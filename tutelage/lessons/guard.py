"""A hint must not give the answer away: matched by value, read by a judge, asked for again, and at last replaced."""

from collections import Counter
from collections.abc import Awaitable, Callable

from tutelage.engines.base import Engine, Sample
from tutelage.lessons import prompts_feedback as prompts
from tutelage.lessons.adaptive import Plan, seed
from tutelage.lessons.dialogue import Dialogue, Hint
from tutelage.lessons.leak import gives_away
from tutelage.problem import Problem

REGENERATIONS = 3
ASKED = 2  # times a judge is asked when it keeps to no form


class Guard:
    """Rules on hints: by matching always, and by a judge where there is one."""

    def __init__(self, plan: Plan, judge: Engine | None = None) -> None:
        self.plan, self.judge = plan, judge

    async def pass_on(
        self, propose: Callable[[int], Awaitable[Sample]], problem: Problem, talk: Dialogue, turn: int, copy: int
    ) -> Hint:
        """The first proposal that gives nothing away; after four, a hint that fits any problem, and a flag."""
        rejected: Counter[str] = Counter()
        for attempt in range(REGENERATIONS + 1):
            sample = await propose(attempt)
            text = prompts.hint_in(sample.text)
            why = await self.objection(text, problem, talk, (turn, attempt), copy)
            if not why:
                return Hint(text, sample, rejected=rejected)
            rejected[why] += 1
        return Hint(prompts.GENERIC, flagged=True, rejected=rejected)

    async def objection(
        self, text: str, problem: Problem, talk: Dialogue, place: tuple[int, int], copy: int
    ) -> str | None:
        """Why a hint may not be given, in a word."""
        if not text:
            return "empty"
        # A value that the student wrote itself, on its way to another answer, may be spoken about; whether a hint picks
        # it out as the answer is for the judge to see.
        if await gives_away(text, problem, talk.written):
            return "match"
        if self.judge is None:
            return None
        messages = prompts.inspect(problem, text)
        for asked in range(1, ASKED + 1):
            chance = seed(self.plan, problem, "hint", copy, *place, asked)
            [reply] = await self.judge.generate(messages, self.plan.teaching, seed=chance)
            verdict = prompts.accepted(reply.text)
            if verdict is not None:
                return None if verdict else "judge"
        return "unreadable"
