"""Styles: how a teacher is asked to explain, and how a student's thought and solution are marked. One entry each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tutelage.engines.base import Message
from tutelage.errors import ConfigError, nearest
from tutelage.lessons.prompts import assistant, explain, study, system, user
from tutelage.problem import Problem, Public
from tutelage.tags import Tags


@dataclass(frozen=True)
class Style:
    """Two system prompts and the marks around what is said. Marks are ordinary text, not special tokens."""

    teacher: str
    student: str
    tags: Tags = Tags()
    explanation: str = "explanation"  # the teacher's tag, in the same spelling
    prefix: str = ""  # what a student says before its thought
    delimiter: str = "\n\n"  # between two tagged parts
    padding: str = "\n\n"  # inside tags, before and after the text

    @classmethod
    def from_config(cls, config: "str | Style | Mapping[str, Any]") -> "Style":
        """A name, or any of the fields over those of r1."""
        if isinstance(config, Style):
            return config
        if isinstance(config, str):
            if config not in STYLES:
                raise ConfigError(f"no style {config!r}; {nearest(config, STYLES)}")
            return STYLES[config]
        known = [field.name for field in fields(cls)]
        for name in config:
            if name not in known:
                raise ConfigError(f"style has no key {name!r}: {nearest(str(name), known)}")
        settings: dict[str, Any] = dict(config)
        tags = Tags.from_config(settings.pop("tags", "r1"))
        for name, value in settings.items():
            if not isinstance(value, str):
                raise ConfigError(f"style.{name} must be text, not {value!r}")
        return replace(styled(tags, settings.get("explanation", "explanation")), **settings)

    @property
    def closing(self) -> str:
        """Where an explanation ends."""
        return self.tags.closing(self.explanation)

    def wrap(self, name: str, text: str) -> str:
        return f"{self.tags.opening(name)}{self.padding}{text}{self.padding}{self.tags.closing(name)}"

    def ask(self, problem: Problem) -> list[Message]:
        """The teacher's prompt: it sees the solution as if it had written it, and goes on with the explanation."""
        shown = self.wrap(self.tags.solution, problem.solution.strip())
        opened = f"{self.tags.opening(self.explanation)}{self.padding}"
        return [system(self.teacher), user(problem.question), assistant(f"{shown}{self.delimiter}{opened}")]

    def think(self, problem: Public) -> list[Message]:
        """The student's prompt up to where its thought begins."""
        opened = f"{self.prefix}{self.tags.opening(self.tags.thought)}{self.padding}"
        return [*self.pose(problem), assistant(opened)]

    def pose(self, problem: Public) -> list[Message]:
        """The student's prompt for an answer of its own."""
        return [system(problem.system or self.student), user(problem.question)]

    def bridge(self) -> str:
        """What stands between a thought, padding included, and the solution."""
        tags = self.tags
        return f"{tags.closing(tags.thought)}{self.delimiter}{tags.opening(tags.solution)}{self.padding}"

    def reply(self, explanation: str, solution: str) -> str:
        """All a student is to say: the explanation as its own thought, then the solution."""
        thought = self.wrap(self.tags.thought, explanation.strip())
        return f"{self.prefix}{thought}{self.delimiter}{self.wrap(self.tags.solution, solution.strip())}"

    def marks(self) -> tuple[str, ...]:
        """Tags that no solution and no explanation may hold."""
        names = (self.tags.thought, self.tags.solution, self.explanation)
        return tuple(mark for name in names for mark in (self.tags.opening(name), self.tags.closing(name)))


def spelled(config: str | Mapping[str, Any]) -> str:
    """A style as a column holds it: its name, or its parts as JSON."""
    return config if isinstance(config, str) else json.dumps(config, sort_keys=True)


def read(text: str) -> Any:
    """What was spelled so."""
    return json.loads(text) if text.startswith("{") else text


def styled(tags: Tags, explanation: str = "explanation") -> Style:
    """Our own prompts, for any spelling of the tags."""
    return Style(teacher=explain(tags, explanation), student=study(tags), tags=tags, explanation=explanation)


# A format of your own is one more entry: STYLES["mine"] = Style(…), or style.padding=… over r1 on the command line.
STYLES: dict[str, Style] = {"r1": styled(Tags("r1")), "bespoke": styled(Tags("bespoke"))}
