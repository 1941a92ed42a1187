"""`tutelage evaluate lesson=feedback`: students that are given hints, on several benchmarks, and controls, at once."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tutelage.composing import compose, words
from tutelage.config import SPLIT, Data, Evaluate, Exam
from tutelage.dialogues import cast, course, described, tutor
from tutelage.engines import Engine
from tutelage.engines.memo import Memo
from tutelage.errors import DataError
from tutelage.evaluate import chosen, each, spent
from tutelage.files import cache_home
from tutelage.lessons import Episode, Plan, feedback, independent
from tutelage.metrics import Estimate, from_dict, to_dict, turns
from tutelage.problem import Problem
from tutelage.progress import Progress
from tutelage.runs import Run, Skipped
from tutelage.training.recipe import HUB_ID, at_hand, reachable

Sums = dict[tuple[str, str], dict[str, turns.Totals]]  # by student and benchmark, by teacher


@dataclass(frozen=True)
class Cell:
    """What one student shows on one benchmark: with hints, with each control, and the one minus the other."""

    student: str
    benchmark: str
    problems: int
    taught: dict[str, Estimate]
    controls: dict[str, dict[str, Estimate]]
    specific: dict[str, dict[str, Estimate]]

    def to_dict(self) -> dict[str, Any]:
        return {
            "problems": self.problems,
            "taught": to_dict(self.taught),
            "controls": {name: to_dict(found) for name, found in self.controls.items()},
            "specific": {name: to_dict(found) for name, found in self.specific.items()},
        }

    @staticmethod
    def from_dict(student: str, benchmark: str, data: dict[str, Any]) -> "Cell":
        controls, specific = (
            {name: from_dict(found) for name, found in data[part].items()} for part in ("controls", "specific")
        )
        return Cell(student, benchmark, data["problems"], from_dict(data["taught"]), controls, specific)


@dataclass(frozen=True)
class Item:
    """One dialogue to hold."""

    student: str
    benchmark: str
    teacher: str
    problem: Problem
    copy: int

    @property
    def key(self) -> tuple[str, ...]:
        return self.student, self.benchmark, self.teacher, self.problem.uid, str(self.copy)


def evaluate(config: Exam) -> tuple[Path, list[Cell]]:
    """Hold all dialogues of all students, or take up where an earlier process stopped."""
    benchmarks, empty = gathered(config)
    for name, why in empty.items():
        print(f"benchmark {name} is left out: {why}", file=sys.stderr)
    if not benchmarks:
        raise DataError(f"no benchmark has problems: {'; '.join(empty.values())}")
    return asyncio.run(_evaluate(config, benchmarks, empty))


def gathered(config: Exam) -> tuple[dict[str, list[Problem]], dict[str, str]]:
    """The problems of each benchmark, and why some have none."""
    names = words(config.benchmarks or "")
    if not names:
        return {Path(config.dataset_id_or_path).stem: chosen(config)}, {}
    found: dict[str, list[Problem]] = {}
    empty: dict[str, str] = {}
    for name in names:
        try:
            source = compose(Evaluate, [f"data={name}"])
            wanted = {key: getattr(config, key) for key in SPLIT if getattr(config, key) is not None}
            if out_of_reach(source):
                print(
                    f"benchmark {name}: no {source.dataset_id_or_path} here, generated problems instead",
                    file=sys.stderr,
                )
                wanted["dataset_id_or_path"] = "generated"
                name = f"{name}_generated"  # not to be taken for the real one
            found[name] = chosen(replace(source, **wanted))
        except DataError as error:
            empty[name] = str(error)
    return found, empty


def out_of_reach(source: Data) -> bool:
    """Whether the hub's problems cannot be had, and others can be generated."""
    hub = source.dataset_id_or_path
    return bool(source.tasks and HUB_ID.fullmatch(hub) and not at_hand(hub, "data") and not reachable())


async def _evaluate(
    config: Exam, benchmarks: dict[str, list[Problem]], empty: dict[str, str]
) -> tuple[Path, list[Cell]]:
    names = words(config.student)
    roles = [config.hints, *(name for name in words(config.controls) if name != config.hints)]
    everything = [problem for problems in benchmarks.values() for problem in problems]
    async with cast(config, names) as (teacher, students), contextlib.AsyncExitStack() as stack:
        # All roles begin with the same first attempts: they are asked for once.
        frozen: dict[str, Engine] = {}
        for name, engine in students.items():
            frozen[name] = await stack.enter_async_context(Memo(engine, cache_home() / "samples.sqlite"))
        how = course(config)
        settings, identity = described(config, [teacher, *students.values()], everything)
        identity["benchmarks"] = {name: len(problems) for name, problems in benchmarks.items()}
        title = f"evaluate-feedback-{'-'.join(benchmarks)}-{'-'.join(Path(name).name for name in names)}"
        skipped = Skipped()
        held_by = {name: present(name, problems, roles) for name, problems in benchmarks.items()}
        guides = {
            (name, benchmark, role): tutor(role, config, teacher, student, problems, how)
            for name, student in frozen.items()
            for benchmark, problems in benchmarks.items()
            for role in held_by[benchmark]
            if role != "independent"
        }

        def items() -> Iterator[Item]:
            for student in names:
                for benchmark, problems in benchmarks.items():
                    for problem in problems:
                        for copy in range(config.samples):
                            yield from (Item(student, benchmark, role, problem, copy) for role in held_by[benchmark])

        with Run(Path(config.results_dir), title[:80], settings, identity, config.overwrite, key) as run:
            each_time = sum(len(problems) * len(held_by[name]) for name, problems in benchmarks.items())
            total = len(names) * config.samples * each_time
            with Progress("dialogues", total, done=len(run.done)) as progress:

                async def one(item: Item) -> None:
                    guide = guides.get((item.student, item.benchmark, item.teacher))
                    with skipped.over(item.problem.uid):
                        episode = await held(item, frozen[item.student], guide, how)
                        run.add(episode)
                        skipped.note(episode)
                        progress.advance(spent(episode))

                await each((item for item in items() if item.key not in run.done), one, config.in_flight)
            left = {"empty": empty} | skipped.report()
            cells = measured(config, run, roles, list(benchmarks))
            if not cells:
                raise DataError("no dialogue could be held: use shorter problems or another model")
            found: dict[str, dict[str, Any]] = {}
            for cell in cells:
                found.setdefault(cell.student, {})[cell.benchmark] = cell.to_dict()
            run.finish({"max_turns": config.max_turns, "hints": config.hints, "students": found, "left_out": left})
        return run.folder, cells


def present(benchmark: str, problems: Sequence[Problem], roles: list[str]) -> list[str]:
    """Who teaches there: with one problem only, nobody has another one's hint to give."""
    if len(problems) > 1 or "shuffled" not in roles[1:]:
        return roles
    print(f"benchmark {benchmark} has one problem, so the control shuffled is left out", file=sys.stderr)
    return [role for role in roles if role != "shuffled"]


async def held(item: Item, student: Engine, guide: Any, how: Plan) -> Episode:
    if guide is None:
        episode = await independent(item.problem, student, how, item.copy)
    else:
        episode = await feedback(item.problem, student, guide, how, item.copy)
    place = {"student": item.student, "benchmark": item.benchmark, "teacher": item.teacher}
    return replace(episode, meta=episode.meta | place)


def key(episode: Episode) -> tuple[str, ...]:
    meta = episode.meta
    return meta["student"], meta["benchmark"], meta["teacher"], episode.uid, str(meta["copy"])


def measured(config: Exam, run: Run, roles: list[str], benchmarks: list[str]) -> list[Cell]:
    """A cell for each student and benchmark, in the order they were named; dialogues are read one by one."""
    sums: Sums = {}
    for episode in run.episodes():
        add(sums, episode, config.max_turns)
    sums = ordered(sums, words(config.student), benchmarks)
    return cells(sums, roles, max_turns=config.max_turns, resamples=config.resamples, seed=config.seed)


def add(sums: Sums, episode: Episode, max_turns: int) -> None:
    """Take a dialogue into the sums of its student, benchmark and teacher."""
    where = sums.setdefault((episode.meta["student"], episode.meta["benchmark"]), {})
    turns.add(where.setdefault(episode.meta["teacher"], {}), episode, max_turns)


def ordered(sums: Sums, students: Sequence[str], benchmarks: Sequence[str]) -> Sums:
    """As they were named; dialogues end in any order."""
    places = [{name: place for place, name in enumerate(names)} for names in (students, benchmarks)]
    end = max(map(len, places))

    def place(where: tuple[str, str]) -> list[int]:
        return [known.get(name, end) for known, name in zip(places, where, strict=True)]

    return {where: sums[where] for where in sorted(sums, key=place)}


def cells(sums: Sums, roles: list[str], **how: Any) -> list[Cell]:
    """The first of the roles teaches, the others are controls."""
    found = []
    for (student, benchmark), by_role in sums.items():
        taught = by_role.get(roles[0])
        if not taught:
            continue
        others = {role: by_role[role] for role in roles[1:] if role in by_role}
        found.append(
            Cell(
                student,
                benchmark,
                len(taught),
                turns.measure(taught, **how),
                {role: turns.measure(each, **how) for role, each in others.items()},
                {role: turns.specific(taught, each, **how) for role, each in others.items()},
            )
        )
    return found
