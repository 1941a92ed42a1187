"""Tags: how thought and solution are marked in plain text."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from tutelage.errors import ConfigError, nearest

_STYLES = {"r1": ("<{}>", "</{}>"), "bespoke": ("<|begin_of_{}|>", "<|end_of_{}|>")}


@dataclass(frozen=True)
class Tags:
    """A style and two names. They are ordinary text, not special tokens of any model."""

    style: str = "r1"
    thought: str = "thought"
    solution: str = "solution"

    def __post_init__(self) -> None:
        if self.style not in _STYLES:
            raise ConfigError(f"tags have no style {self.style!r}: {nearest(self.style, _STYLES)}")

    @classmethod
    def from_config(cls, config: str | Mapping[str, str]) -> Self:
        """From YAML: the style alone, or any of the fields."""
        settings = {"style": config} if isinstance(config, str) else dict(config)
        known = [field.name for field in fields(cls)]
        for key in settings:
            if key not in known:
                raise ConfigError(f"tags have no key {key!r}: {nearest(str(key), known)}")
        return cls(**settings)

    def opening(self, name: str) -> str:
        return _STYLES[self.style][0].format(name)

    def closing(self, name: str) -> str:
        return _STYLES[self.style][1].format(name)

    def wrap(self, name: str, text: str) -> str:
        return f"{self.opening(name)}\n\n{text}\n\n{self.closing(name)}"

    def inside(self, name: str, text: str) -> str | None:
        """What the last closed pair of these tags holds: a thought may mention a tag before it is used."""
        head, closed, _ = text.rpartition(self.closing(name))
        _, opened, inner = head.rpartition(self.opening(name))
        return inner.strip() if closed and opened else None
