"""RL2F: a student is trained on what it makes of hints; with one turn, on its answers alone (RLVR)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tutelage.dialogues import tutor
from tutelage.engines import Engine
from tutelage.lessons import Episode, prompts
from tutelage.lessons.adaptive import attempt
from tutelage.lessons.dialogue import Teacher
from tutelage.lessons.feedback import critiqued, feedback, trainable
from tutelage.lessons.prompts_feedback import hint_in
from tutelage.lessons.sequence import sequence
from tutelage.metrics import Estimate, turns
from tutelage.problem import Problem
from tutelage.rewards.adaptive import accuracy
from tutelage.rewards.feedback import advantages, returns
from tutelage.training.cast import Cast
from tutelage.training.config import Train
from tutelage.training.courses.base import Course, Trained, too_long


class Feedback(Course):
    def __init__(self, config: Train, cast: Cast):
        super().__init__(config, cast)
        self.plan = replace(self.plan, max_turns=config.max_turns)
        # Who judges itself does so with the weights of the moment.
        self.teacher: Teacher = tutor(config.hints, config, cast.partner, cast.policy, (), self.plan)

    @property
    def headline(self) -> str:
        return f"acc@{self.plan.max_turns}"

    async def hold(self, problem: Problem, voice: Engine, copy: int) -> Episode:
        return await feedback(problem, voice, self.teacher, self.plan, copy)

    async def examine(self, problem: Problem) -> Episode:
        return await self.hold(problem, self.cast.policy, 0)

    async def rate(self, problem: Problem) -> float:
        return accuracy(await attempt(problem, None, self.cast.policy, self.plan, self.plan.baseline_samples))

    def parts(self, episode: Episode) -> Mapping[str, float]:
        """What the first attempt led to."""
        return {"return": returns(episode, self.config.gamma, self.config.partial_credit)[0]}

    def outcome(self, episode: Episode) -> Sequence[float] | None:
        """By turn, an attempt may be worth something that the first one gets nothing of (gamma=0)."""
        if not trainable(episode):
            return None
        gained = returns(episode, self.config.gamma, self.config.partial_credit)
        return gained[:1] if self.config.credit == "trajectory" else gained

    def trained(self, episode: Episode) -> Trained:
        ids = sequence(episode, self.config.mask_truncated)
        mask = ids.mask if trainable(episode) else (0,) * len(ids.mask)
        return Trained(ids.prompt_ids, ids.completion_ids, ids.logprobs, mask, ids.turn, self.critique(episode))

    def critique(self, episode: Episode) -> tuple[Sequence[int], Sequence[int]] | None:
        """The hint that helped, after what the student itself would be asked: it learns to find it without the answer.

        As the teacher sampled it where the student could have said the same tokens, else spelled by the student."""
        found = critiqued(episode) if self.config.self_critique else None
        if found is None:
            return None
        student, (messages, hint) = self.cast.policy, found
        prompt, text, spelled = student.render(messages), hint_in(hint.text), student.spell(hint_in(hint.text))
        same = hint.ids[-1:] == spelled[-1:] and student.decode(hint.ids) == text
        reply = hint.ids if same else spelled
        return (prompt, reply) if len(prompt) + len(reply) <= student.context else None

    def credit(self, group: Sequence[Episode]) -> list[list[float]]:
        config = self.config
        return advantages(group, config.gamma, config.credit, config.partial_credit)

    def measure(self, episodes: Sequence[Episode], resamples: int) -> dict[str, Estimate]:
        most = self.plan.max_turns
        return turns.measure(turns.totals(episodes, most), most, resamples)

    def rank(self, found: Mapping[str, Estimate]) -> tuple[float, ...]:
        """Solved by the last turn, then how soon."""
        return found[f"acc@{self.plan.max_turns}"].value or 0.0, found["reward"].value or 0.0

    def unfit(self, problem: Problem) -> str:
        student = self.cast.policy
        asked = len(student.render(prompts.solve(problem.public)))
        limit = min(self.config.max_prompt_length, student.context - self.plan.solving.max_tokens)
        return too_long(self.config, student) if asked > limit else ""
