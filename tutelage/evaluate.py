"""Lessons on held-out problems: concurrent, resumable, and the same numbers however often it was interrupted."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tutelage import __version__, data
from tutelage.cast import roles
from tutelage.composing import keys
from tutelage.config import Data, Evaluate, Lesson, Teach
from tutelage.engines import Engine, Sampling
from tutelage.errors import ConfigError, DataError, TutelageError, nearest
from tutelage.lessons import STYLES, Episode, Outline, Plan, Style, adaptive, prompts, solo
from tutelage.lessons.examined import examined
from tutelage.lessons.explain import unfit
from tutelage.lessons.solo import Ask
from tutelage.metrics import Estimate, measure, to_dict
from tutelage.problem import Problem
from tutelage.progress import Progress
from tutelage.runs import Run, Skipped

T = TypeVar("T")

# How a run is carried out and shown, not what it finds: a change of these continues the same run.
INCIDENTAL = {
    *("in_flight", "results_dir", "overwrite", "resamples", "requests", "cache_gb", "api_key_env"),
    *("vllm_host", "vllm_port", "vllm_servers"),
}


Cast = tuple[Engine, Engine, Engine]  # teacher, student, and the student behind its memory
Hold = Callable[[Problem], Awaitable[Episode]]


@dataclass(frozen=True)
class Kind:
    """All that evaluation knows of a lesson."""

    hold: Callable[[Evaluate, Cast], Hold]
    wording: Callable[[Problem, Any], list[object]]  # all that is said in it, in a style
    unused: tuple[str, ...]  # keys it has no use for
    style: tuple[str, str] = ("", "")  # whose training decides the style, and the style of those not trained here
    unfit: Callable[[Problem, Any], str] = lambda problem, style: ""  # why it cannot be held on a problem


def _adaptive(config: Evaluate, cast: Cast) -> Hold:
    how = plan(config)
    return lambda problem: adaptive(problem, *cast, how)


def _explain(config: Evaluate, cast: Cast) -> Hold:
    how = plan(config)
    outline = Outline(Style.from_config(config.style), telling=how.teaching, seed=how.seed)
    return lambda problem: examined(problem, *cast, outline, how)


def _solo(config: Evaluate, cast: Cast) -> Hold:
    how, ask = plan(config), asking(config.style)
    return lambda problem: solo(problem, cast[2], how, config.samples, ask)


def _taught(problem: Problem, _: Any = None) -> list[object]:
    public = problem.public
    return [prompts.probe(public), prompts.teach(public, "?"), prompts.solve(public, "?")]


# A new lesson is one entry here, and one in metrics.TABLES.
LESSONS: dict[str, Kind] = {
    "adaptive": Kind(_adaptive, _taught, unused=("samples", "style")),
    "explain": Kind(
        _explain,
        lambda problem, style: [asdict(Style.from_config(style)), prompts.solve(problem.public, "?")],
        unused=("samples", "max_probe_tokens", "teacher_url", "student_url"),
        style=("teacher", "r1"),
        unfit=lambda problem, style: unfit(problem, Style.from_config(style)),
    ),
    "solo": Kind(
        _solo,
        lambda problem, style: [asking(style)(problem.public)],
        unused=tuple(
            "teacher teacher_url max_probe_tokens max_completion_length baseline_samples taught_samples".split()
        ),
        style=("student", "plain"),
    ),
}


def evaluate(config: Evaluate) -> tuple[Path, dict[str, Estimate], int]:
    """Hold one lesson on every problem, or take up where an earlier process stopped."""
    kind = known(config)
    problems = chosen(config, kind.unfit)
    return asyncio.run(_evaluate(config, kind, problems))


def known(config: Evaluate) -> Kind:
    """The lesson of a name, with its style settled; a key that it would silently pass over is refused."""
    if config.lesson not in LESSONS:
        raise ConfigError(f"no lesson {config.lesson!r}; {nearest(config.lesson, [*LESSONS, 'feedback'])}")
    kind = LESSONS[config.lesson]
    for name in kind.unused:
        if getattr(config, name) != keys(Evaluate)[name].default:
            raise ConfigError(f"lesson={config.lesson} has no use for {name}: leave {name}=… out")
    role, usual = kind.style
    if role and config.style == "auto":
        config.style = trained_in(getattr(config, role) or "", config.lesson) or usual
    kind.wording(Problem("?", "?", "?"), config.style)  # a style that does not exist says so before a model loads
    return kind


def asking(style: Any) -> Ask:
    """How a student is asked: in our own words (plain), or in those of a style."""
    if isinstance(style, str) and style not in (names := (*STYLES, "auto", "plain")):
        raise ConfigError(f"no style {style!r}; {nearest(style, names)}")
    return prompts.solve if style == "plain" else Style.from_config(style).pose


def trained_in(name: str, lesson: str) -> Any:
    """The style of a model that was trained here for a lesson, as its folder says; None for any other."""
    settings = recorded(name)
    return settings.get("style") if settings.get("lesson") == lesson else None


def trained_with(name: str) -> str:
    """The student that a teacher was trained with here; empty for any other."""
    settings = recorded(name)
    return str(settings.get("student_model") or "") if settings.get("method") in ("rcl", "rlt", "sft") else ""


def recorded(name: str) -> dict[str, Any]:
    """The settings of the training that left a model; a checkpoint and the best one lie in its folder."""
    folder = Path(name).expanduser()
    for place in (folder, folder.resolve().parent) if name and folder.is_dir() else ():
        if (place / "config.yaml").is_file():
            return dict(yaml.safe_load((place / "config.yaml").read_text()))
    return {}


async def _evaluate(config: Evaluate, kind: Kind, problems: list[Problem]) -> tuple[Path, dict[str, Estimate], int]:
    async with roles(config, scores=config.lesson == "explain") as cast:
        teacher, student, _ = cast
        hold = kind.hold(config, cast)
        settings = {name: value for name, value in asdict(config).items() if name != "defaults"}
        identity = {name: value for name, value in settings.items() if name not in INCIDENTAL}
        identity["engines"] = [[engine.name, engine.revision] for engine in (teacher, student)]
        identity["problems"] = [asdict(problem) for problem in problems]
        identity["code"] = [__version__, wording(config.lesson, config.style)]
        name = f"evaluate-{config.lesson}-{Path(config.dataset_id_or_path).stem}-{Path(student.name).name}"
        skipped = Skipped()
        with Run(Path(config.results_dir), name, settings, identity, config.overwrite) as run:
            missing = [problem for problem in problems if problem.uid not in run.done]
            with Progress("lessons", len(problems), done=len(problems) - len(missing)) as progress:

                async def lesson(problem: Problem) -> None:
                    with skipped.over(problem.uid):
                        episode = await hold(problem)
                        run.add(episode)
                        progress.advance(spent(episode))

                await each(missing, lesson, config.in_flight)
            left = skipped.report()
            if not run.done:
                raise DataError("no lesson could be held: use shorter problems or another model")
            estimates = measure(run.episodes(), config.resamples, config.seed)
            run.finish(to_dict(estimates) | ({"left_out": left} if any(left.values()) else {}))
            if min(whole(estimates, "completion_rate_alone"), whole(estimates, "completion_rate")) < 0.5:
                print(f"most answers were cut off at max_tokens={config.max_tokens}: raise it", file=sys.stderr)
        return run.folder, estimates, len(run.done)


def whole(estimates: dict[str, Estimate], name: str) -> float:
    """The share of answers that ended by themselves, where there are any."""
    found = estimates[name].value if name in estimates else None
    return 1.0 if found is None else found


def wording(lesson: str, style: Any) -> list[object]:
    """All prompts of a lesson as they are now: other words make another run."""
    return LESSONS[lesson].wording(Problem("?", "?", "?"), style)


def teach(config: Teach, question: str) -> Episode:
    """One lesson on a question of the user's."""

    async def lesson() -> Episode:
        async with roles(config) as (teacher, student, frozen):
            problem = Problem(question, solution="", answer=config.answer)
            return await adaptive(problem, teacher, student, frozen, plan(config))

    return asyncio.run(lesson())


def plan(config: Lesson) -> Plan:
    sampling = Sampling(temperature=config.temperature, top_p=config.top_p)
    return Plan(
        probing=sampling.but(max_tokens=config.max_probe_tokens),
        teaching=sampling.but(max_tokens=config.max_completion_length),
        solving=sampling.but(max_tokens=config.max_tokens),
        baseline_samples=config.baseline_samples,
        taught_samples=config.taught_samples,
        seed=config.seed,
    )


def read(config: Data, needs_answer: bool | None = None, repeats: bool = False, tell: bool = True) -> data.Dataset:
    """The problems that a config names; the user is told of rows that became none."""
    found = data.load(
        config.dataset_id_or_path,
        format=config.format,
        columns=config.columns,
        tasks=config.tasks,
        size=config.size,
        split=config.dataset_split,
        data_files=config.data_files,
        needs_answer=needs_answer,
        repeats=repeats,
        seed=config.seed,
    )
    if tell and (reasons := found.unused) and os.environ.get("RANK", "0") == "0":
        listed = "; ".join(f"{why} ({count})" for why, count in reasons.most_common(5))
        print(f"{reasons.total()} rows of {found.source} left out: {listed}", file=sys.stderr)
    return found


def chosen(config: Evaluate, unfit: Callable[[Problem, Any], str] = Kind.unfit) -> list[Problem]:
    """The problems to evaluate on: held out from training, fit for the lesson, at most `limit`."""
    # An explanation is weighed by its solution, as in training: answers are only asked for where one can be checked.
    problems = read(config, needs_answer=config.lesson != "explain").problems
    if config.held_out:
        problems = data.split(problems, config.held_out, config.split_seed)[1]
    if not problems:
        raise DataError(f"of {config.dataset_id_or_path} no problem is held out: add held_out=0 to use them all")
    found = [(problem, unfit(problem, config.style)) for problem in problems]
    if reasons := Counter(why for _, why in found if why):
        listed = "; ".join(f"{why} ({count})" for why, count in reasons.items())
        print(f"{reasons.total()} problems left out: {listed}", file=sys.stderr)
        problems = [problem for problem, why in found if not why]
        if not problems:
            raise DataError(f"no problem of {config.dataset_id_or_path} is fit for lesson={config.lesson}: {listed}")
    return problems[: config.limit]


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Work on all items, so many at once; the first error ends the rest and is raised as itself."""
    queue = iter(items)

    async def worker() -> None:
        for item in queue:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(worker())
    except BaseExceptionGroup as group:
        errors = group.exceptions
        raise next((error for error in errors if isinstance(error, TutelageError)), errors[0]) from None


def spent(episode: Episode) -> int:
    """Tokens generated for a lesson."""
    said = [*episode.turns, *episode.alone]
    if not episode.abstained:
        said += episode.taught
    return sum(turn.sample.tokens for turn in said)
