"""The explain lesson (RLT): the teacher sees the solution and explains; the student says how likely it finds both."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tutelage.engines.base import Engine, Sample, Sampling
from tutelage.engines.tokens import TokenEngine
from tutelage.errors import ConfigError, DataError, PromptTooLong
from tutelage.lessons.adaptive import seed
from tutelage.lessons.episode import Episode, Form, Scores, Turn
from tutelage.lessons.leak import gives_away, restated
from tutelage.lessons.styles import STYLES, Style
from tutelage.problem import Problem

Ids = tuple[int, ...]

TOO_LONG = "the explanation is too long for the student's context"
GARBLED = "the explanation is another text in the student's tokens"
TAIL = 16  # tokens that surely show the padding at the end of a text


@dataclass(frozen=True)
class Outline:
    """How an explanation is asked for and read."""

    style: Style = STYLES["r1"]
    telling: Sampling = Sampling(max_tokens=16384)
    unbias_student_log_probs_temp: float | None = 0.7  # the student's log-probs are of logits over this; None: 1
    unbias_teacher_log_probs: bool = True  # the teacher's are of logits over its sampling temperature; False: 1
    seed: int = 42


@dataclass(frozen=True)
class Reading:
    """What the student reads: a prompt that all explanations of a problem share, and what follows it.

    The two spans count from the end of the prompt.
    """

    prompt: Ids
    completion: Ids
    thought: slice
    solution: slice


async def explain(problem: Problem, teacher: Engine, student: Engine, plan: Outline, copy: int = 0) -> Episode:
    """One lesson. What cannot be scored is said so in the Episode; a problem that cannot be asked at all raises."""
    style, voice, ear = plan.style, speaker(teacher), speaker(student)
    if why := unfit(problem, style):
        raise DataError(f"problem {problem.uid} cannot be explained: {why}")
    shortest = assemble(problem, style, ear, ())
    if (length := len(shortest.prompt) + len(shortest.completion)) > ear.context:
        raise PromptTooLong(
            f"a question and its solution take {length} tokens of the {ear.context}-token context of {ear.name}"
        )
    [said] = await teacher.generate(style.ask(problem), plan.telling, seed=seed(plan, problem, "explain", copy))
    form, thought, explanation = heard(said, style.closing, voice.decode)
    if any(mark in explanation for mark in style.marks()) or not voice.special.isdisjoint(thought):
        form = "tagged"
    scores = Scores(form, restated=restated(explanation, problem.solution))
    scores = await weigh(scores, problem, teacher, student, plan, said, thought)
    return Episode(
        lesson="explain",
        uid=problem.uid,
        question=problem.question,
        answer=problem.answer,
        turns=(Turn("teacher", "explain", said),),
        teaching=explanation or None,
        teaching_tokens=len(thought),
        malformed=form != "closed",
        leaked=await gives_away(explanation, problem),
        scores=scores,
    )


def unfit(problem: Problem, style: Style) -> str:
    """Why no explanation of a problem can be asked for; empty when it can."""
    if not problem.solution.strip():
        return "it has no solution"
    if any(mark in problem.solution for mark in style.marks()):
        return "its solution holds tags of its own"
    return ""


def heard(said: Sample, closing: str, decode: Callable[[Sequence[int]], str]) -> tuple[Form, Ids, str]:
    """How an explanation ended, its sampled ids and its text.

    It ends where the first closing tag begins; without a tag all that was sampled is explanation, save the end token.
    A token that holds both white space and the tag's beginning belongs to the tag.
    """
    text, tag, after = said.text.partition(closing)
    if not text.strip():
        return "empty", (), ""
    if tag:
        count = cut(said.ids, tag + after, decode)
        return ("trailing" if after.strip() else "closed"), said.ids[:count], text.strip()
    if said.finish == "length":
        return "truncated", said.ids, text.strip()
    return "missing", said.ids[:-1], text.strip()


def cut(ids: Ids, tail: str, decode: Callable[[Sequence[int]], str]) -> int:
    """How many ids lie wholly before the text's tail: few, short decodings, from the end, where a tag mostly is."""

    def holds(start: int) -> bool:
        return decode(ids[start:]).endswith(tail)

    above, step = len(ids), 1
    below = max(0, above - step)
    while below and not holds(below):
        above, step = below, 2 * step
        below = max(0, len(ids) - step)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if holds(middle) else (below, middle)
    return below


def assemble(problem: Problem, style: Style, engine: TokenEngine, thought: Ids) -> Reading:
    """The student's text from ids: nothing sampled is encoded again, so that spans are sums of lengths.

    Padding that a chat template took away or a teacher left out is added. What would follow the solution says
    nothing about it and is left off.
    """
    prompt = engine.render(style.think(problem.public))
    prompt += encode(engine, lacking(prompt, style.padding, engine))
    bridge = encode(engine, lacking(thought, style.padding, engine) + style.bridge())
    solution = encode(engine, problem.solution.strip())
    first = len(thought) + len(bridge)
    return Reading(prompt, thought + bridge + solution, slice(0, len(thought)), slice(first, first + len(solution)))


def encode(engine: TokenEngine, text: str) -> Ids:
    return tuple(engine.tokenizer.encode(text, add_special_tokens=False)) if text else ()


def lacking(ids: Ids, padding: str, engine: TokenEngine) -> str:
    """What is missing of the padding at the end of a text."""
    end = engine.decode(ids[-TAIL:]) if ids else ""
    there = next(size for size in range(len(padding), -1, -1) if end.endswith(padding[:size]))
    return padding[there:]


async def weigh(
    scores: Scores, problem: Problem, teacher: Engine, student: Engine, plan: Outline, said: Sample, thought: Ids
) -> Scores:
    """Both models' log-probs of the explanation, and the student's of the solution behind it."""
    ear, same = speaker(student), comparable(teacher, student)
    read = thought if same else encode(ear, speaker(teacher).decode(thought))
    if not same and ear.decode(read) != speaker(teacher).decode(thought):
        return await unread(replace(scores, teacher=None, unscored=GARBLED), problem, student, plan)
    reading = assemble(problem, plan.style, ear, read)
    closing = encode(ear, plan.style.padding + plan.style.tags.closing(plan.style.tags.solution))
    length = len(reading.prompt) + len(reading.completion) + len(closing) + 1
    try:
        found, own = await asyncio.gather(
            student.score(reading.prompt, reading.completion, plan.unbias_student_log_probs_temp or 1.0),
            spoken(teacher, plan, said, len(thought)),
        )
    except PromptTooLong:
        return await unread(replace(scores, length=length, unscored=TOO_LONG), problem, student, plan)
    return replace(
        scores,
        length=length,
        solution=rounded(found[reading.solution]),
        thought=rounded(found[reading.thought]),
        teacher=rounded(own) if same else None,
    )


async def unread(scores: Scores, problem: Problem, student: Engine, plan: Outline) -> Scores:
    """What cannot be shown to the student does for the solution what an empty explanation does."""
    bare = assemble(problem, plan.style, speaker(student), ())
    found = await student.score(bare.prompt, bare.completion, plan.unbias_student_log_probs_temp or 1.0)
    return replace(scores, solution=rounded(found[bare.solution]))


async def spoken(teacher: Engine, plan: Outline, said: Sample, count: int) -> Sequence[float]:
    """The teacher's log-probs of what it said: those it was sampled with, unless others are wanted."""
    temperature = plan.telling.temperature or 1.0
    wanted = temperature if plan.unbias_teacher_log_probs else 1.0
    if said.logprobs and wanted == temperature:
        return said.logprobs[:count]
    return await teacher.score(said.prompt_ids, said.ids[:count], wanted)


def rounded(logprobs: Sequence[float]) -> tuple[float, ...]:
    """To what float32 can tell apart: a record of many thousand tokens is half as long."""
    return tuple(round(value, 6) for value in logprobs)


def comparable(teacher: Engine, student: Engine) -> bool:
    """Whether an id is the same text to both."""
    return _same(speaker(teacher).tokenizer, speaker(student).tokenizer)


@lru_cache(maxsize=8)
def _same(one: Any, other: Any) -> bool:
    return one is other or one.get_vocab() == other.get_vocab()


def speaker(engine: Any) -> TokenEngine:
    """The engine that knows tokens, behind those that only remember or gather."""
    while not isinstance(engine, TokenEngine):
        if (inner := getattr(engine, "engine", None)) is None:
            raise ConfigError(
                f"{engine.name} speaks text and explanations are scored by token: use engine=local or engine=vllm, "
                "without teacher_url and student_url"
            )
        engine = inner
    return engine
