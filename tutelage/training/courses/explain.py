"""RLT: a teacher that sees the solution is trained by how likely its explanation makes it for a student."""

import math
from collections.abc import Mapping, Sequence

from tutelage.engines import Engine
from tutelage.lessons import Episode, Style, explain, prompts
from tutelage.lessons.examined import examined
from tutelage.lessons.explain import assemble, comparable, unfit
from tutelage.metrics import Estimate, measure
from tutelage.problem import Problem
from tutelage.rewards.explain import explained
from tutelage.traces import likelihood, outline
from tutelage.training.cast import Cast
from tutelage.training.config import Train
from tutelage.training.courses.base import Course, Trained, too_long


class Explain(Course):
    headline = "solution_logprob"

    def __init__(self, config: Train, cast: Cast):
        super().__init__(config, cast)
        self.terms = likelihood(config)
        self.outline = outline(config, Style.from_config(config.style), self.plan.teaching)
        self.terms.needs(comparable(cast.policy, cast.partner))

    async def hold(self, problem: Problem, voice: Engine, copy: int) -> Episode:
        return await explain(problem, voice, self.cast.partner, self.outline, copy)

    async def examine(self, problem: Problem) -> Episode:
        """Also: is the solution likelier than without, and does the student answer better, where it can be checked?"""
        cast = self.cast
        return await examined(problem, cast.policy, cast.partner, cast.frozen, self.outline, self.plan)

    def parts(self, episode: Episode) -> Mapping[str, float]:
        return explained(episode, self.terms)

    def trained(self, episode: Episode) -> Trained:
        said = episode.turns[0].sample
        return Trained(said.prompt_ids, said.ids, said.logprobs)

    def measure(self, episodes: Sequence[Episode], resamples: int) -> dict[str, Estimate]:
        return measure(episodes, resamples)

    def rank(self, found: Mapping[str, Estimate]) -> tuple[float, ...]:
        value = found["reward"].value
        return (-math.inf if value is None else value,)

    def unfit(self, problem: Problem) -> str:
        config, teacher, student = self.config, self.cast.policy, self.cast.partner
        if why := unfit(problem, self.outline.style):
            return why
        if len(teacher.render(self.outline.style.ask(problem))) > min(config.max_prompt_length, teacher.context - 1):
            return too_long(config, teacher)
        shortest = assemble(problem, self.outline.style, student, ())
        longest = len(shortest.prompt + shortest.completion)
        if config.min_baseline > 0 or config.max_baseline < 1:  # the curriculum has the student answer by itself
            longest = max(longest, len(student.render(prompts.solve(problem.public))))
        return too_long(config, student) if longest >= student.context else ""
