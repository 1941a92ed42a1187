"""Supervised training with TRL's SFTTrainer: a teacher on worked lessons, a student on traces or dialogues."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import set_seed
from trl import SFTConfig, SFTTrainer

from tutelage import data, models
from tutelage.engines.local import TransformersEngine
from tutelage.engines.memo import Memo
from tutelage.errors import DataError, PromptTooLong
from tutelage.evaluate import each, plan, read
from tutelage.files import cache_home
from tutelage.lessons import Episode, prompts
from tutelage.lessons.adaptive import attempt, seed
from tutelage.lessons.styles import Style, spelled
from tutelage.problem import Problem
from tutelage.progress import Progress
from tutelage.rewards.adaptive import accuracy
from tutelage.training import discussed, explained, traced, worked
from tutelage.training.batch import Sizes
from tutelage.training.config import Train
from tutelage.training.policy import Guarded, arguments, checkpoint, load_policy, on_gpu, resume
from tutelage.training.watch import brief
from tutelage.training.worked import Row

AT_ONCE = 256  # problems on which the student is watched together


def sft(config: Train, folder: Path, sizes: Sizes) -> Path:
    """Train on rows of a lesson, or go on from the last checkpoint; the folder then holds the model."""
    # Before the trainer's arguments: with ZeRO-3 these would have the student's weights cut into shards, too.
    imitated = ROWS[config.lesson](config)
    args = arguments(SFTConfig, config, folder, sizes, max_length=None)  # nothing is ever cut
    set_seed(config.seed)  # an adapter starts from random numbers
    model, tokenizer = load_policy(config)
    engine = TransformersEngine(model, tokenizer, name=config.model_name_or_path or config.student_model)
    examples, report = tokenised(imitated, engine, config.max_length, config.mask_truncated)
    say(report)
    trainer = Trainer(model=model, processing_class=tokenizer, train_dataset=Dataset.from_list(examples), args=args)
    brief(trainer)
    last = checkpoint(folder)
    say(f"going on from {last}" if last else "")
    trained = resume(trainer, last)
    if config.save_final_model and (trained or not models.saved(folder)):
        trainer.save_model(str(folder))
    return folder


def lessons(config: Train) -> list[Row]:
    """Worked lessons on the training side of the data, by what the frozen student does alone where that matters.

    Each process watches the student on its share of the problems."""
    state = PartialState(cpu=not on_gpu(config))
    problems = learnt(config)
    unknown = [p for p in problems if not p.reasoning_trace and "teacher_teaching" not in p.meta]
    approaches: dict[str, str] = {}
    baselines: dict[str, float] = {}
    with state.split_between_processes(unknown) as share:
        watched = asyncio.run(observe(config, share)) if share else ({}, {})
    for some, others in gather_object([watched]) if unknown else ():
        approaches |= some
        baselines |= others
    return some_of(worked.rows(problems, approaches, baselines), config, "solution (or reasoning_trace)")


def explanations(config: Train) -> list[Row]:
    """Explanations for a teacher that sees the solution."""
    found = explained.rows(learnt(config), Style.from_config(config.style))
    return some_of(found, config, "solution and reasoning_trace")


def traces(config: Train) -> list[Row]:
    """Thoughts and solutions for a student."""
    problems, own = learnt(config), spelled(config.style)
    if others := Counter(p.meta["style"] for p in problems if p.meta.get("style", own) != own):
        say(f"{others.total()} traces were written and scored in style={', '.join(others)}, not in {own} as trained on")
    found = traced.rows(problems, Style.from_config(config.style))
    return some_of(found, config, "solution and explanation (or reasoning_trace)")


def dialogues(config: Train) -> list[Episode]:
    """Solved dialogues for a student; they were held on training problems, so all are taken."""
    kept, dropped = discussed.read(config.dataset_id_or_path, config.mask_truncated)
    told = dropped_rows(dropped, len(kept) + dropped.total())
    say(told)
    if not kept:
        why = told or "it is empty"
        raise DataError(f"no dialogue of {config.dataset_id_or_path} can be learned from ({why}): hold more of them")
    return kept[: config.limit]


# What is trained for, by config.lesson.
ROWS: dict[str, Callable[[Train], Sequence[Row | Episode]]] = {
    "adaptive": lessons,
    "explain": explanations,
    "solo": traces,
    "feedback": dialogues,
}


def learnt(config: Train) -> list[Problem]:
    """The training side of the data. What is repeated and not checked needs no answer, and may have several traces."""
    repeated = config.lesson != "adaptive"
    dataset = read(config, needs_answer=False if repeated else None, repeats=repeated)
    problems = dataset.problems
    if dataset.format == "traces":
        say(f"all {len(problems)} traces are taken: what is held out was left out when they were written")
    elif config.held_out:
        problems, out = data.split(problems, config.held_out, config.split_seed)
        if repeated:
            say(f"{len(out)} rows are held out for evaluation, {len(problems)} are left: held_out=0 would use them all")
    return problems[: config.limit]


def some_of(found: tuple[list[Row], Counter[str]], config: Train, columns: str) -> list[Row]:
    """The rows, unless there are none; what was dropped is said."""
    kept, dropped = found
    told = dropped_rows(dropped, len(kept) + dropped.total())
    say(told)
    if not kept:
        raise DataError(
            f"nothing to imitate in {config.dataset_id_or_path}: {told}; it takes columns question and {columns}: "
            "type columns.solution=<column>, columns.reasoning_trace=<column> or data=arithmetic"
        )
    return kept


async def observe(config: Train, problems: Sequence[Problem]) -> tuple[dict[str, str], dict[str, float]]:
    """How the student means to approach every problem, and how often it is right alone; asked once, ever."""
    approaches: dict[str, str] = {}
    baselines: dict[str, float] = {}
    how = plan(config)
    model, tokenizer, revision = models.load(config.student_model, config.device, config.dtype)
    engine = TransformersEngine(
        model, tokenizer, name=config.student_model, revision=revision, cache_gb=config.cache_gb
    )
    async with engine, Memo(engine, cache_home() / "samples.sqlite") as frozen:
        with Progress("problems tried", len(problems)) as progress:

            async def watch(problem: Problem) -> None:
                try:
                    [approach], alone = await asyncio.gather(
                        frozen.generate(prompts.probe(problem.public), how.probing, seed=seed(how, problem, "probe")),
                        attempt(problem, None, frozen, how, how.baseline_samples),
                    )
                except PromptTooLong:
                    return  # its lesson is longer still, and is dropped and counted by its length
                approaches[problem.uid], baselines[problem.uid] = approach.text, accuracy(alone)
                progress.advance(approach.tokens + sum(turn.sample.tokens for turn in alone))

            await each(problems, watch, AT_ONCE)
    return approaches, baselines


def tokenised(
    imitated: Sequence[Row | Episode], engine: TransformersEngine, max_length: int, mask_truncated: bool = True
) -> tuple[list[dict[str, list[int]]], str]:
    """Ids as the engine itself would read and sample them, labels on replies only; long ones are left out whole."""
    limit = min(max_length, engine.context)
    examples: list[dict[str, list[int]]] = []
    lengths: list[int] = []
    for row in imitated:
        if isinstance(row, Episode):
            ids, labels = discussed.example(row, engine, mask_truncated)
        else:
            prompt = list(engine.render(row.prompt))
            reply = list(engine.spell(row.completion))
            ids, labels = prompt + reply, [-100] * len(prompt) + reply
        lengths.append(len(ids))
        if lengths[-1] <= limit:
            examples.append({"input_ids": ids, "labels": labels})
    bound = f"max_length={limit}" if limit == max_length else f"the model's context of {limit} tokens"
    if not examples:
        cure = f"type max_length={max(lengths)}" if limit == max_length else "use a model with a longer one"
        raise DataError(f"all {len(imitated)} rows are longer than {bound}: {cure}")
    return examples, dropped_rows(Counter({f"longer than {bound}": len(imitated) - len(examples)}), len(imitated))


class Trainer(Guarded, SFTTrainer):
    """TRL's, guarded."""


def dropped_rows(reasons: Counter[str], total: int) -> str:
    return "; ".join(f"{count} of {total} rows dropped: {why}" for why, count in reasons.items() if count)


def say(line: str) -> None:
    """From the first process only."""
    if line and os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)
