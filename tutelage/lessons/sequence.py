"""A dialogue as the one token sequence that its student is trained on."""

from typing import NamedTuple

from tutelage.lessons.episode import Episode


class Sequence(NamedTuple):
    """Ids as they were sampled and read; per completion token: is it the student's, its log-prob, and its turn."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]  # 0 where masked out; empty where the engine reported none
    turn: tuple[int, ...]  # counted from 0; what was said to the student belongs to the attempt that follows


def sequence(episode: Episode, mask_truncated: bool = False) -> Sequence:
    """The first attempt's prompt, and all that came after it up to the end of the last attempt.

    `mask_truncated` leaves out attempts that their token limit cut off: their end is not the student's doing.
    """
    said = [turn.sample for turn in episode.turns if turn.act == "attempt"]
    if not said or not all(sample.ids for sample in said):
        raise ValueError(f"dialogue {episode.uid} has no token ids: its student was an endpoint that speaks text")
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    turns: list[int] = []
    read = said[0].prompt_ids
    for number, sample in enumerate(said):
        if sample.prompt_ids[: len(read)] != read:
            raise ValueError(f"attempt {number + 1} of {episode.uid} does not go on from the one before it")
        heard = sample.prompt_ids[len(read) :]
        kept = not (mask_truncated and sample.finish == "length")
        ids += heard + sample.ids
        mask += [0] * len(heard) + [int(kept)] * len(sample.ids)
        logprobs += [0.0] * len(heard) + (list(sample.logprobs) if kept else [0.0] * len(sample.ids))
        turns += [number] * (len(heard) + len(sample.ids))
        read = sample.prompt_ids + sample.ids
    known = all(sample.logprobs for sample in said)
    return Sequence(tuple(said[0].prompt_ids), tuple(ids), tuple(mask), tuple(logprobs) if known else (), tuple(turns))
