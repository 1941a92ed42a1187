"""RCL / ATLAS: a teacher is trained by what its student gains from adaptive lessons."""

from collections.abc import Mapping, Sequence

from tutelage.engines import Engine
from tutelage.lessons import Episode, adaptive, prompts
from tutelage.lessons.adaptive import attempt
from tutelage.metrics import Estimate, measure
from tutelage.problem import Problem
from tutelage.rewards import Terms, worth
from tutelage.rewards.adaptive import accuracy
from tutelage.training.courses.base import Course, Trained, too_long


class Adaptive(Course):
    async def hold(self, problem: Problem, voice: Engine, copy: int) -> Episode:
        return await adaptive(problem, voice, self.cast.partner, self.cast.frozen, self.plan, copy)

    async def examine(self, problem: Problem) -> Episode:
        return await self.hold(problem, self.cast.policy, 0)

    async def rate(self, problem: Problem) -> float:
        return accuracy(await attempt(problem, None, self.cast.frozen, self.plan, self.plan.baseline_samples))

    def parts(self, episode: Episode) -> Mapping[str, float]:
        config = self.config
        terms = Terms(
            config.degradation_penalty_multiplier, config.efficiency_weight, config.leak_penalty, config.format_penalty
        )
        return worth(config.reward, episode, terms)

    def trained(self, episode: Episode) -> Trained:
        said = episode.turns[1].sample
        return Trained(said.prompt_ids, said.ids, said.logprobs)

    def measure(self, episodes: Sequence[Episode], resamples: int) -> dict[str, Estimate]:
        return measure(episodes, resamples)

    def rank(self, found: Mapping[str, Estimate]) -> tuple[float, ...]:
        """Safe teachers first, then by gain."""
        return min(found["ndr"].value or 0.0, self.config.min_ndr), found["apg"].value or 0.0

    def unfit(self, problem: Problem) -> str:
        """The teacher's prompt holds the longest probe, the student's the longest teaching."""
        config, teacher, student = self.config, self.cast.policy, self.cast.partner
        asked = len(teacher.render(prompts.teach(problem.public, ""))) + config.max_probe_tokens
        taught = len(student.render(prompts.solve(problem.public, ""))) + config.max_completion_length
        if asked > min(config.max_prompt_length, teacher.context - 1):
            return too_long(config, teacher)
        return too_long(config, student) if taught > student.context - 1 else ""
