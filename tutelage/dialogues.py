"""`tutelage dialogues`: dialogues with feedback on training problems, resumable, for a student to be trained on."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tutelage import __version__, data, models
from tutelage.cast import guide, speakers
from tutelage.config import Dialogues, Feedback, Hinting
from tutelage.engines import Engine
from tutelage.errors import ConfigError, DataError, ModelError
from tutelage.evaluate import INCIDENTAL, each, plan, read, spent
from tutelage.files import write
from tutelage.lessons import Episode, Plan, feedback, prompts, prompts_feedback
from tutelage.lessons.dialogue import Teacher
from tutelage.lessons.feedback import solved, trainable
from tutelage.lessons.guard import Guard
from tutelage.lessons.teachers import Null, Program, Self, Shuffled, Tutor
from tutelage.problem import Problem
from tutelage.progress import Progress
from tutelage.runs import Run, Skipped


@dataclass(frozen=True)
class Rollouts:
    """What the command made: where, of how many dialogues, how many may be trained on, and of these were solved."""

    output: Path
    folder: Path
    held: int
    kept: int
    solved: int
    unused: str  # what became of the others, and of hints


def dialogues(config: Dialogues) -> Rollouts:
    """Hold `samples` dialogues on every problem, or take up where an earlier process stopped."""
    problems = read(config, needs_answer=True).problems
    if config.held_out:
        problems = data.split(problems, config.held_out, config.split_seed)[0]
    if not problems:
        raise DataError(f"of {config.dataset_id_or_path} no problem is left to train on: lower held_out")
    return asyncio.run(_dialogues(config, problems[: config.limit]))


async def _dialogues(config: Dialogues, problems: Sequence[Problem]) -> Rollouts:
    output = Path(config.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    async with cast(config, [config.student]) as (teacher, students):
        [student] = students.values()
        how = course(config)
        guide = tutor(config.hints, config, teacher, student, problems, how)
        settings, identity = described(config, [teacher, student], problems)
        name = f"dialogues-{Path(config.dataset_id_or_path).stem}-{Path(student.name).name}"
        with Run(Path(config.results_dir), name, settings, identity, config.overwrite, key) as run:
            total = len(problems) * config.samples
            skipped = Skipped()
            with Progress("dialogues", total, done=len(run.done)) as progress:

                async def one(item: tuple[Problem, int]) -> None:
                    problem, copy = item
                    with skipped.over(problem.uid):
                        episode = await feedback(problem, student, guide, how, copy)
                        run.add(episode)
                        skipped.note(episode)
                        progress.advance(spent(episode))

                items = ((problem, copy) for problem in problems for copy in range(config.samples))
                await each((item for item in items if (item[0].uid, item[1]) not in run.done), one, config.in_flight)
            left = skipped.report()
            if not run.done:
                raise DataError("no dialogue could be held: use shorter problems or another model")
            names = "dialogues solved trainable both leaked flagged overflow refused".split()
            counts, rejected = Counter(dict.fromkeys(names, 0)), Counter[str]()

            def lines() -> Iterator[str]:
                for episode in run.episodes():
                    meta, kept = episode.meta, trainable(episode)
                    counts.update(dialogues=1, solved=solved(episode), trainable=kept, both=kept and solved(episode))
                    counts.update(leaked=episode.leaked, flagged=meta["flagged"] > 0)
                    counts.update(overflow=meta["overflow"], refused=bool(meta.get("refused")))
                    rejected.update(meta["rejected"])
                    if kept:
                        yield f"{episode.to_json()}\n"

            write(output, lines())
            both = counts.pop("both")
            run.finish({**counts, "rejected": rejected, "left_out": left})
    return Rollouts(output, run.folder, counts["dialogues"], counts["trainable"], both, unused(counts, rejected))


def unused(counts: Counter[str], rejected: Counter[str]) -> str:
    """Why some dialogues may not be trained on, and what a guard had against hints."""
    why = {"gave the answer away": counts["leaked"], "had no hint that passed the guard": counts["flagged"]}
    said = [f"{count} {what}" for what, count in why.items() if count]
    if rejected:
        said.append(f"hints rejected: {', '.join(f'{count} {reason}' for reason, count in rejected.items())}")
    return "; ".join(said)


def key(episode: Episode) -> tuple[str, int]:
    return episode.uid, episode.meta["copy"]


def course(config: Feedback) -> Plan:
    return replace(plan(config), max_turns=config.max_turns)


def tutor(
    name: str, config: Hinting, teacher: Engine, student: Engine, problems: Sequence[Problem], how: Plan
) -> Teacher:
    """Whoever gives hints, by name. A shuffled teacher is the one that would have taught, on another problem."""
    if name == "shuffled":
        if len(problems) < 2:
            raise ConfigError(
                "a shuffled teacher needs another problem to speak of: use more problems, or other hints="
            )
        usual = "llm" if config.hints in ("shuffled", "null") else config.hints
        return Shuffled(tutor(usual, config, teacher, student, problems, how), student, problems, how)
    match name:
        case "program":
            return Program()
        case "null":
            return Null()
        case "self":
            return Self(student, how)
        case _:
            return Tutor(teacher, how, Guard(how, teacher if config.judge else None))


def described(
    config: Feedback, engines: Sequence[Engine], problems: Sequence[Problem]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's settings, and all that its numbers depend on."""
    settings = {name: value for name, value in asdict(config).items() if name != "defaults"}
    identity = {name: value for name, value in settings.items() if name not in INCIDENTAL | {"output"}}
    identity["engines"] = [[engine.name, engine.revision] for engine in engines]
    identity["problems"] = [asdict(problem) for problem in problems]
    identity["code"] = [__version__, wording()]
    return settings, identity


def wording() -> list[object]:
    """All prompts as they are now: other words make another run."""
    said: list[object] = [prompts_feedback.GENERIC]
    for problem in (Problem("?", "!", "."), Problem("?", "!", ".", kind="code")):
        said += [prompts.solve(problem.public), prompts_feedback.hint(problem, "?", "?")]
        said += [prompts_feedback.again("?", problem.kind), prompts_feedback.unread(problem.kind)]
        said += [prompts_feedback.critique(problem.public, "?", "?"), prompts_feedback.inspect(problem, "?")]
    return said


@contextlib.asynccontextmanager
async def cast(config: Feedback, names: Sequence[str]) -> AsyncIterator[tuple[Engine, dict[str, Engine]]]:
    """The teacher and the students by name: one engine for all that share a base, in this process or on servers.

    The word base stands for what the adapters among the students adapt. A teacher that is not named is the base.
    """
    served = config.student_url is not None
    own = {name: name if served else meant(name, names) for name in names}
    teacher = guide(config) or (names[0] if served else base(own[names[0]]), config.student_url)
    async with speakers(config, [*((name, config.student_url) for name in own.values()), teacher]) as found:
        yield found[teacher], {name: found[model, config.student_url] for name, model in own.items()}


def meant(name: str, names: Sequence[str]) -> str:
    """A student's model: itself, or where it is called base, that of the adapters beside it."""
    if name != "base" or Path(name).is_dir():
        return name
    beside = [other for other in names if other != name]
    if adapters := [other for other in beside if base(other) != other]:
        return base(adapters[0])
    none = f", and there is none in {', '.join(beside)}" if beside else ""
    raise ConfigError(f"student=base is what an adapter named beside it adapts{none}: type the model's own name")


def base(name: str) -> str:
    """What an adapter adapts; a name that only a server knows is its own base."""
    with contextlib.suppress(ModelError):
        return models.base(name)
    return name
