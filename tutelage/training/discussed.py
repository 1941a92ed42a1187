"""Dialogues to imitate: a student learns its own turns of those that were solved, as it sampled them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from tutelage.engines.base import Sample
from tutelage.engines.tokens import TokenEngine
from tutelage.errors import DataError
from tutelage.lessons import Episode, prompts
from tutelage.lessons.feedback import attempts, conversation, posed, solved, trainable
from tutelage.lessons.sequence import sequence

COMMAND = "tutelage dialogues output=rollouts.jsonl"


def read(path: str, mask_truncated: bool = True) -> tuple[list[Episode], Counter[str]]:
    """The dialogues of a file that can be learned from, and why others cannot."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"no file {path}: hold dialogues first ({COMMAND}), or type dataset_id_or_path=<their file>")
    kept: list[Episode] = []
    dropped: Counter[str] = Counter()
    strange = 0
    with file.open(errors="replace") as lines:
        for line in filter(str.strip, lines):
            try:
                why = flaw(episode := Episode.from_json(line), mask_truncated)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError):
                strange += 1  # one torn line must not end a run
                continue
            if why:
                dropped[why] += 1
            else:
                kept.append(episode)
    if strange and not kept and not dropped:
        raise DataError(f"{path} holds no dialogues but something else: type dataset_id_or_path=<file>, from {COMMAND}")
    dropped["no dialogue in that line"] += strange
    return kept, dropped


def flaw(episode: Episode, mask_truncated: bool) -> str:
    """Why nothing is learned from a dialogue."""
    acts = [turn.act for turn in episode.turns]
    if episode.lesson != "feedback":
        raise ValueError(f"a lesson of kind {episode.lesson}")
    posed(episode)
    if episode.leaked:
        return "it gives the answer away"
    if not trainable(episode):
        return "hints had to be held back in it"
    if not solved(episode):
        return "it was not solved"
    if set(acts[::2]) != {"attempt"} or set(acts[1::2]) - {"hint"}:
        return "its attempts are independent of each other"
    if mask_truncated and all(turn.sample.finish == "length" for turn in attempts(episode)):
        return "every attempt was cut off by its token limit"
    return ""


def example(episode: Episode, engine: TokenEngine, mask_truncated: bool = True) -> tuple[list[int], list[int]]:
    """Ids and labels of one dialogue: the student's turns are learned, each with its end, and nothing else is."""
    whole = sequence(episode if native(episode, engine) else retold(episode, engine), mask_truncated)
    labels = [token if own else -100 for token, own in zip(whole.completion_ids, whole.mask, strict=True)]
    return [*whole.prompt_ids, *whole.completion_ids], [-100] * len(whole.prompt_ids) + labels


def native(episode: Episode, engine: TokenEngine) -> bool:
    """Were these ids read and sampled by this model's tokenizer and template?"""
    said = [turn.sample for turn in attempts(episode)]
    return (
        all(sample.ids for sample in said)
        and said[0].prompt_ids == engine.render(prompts.solve(posed(episode)))
        and all(engine.decode(sample.ids) == sample.text for sample in said)
    )


def retold(episode: Episode, engine: TokenEngine) -> Episode:
    """The same words as this model would have read and written them, turn after turn; its hints are left out."""
    messages, first = conversation(episode), len(prompts.solve(posed(episode)))
    prompt, turns = engine.render(messages[:first]), []
    for turn in attempts(episode):
        text, finish = turn.sample.text, turn.sample.finish
        ids = engine.spell(text)
        ids = ids if finish == "stop" else ids[:-1] or ids
        turns.append(replace(turn, sample=Sample(text, finish, len(ids), ids, prompt_ids=prompt)))
        heard = messages[first + 2 * len(turns) - 1 :]
        prompt = engine.follow(turns[-1].sample, heard[0]["content"]) if heard else ()
    return replace(episode, turns=tuple(turns))
