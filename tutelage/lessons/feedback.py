"""The feedback lesson (RL2F): the student tries, a teacher that knows the answer gives a hint, and it tries again."""

from collections import Counter
from typing import Any

from tutelage.engines.base import Engine, Message, Sample
from tutelage.errors import PromptTooLong, Refused
from tutelage.lessons import prompts, prompts_feedback
from tutelage.lessons.adaptive import Plan
from tutelage.lessons.dialogue import Dialogue, Hint, Teacher
from tutelage.lessons.episode import Episode, Turn
from tutelage.lessons.leak import gives_away
from tutelage.lessons.teachers import attempt
from tutelage.problem import Problem, Public, Verdict
from tutelage.verify import judge
from tutelage.verify.feedback import remark


async def feedback(problem: Problem, student: Engine, teacher: Teacher, plan: Plan, copy: int = 0) -> Episode:
    """One dialogue, up to the first correct answer. One that outgrows a context, or in which an endpoint refuses to go
    on, ends there and says so: to leave it out would leave out wrong first attempts."""
    talk, turns, meta = Dialogue(problem.public), [], _meta(problem, teacher.name, plan, copy)
    leaked = False
    for turn in range(1, plan.max_turns + 1):
        try:
            said = await attempt(problem, talk, student, plan, turn, copy)
        except (PromptTooLong, Refused) as error:
            if turn == 1:
                raise  # nothing was said yet: it is the problem itself
            _end(meta, error)
            break
        talk.said(said)
        verdict = await judge(problem, said.text)
        turns.append(Turn("student", "attempt", said, verdict))
        if verdict.correct or turn == plan.max_turns:
            break
        try:
            hint = await _hint(problem, talk, verdict, teacher, turn, copy)
        except (PromptTooLong, Refused) as error:
            _end(meta, error)
            break
        if verdict.outcome == "incorrect":
            leaked = leaked or (teacher.knows and await gives_away(hint.text, problem, talk.written))
            talk.told(prompts_feedback.again(hint.text, problem.kind), hint.text)
        else:
            talk.told(hint.text)
        turns.append(Turn("teacher", "hint", hint.record))
        meta["flagged"] += hint.flagged
        meta["regenerations"] += hint.regenerations
        meta["rejected"] += hint.rejected
    return _episode(problem, turns, meta, leaked)


async def independent(problem: Problem, student: Engine, plan: Plan, copy: int = 0) -> Episode:
    """Control: as many attempts, each as if it were the first. What is gained here is gained by luck."""
    turns: list[Turn] = []
    meta = _meta(problem, "independent", plan, copy)
    for turn in range(1, plan.max_turns + 1):
        try:
            said = await attempt(problem, Dialogue(problem.public), student, plan, turn, copy)
        except Refused as error:
            if turn == 1:
                raise
            _end(meta, error)
            break
        turns.append(Turn("student", "attempt", said, await judge(problem, said.text)))
        if turns[-1].correct:
            break
    return _episode(problem, turns, meta, leaked=False)


async def _hint(problem: Problem, talk: Dialogue, verdict: Verdict, teacher: Teacher, turn: int, copy: int) -> Hint:
    """Where no answer was found there is nothing to hint at: the student is told about the form instead."""
    if verdict.outcome == "unparsed":
        found = verdict.extracted and (problem.kind == "code" or verdict.why in ("too long", "timed out"))
        return Hint(remark(problem, verdict) if found else prompts_feedback.unread(problem.kind))
    return await teacher.hint(problem, talk, verdict, turn, copy)


def trainable(episode: Episode) -> bool:
    """Nothing is learned from a dialogue that gave the answer away or in which every hint had to be held back."""
    return not episode.leaked and not episode.meta["flagged"]


def solved(episode: Episode) -> bool:
    return any(turn.correct for turn in episode.turns)


def attempts(episode: Episode) -> list[Turn]:
    return [turn for turn in episode.turns if turn.act == "attempt"]


def conversation(episode: Episode) -> list[Message]:
    """A dialogue as messages, for a model that reads other tokens than those sampled; it ends with the last attempt."""
    public = posed(episode)
    talk, verdict = Dialogue(public), None
    for turn in episode.turns:
        if turn.act == "attempt":
            talk.said(turn.sample)
            verdict = turn.verdict
        elif verdict is not None:
            hint = prompts_feedback.hint_in(turn.sample.text)
            talk.told(prompts_feedback.again(hint, public.kind) if verdict.outcome == "incorrect" else hint)
    return talk.messages[: len(prompts.solve(public)) + 2 * len(talk.attempts) - 1]


def critiqued(episode: Episode) -> tuple[list[Message], Sample] | None:
    """The last hint of a dialogue that was then solved, and what a student that is its own critic would be asked there.

    No private field is read: what the teacher knew is in its words, or nowhere. A remark on the form is no hint.
    """
    if not (solved(episode) and trainable(episode)):
        return None
    earlier: list[str] = []
    found = said = None
    for turn in episode.turns:
        if turn.act == "attempt":
            said = turn
        elif said is not None and said.verdict is not None and said.verdict.outcome == "incorrect":
            found = prompts_feedback.critique(posed(episode), said.sample.text, earlier), turn.sample
            earlier.append(prompts_feedback.hint_in(turn.sample.text))
    # Half a hint would teach to stop half-way.
    whole = found is not None and found[1].finish == "stop" and earlier[-1] not in ("", prompts_feedback.GENERIC)
    return found if whole else None


def posed(episode: Episode) -> Public:
    """The problem as the student knows it."""
    return Public(episode.uid, episode.question, episode.meta["kind"], episode.meta["system"])


def _meta(problem: Problem, teacher: str, plan: Plan, copy: int) -> dict[str, Any]:
    return {
        "teacher": teacher,
        "copy": copy,
        "max_turns": plan.max_turns,
        "kind": problem.kind,
        "choices": list(problem.meta.get("choices", ())) if problem.kind == "choice" else None,
        "system": problem.system,
        "flagged": 0,  # hints that had to be replaced
        "regenerations": 0,
        "rejected": Counter(),
        "overflow": False,  # it ended because a context was full
        "refused": "",  # or because an endpoint would not go on: why
    }


def _end(meta: dict[str, Any], error: PromptTooLong | Refused) -> None:
    if isinstance(error, Refused):
        meta["refused"] = str(error)
    else:
        meta["overflow"] = True


def _episode(problem: Problem, turns: list[Turn], meta: dict[str, Any], leaked: bool) -> Episode:
    meta["rejected"] = dict(meta["rejected"])
    return Episode("feedback", problem.uid, problem.question, problem.answer, tuple(turns), leaked=leaked, meta=meta)
