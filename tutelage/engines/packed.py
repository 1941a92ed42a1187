"""Numbers of a sample in a fraction of a tuple's memory: thousands of dialogues are held at once."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any


class Packed(Sequence[Any]):
    """What a tuple of the same numbers would be, for all who read it. It may go on from other sequences, which others
    hold anyway: they are not copied."""

    __slots__ = ("_after", "_own")

    def __init__(self, kind: str, own: Iterable[float], *after: Sequence[Any]):
        self._own, self._after = array(kind, own), after

    def __len__(self) -> int:
        return sum(map(len, self._after)) + len(self._own)

    def __iter__(self) -> Iterator[Any]:
        return chain(*self._after, self._own)

    def __getitem__(self, place: Any) -> Any:
        return tuple(self)[place]

    def __add__(self, other: Iterable[Any]) -> tuple[Any, ...]:
        return (*self, *other)

    def __radd__(self, other: Iterable[Any]) -> tuple[Any, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | Packed) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
