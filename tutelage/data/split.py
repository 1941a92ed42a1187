"""Which problems are held out: decided for each by itself, so that new or reordered rows move no other."""

import hashlib
from collections.abc import Iterable

from tutelage.errors import ConfigError
from tutelage.problem import Problem


def split(problems: Iterable[Problem], held_out: float, seed: int) -> tuple[list[Problem], list[Problem]]:
    """(train, held out). A share of 0 or 1 is meant literally; any other leaves no side empty."""
    if not 0 <= held_out <= 1:
        raise ConfigError(f"held_out={held_out} is not a share: type a number from 0 to 1, e.g. held_out=0.1")
    problems = list(problems)
    uids = [problem.uid for problem in problems]
    place = {uid: _place(uid, seed) for uid in uids}
    out = {uid for uid, at in place.items() if at < held_out}
    if 0 < held_out < 1 and len(place) > 1:
        # the question nearest the border crosses over to an empty side
        if not out:
            out = {min(place, key=place.__getitem__)}
        elif len(out) == len(place):
            out.remove(max(place, key=place.__getitem__))
    train = [problem for problem, uid in zip(problems, uids, strict=True) if uid not in out]
    return train, [problem for problem, uid in zip(problems, uids, strict=True) if uid in out]


def _place(uid: str, seed: int) -> float:
    """Where a question lies in [0, 1): the same on every machine and in every run."""
    digest = hashlib.blake2b(f"{seed}:{uid}".encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48
