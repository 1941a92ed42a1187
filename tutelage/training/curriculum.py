"""Which problems are trained on: not the held-out, the too long, or those the student always or never solves."""

import contextlib
import hashlib
import json
import sys
from collections import defaultdict
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from tutelage import data
from tutelage.errors import DataError
from tutelage.evaluate import read
from tutelage.problem import Problem
from tutelage.progress import Progress
from tutelage.training.config import Train
from tutelage.training.courses import Course
from tutelage.training.rollout import Rollout, rewind


def problems(config: Train) -> tuple[list[Problem], list[Problem]]:
    """To train on, and to evaluate on: never the same question."""
    # An explanation is weighed by its solution: a final answer is only asked for to examine the student.
    everything = read(config, needs_answer=not config.scores).problems
    train, held_out = (
        data.split(everything, config.held_out, config.split_seed) if config.held_out else (everything, [])
    )
    if not train:
        raise DataError(f"{config.dataset_id_or_path} leaves nothing to train on: lower held_out={config.held_out}")
    return train[: config.limit], held_out


def fitting(problems: list[Problem], course: Course) -> list[Problem]:
    """Problems on which lessons can be held; the others are counted and named, with the reason."""
    kept, out = [], defaultdict[str, list[str]](list)
    for problem in problems:
        if why := course.unfit(problem):
            out[why].append(problem.uid)
        else:
            kept.append(problem)
    for why, uids in out.items():
        if PartialState().is_main_process:
            named = f"{', '.join(uids[:10])}{' …' * (len(uids) > 10)}"
            print(f"{len(uids)} of {len(problems)} problems dropped ({named}): {why}", file=sys.stderr)
    if problems and not kept:
        raise DataError(f"no lesson can be held on any of the {len(problems)} problems: {'; '.join(out)}")
    return kept


def rated(problems: list[Problem], rollout: Rollout, folder: Path) -> list[float]:
    """How often the student solves each by itself. Kept as they come: rating is long, and the student may itself be
    what is trained."""
    if unknown := sum(not problem.answer for problem in problems):
        raise DataError(
            f"{unknown} of {len(problems)} problems have no final answer to rate the student by: type min_baseline=0 "
            "max_baseline=1"
        )
    state, known = PartialState(), dict[str, float]()
    if state.is_main_process:
        for path in folder.glob("curriculum.*.jsonl"):
            rewind(path, lambda line: True)
            known |= map(json.loads, path.open())
    [known] = broadcast_object_list([known])
    left = [problem for problem in problems if asked(problem) not in known]
    share = -(-len(left) // state.num_processes)
    with (
        (folder / f"curriculum.{state.process_index}.jsonl").open("a") as file,
        Progress("problems rated", share) if state.is_main_process and left else contextlib.nullcontext() as bar,
    ):

        async def rate(problem: Problem) -> float:
            found = await rollout.course.rate(problem)
            file.write(json.dumps([asked(problem), found]) + "\n")
            file.flush()
            if bar:
                bar.advance()
            return found

        known |= zip(map(asked, left), rollout.spread(left, rate), strict=True)
    return [known[asked(problem)] for problem in problems]


def asked(problem: Problem) -> str:
    """What a rating is of: a question, and the answer it was judged by."""
    return f"{problem.uid}-{hashlib.blake2b(f'{problem.kind} {problem.answer}'.encode(), digest_size=4).hexdigest()}"


def within(problems: list[Problem], rates: list[float], config: Train) -> list[Problem]:
    """The problems the student solves alone as often as the curriculum wants."""
    kept = [p for p, rate in zip(problems, rates, strict=True) if config.min_baseline <= rate <= config.max_baseline]
    if not kept:
        spread = f"{min(rates):.0%} to {max(rates):.0%}"
        raise DataError(f"the student solves {spread} of these problems alone: widen min_baseline and max_baseline")
    if PartialState().is_main_process:
        span = f"{config.min_baseline:.0%} to {config.max_baseline:.0%}"
        print(f"curriculum: {len(kept)} of {len(problems)} problems, solved {span} of the time", file=sys.stderr)
    return kept
