"""The errors a user can act on: one sentence that says what to type instead."""

import difflib
from collections.abc import Iterable


class TutelageError(Exception):
    """Shown to the user without a traceback; `--debug` shows the traceback too."""


class ConfigError(TutelageError):
    """A key, a value or a combination of them cannot work."""


class DataError(TutelageError):
    """The rows cannot become problems."""


class ModelError(TutelageError):
    """A model name cannot be turned into weights."""


class EngineError(TutelageError):
    """An engine could not answer. Never turned into an answer."""


class PromptTooLong(EngineError):
    """A prompt leaves no room in the model's context."""


class Refused(EngineError):
    """An endpoint will not answer this prompt; it may well answer others."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A ready-made hint: the nearest known names, or all of them when none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
