"""Traces: explanations of every problem, scored by a student, and the best of them written as a data set."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from tutelage import __version__, data, models
from tutelage.cast import roles
from tutelage.choosing import CHOICE, MISFIT, candidate, choose, place
from tutelage.composing import keys
from tutelage.config import Roles, Traces
from tutelage.engines import Engine, Message, Sampling
from tutelage.engines.chorus import Chorus
from tutelage.errors import ConfigError, DataError, PromptTooLong
from tutelage.evaluate import INCIDENTAL, each, read, trained_in, trained_with
from tutelage.files import replacing, write
from tutelage.lessons import Episode, Outline, Style, explain
from tutelage.lessons.explain import comparable, unfit
from tutelage.lessons.styles import spelled
from tutelage.problem import Problem
from tutelage.progress import Progress
from tutelage.report.card import card
from tutelage.rewards.explain import Likelihood, explained
from tutelage.runs import Run

SHOWN = (  # on the card, too
    *("style", "samples", "max_tokens", "temperature", "top_p", "held_out", "limit"),
    *("unbias_student_log_probs_temp", "unbias_teacher_log_probs"),
)
BATCH = 1000  # rows of a Parquet row group


def traces(config: Traces) -> tuple[Path, str]:
    """Explain every problem, or take up where an earlier process stopped, and write what is kept."""
    if config.style == "auto":
        config = replace(config, style=trained_in(config.teacher or "", "explain") or "r1")
    terms, style = likelihood(config), Style.from_config(config.style)
    config = replace(config, student=scorer(config))
    problems, dropped = explainable(config, style)
    Path(config.output).parent.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_traces(config, terms, style, problems, dropped))


async def _traces(
    config: Traces, terms: Likelihood, style: Style, problems: list[Problem], dropped: Counter[str]
) -> tuple[Path, str]:
    async with roles(config, scores=True) as (teacher, student, _):
        terms.needs(comparable(teacher, student))
        settings = {name: value for name, value in asdict(config).items() if name != "defaults"}
        identity = {name: value for name, value in settings.items() if name not in INCIDENTAL | CHOICE}
        identity["engines"] = [[engine.name, engine.revision] for engine in (teacher, student)]
        identity["problems"] = [asdict(problem) for problem in problems]
        identity["code"] = [__version__, asdict(style)]
        name = f"traces-{Path(config.dataset_id_or_path).stem}-{Path(teacher.name).name}"
        with Run(Path(config.results_dir), name, settings, identity, config.overwrite, key=place) as run:
            telling = Sampling(max_tokens=config.max_tokens, temperature=config.temperature, top_p=config.top_p)
            how = outline(config, style, telling)
            misfits = await write_all(config, how, problems, teacher, student, run)
            dropped += misfits
            chosen, why = choose((candidate(episode, terms, config) for episode in run.episodes()), config, misfits)
            origin: dict[str, Any] = {"teacher": teacher.name, "teacher_revision": teacher.revision}
            origin |= {"student": student.name, "student_revision": student.revision, "seed": config.seed}
            origin["style"] = spelled(config.style)
            order = {problem.uid: number for number, problem in enumerate(problems)}
            rows = [
                row(episode, problems[order[episode.uid]], terms, style, origin)
                for episode in run.episodes()
                if place(episode) in chosen
            ]
            rows.sort(key=lambda one: (order[one["uid"]], -one["reward"], one["copy"]))  # lessons end in any order
            save(Path(config.output), rows)
            reasons = {"Rows without an explanation": dropped, "Explanations left out": why}
            text, counts = describe(config, len(problems), rows, reasons, origin)
            write(Path(f"{config.output}.md"), text)
            run.finish(counts)
        return run.folder, text


def likelihood(config: Any) -> Likelihood:
    """The reward of a config that has its keys."""
    return Likelihood(**{field.name: getattr(config, field.name) for field in fields(Likelihood)})


def outline(config: Any, style: Style, telling: Sampling) -> Outline:
    """How a config that has its keys asks for explanations."""
    return Outline(
        style=style,
        telling=telling,
        unbias_student_log_probs_temp=config.unbias_student_log_probs_temp,
        unbias_teacher_log_probs=config.unbias_teacher_log_probs,
        seed=config.seed,
    )


def scorer(config: Traces) -> str:
    """The student: as said, or what the teacher was trained from."""
    if config.teacher_url or config.student_url:
        raise ConfigError("explanations are scored by token: leave teacher_url and student_url out, or use engine=vllm")
    if config.student:
        return config.student
    embedded = str(keys(Roles)["student"].default)
    if config.teacher in (None, embedded):
        return embedded
    if known := trained_with(config.teacher):
        return known
    if Path(config.teacher).expanduser().is_dir() and (base := models.base(config.teacher)) != config.teacher:
        return base
    if not Path(config.teacher).expanduser().is_dir():
        raise ConfigError(
            f"no folder {config.teacher} here; for a model from elsewhere add student=<who it explains to>"
        )
    # A teacher whose own weights were trained is no judge of itself.
    raise ConfigError(f"who scores the explanations of {config.teacher}? add student=<the model they are for>")


def explainable(config: Traces, style: Style) -> tuple[list[Problem], Counter[str]]:
    """Problems with a solution, on the training side of the data, and why other rows have no trace."""
    dataset = read(config, needs_answer=False)
    dropped = dataset.unused
    problems = dataset.problems
    if config.held_out:
        problems, kept = data.split(problems, config.held_out, config.split_seed)
        dropped["held out for evaluation"] = len(kept)
    reasons = {problem.uid: unfit(problem, style) for problem in problems}
    dropped.update(why for why in reasons.values() if why)
    problems = [problem for problem in problems if not reasons[problem.uid]]
    dropped[f"beyond limit={config.limit}"] = len(problems[config.limit :]) if config.limit else 0
    problems = problems[: config.limit]
    if config.drop_leaked and not any(problem.answer for problem in problems):
        raise ConfigError("drop_leaked=true looks for final answers, and these rows have none: leave it out")
    if not problems:
        listed = "; ".join(f"{why} ({count} rows)" for why, count in (+dropped).items())
        raise DataError(
            f"no problem of {config.dataset_id_or_path} can be explained: {listed or 'it has none'}; "
            "type columns.solution=<column>, or held_out=0 to use all rows"
        )
    return problems, +dropped


async def write_all(
    config: Traces, plan: Outline, problems: list[Problem], teacher: Engine, student: Engine, run: Run
) -> Counter[str]:
    """Every explanation that is still missing; problems that fit no context are counted."""
    copies = range(config.samples)
    missing = [problem for problem in problems if any((problem.uid, copy) not in run.done for copy in copies)]
    misfits: Counter[str] = Counter()
    with Progress("explanations", len(problems) * config.samples, done=len(run.done)) as progress:

        async def work(problem: Problem) -> None:
            # Some copies may be there, but random numbers belong to the whole group.
            chorus = Chorus(teacher, config.samples)

            async def one(copy: int) -> None:
                episode = await explain(problem, chorus, student, plan, copy)
                if (problem.uid, copy) not in run.done:
                    run.add(replace(episode, meta={"copy": copy}))
                    progress.advance(episode.turns[0].sample.tokens)

            try:
                await each(copies, one, config.samples)
            except PromptTooLong:
                misfits[MISFIT] += 1

        await each(missing, work, config.in_flight)
    return misfits


def row(
    episode: Episode, problem: Problem, terms: Likelihood, style: Style, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """One trace: what a student is to say, and where it comes from."""
    parts, scores, explanation = explained(episode, terms), episode.scores, episode.teaching or ""
    assert scores is not None
    reply: Message = {"role": "assistant", "content": style.reply(explanation, problem.solution)}
    return {
        "uid": problem.uid,
        "question": problem.question,
        "solution": problem.solution.strip(),
        "answer": problem.answer,
        "explanation": explanation,
        "messages": [*style.pose(problem.public), reply],
        "reward": sum(parts.values()),
        "reward_parts": parts,
        "form": scores.form,
        "leaked": episode.leaked,
        "restated": scores.restated,
        "tokens": episode.teaching_tokens,
        "length": scores.length,
        "copy": episode.meta["copy"],
        **origin,
    }


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Parquet or JSON lines, by the file's ending; an earlier file is replaced when this one is whole."""
    with replacing(path) as part:
        if path.suffix == ".jsonl":
            with part.open("w", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(one, ensure_ascii=False)}\n" for one in rows)
            return
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.Table.from_pylist(rows[:1]).schema
        with parquet.ParquetWriter(part, schema) as writer:
            for start in range(0, len(rows), BATCH):
                writer.write_table(pyarrow.Table.from_pylist(rows[start : start + BATCH], schema))


def describe(
    config: Traces,
    problems: int,
    rows: list[dict[str, Any]],
    reasons: Mapping[str, Counter[str]],
    origin: Mapping[str, Any],
) -> tuple[str, dict[str, Any]]:
    """The data card, and its counts for metrics.json."""
    explained = len({one["uid"] for one in rows})
    counts = {"traces": len(rows), "problems with a trace": explained, "problems without": problems - explained}
    columns = {name: [one[name] for one in rows] for name in ("reward", "tokens", "length", "restated")}
    settings = {name: getattr(config, name) for name in keys(Traces) if name in CHOICE or name in SHOWN}
    text = card(
        Path(config.output).name,
        counts,
        reasons,
        columns,
        {"data": config.dataset_id_or_path, **origin, **settings, "made by": f"tutelage {__version__}"},
    )
    return text, {**counts, **{name: dict(+why) for name, why in reasons.items()}}
