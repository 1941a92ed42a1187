"""Formats: how one row of data becomes one Problem. A new dataset is one more entry in FORMATS."""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from tutelage.data import programs
from tutelage.data.values import FINAL_LINE, Unusable, derived, lettered, pick, plain, text
from tutelage.errors import ConfigError, nearest
from tutelage.problem import KINDS, Problem
from tutelage.tags import Tags

Row = Mapping[str, Any]
Column = str | Callable[[Row], Any]

COLUMNS = ("question", "solution", "answer", "reasoning_trace", "choices")


@dataclass(frozen=True)
class Format:
    """Where each part of a Problem is: a column's name, a path ("turns.0.text"), or a function of the row."""

    question: Column
    solution: Column = ""
    answer: Column = ""
    reasoning_trace: Column = ""
    choices: Column = ""
    meta: Sequence[str] | Callable[[Row], Mapping[str, Any]] = ()
    kind: str = "math"
    tags: Tags = field(default_factory=Tags)
    system: str = ""  # the student's system prompt; "" is the project's own
    needs_answer: bool = True  # False: a row without a final answer is kept, for lessons that check none
    needs: tuple[str, ...] = ()  # these columns must be there; auto-detection asks for them too
    when: Callable[[Row], bool] | None = None  # auto-detection asks this too, if columns are not enough

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A user's own format from YAML; every column it names must be there."""
        known = {item.name for item in fields(cls)} - {"needs", "when"}
        for key in config:
            if key not in known:
                raise ConfigError(f"format has no key {key!r}: {nearest(str(key), known)}")
        if not config.get("question"):
            raise ConfigError("format needs a question column, e.g. format.question=problem")
        settings = dict(config)
        if (kind := settings.get("kind", "math")) not in KINDS:
            raise ConfigError(f"format.kind cannot be {kind!r}: {nearest(str(kind), KINDS)}")
        if "tags" in settings:
            settings["tags"] = Tags.from_config(settings["tags"])
        named = {name: settings.pop(name) for name in COLUMNS if name in settings}
        return cls(question="", **settings).reading(named)

    def reading(self, columns: Mapping[str, str | None]) -> Self:
        """This format with parts read from other columns, which must then be there; null means no change."""
        for name, column in columns.items():
            if name not in COLUMNS:
                raise ConfigError(f"columns has no key {name!r}: {nearest(str(name), COLUMNS)}")
            if not isinstance(column, str | None):
                raise ConfigError(f"columns.{name} must be the name of a column, not {column!r}")
        named = {name: column for name, column in columns.items() if column}
        replaced = {getattr(self, name) for name in named}
        needs = [need for need in self.needs if need not in replaced]
        changes: dict[str, Any] = {**named, "needs": tuple(dict.fromkeys([*needs, *named.values()]))}
        return replace(self, **changes)

    def problem(self, row: Row) -> Problem:
        """The row as a Problem, or Unusable with the reason."""
        question, solution = text(self._value(row, "question")), text(self._value(row, "solution"))
        if not question:
            raise Unusable("the question is empty")
        raw, options = self._value(row, "answer"), self._value(row, "choices")
        worked = text(raw)
        solution = solution or worked
        answer = self._final(worked, solution)
        meta = self._meta(row)
        if options:
            index = raw if isinstance(raw, int) else answer
            bare = solution == worked == answer
            question, answer, meta["choices"] = lettered(question, options, index)
            if bare:  # the row's own index or label may be another letter here
                solution = f"{answer}. {meta['choices'][ord(answer) - ord('A')]}"
        if not answer and self.needs_answer:
            raise Unusable("no answer column and no final answer in the solution")
        return Problem(
            question=question,
            solution=solution,
            answer=answer,
            reasoning_trace=text(self._value(row, "reasoning_trace")),
            kind="choice" if options else self.kind,
            system=self.system,
            meta=meta,
        )

    def _final(self, worked: str, solution: str) -> str:
        """The answer that is checked: an answer column may hold a whole worked solution, or be empty."""
        if self.kind == "code":
            return worked or solution
        answer = (derived(worked) if "\n" in worked or "\\boxed" in worked else "") or worked
        return answer or derived(self.tags.inside(self.tags.solution, solution) or solution)

    def _meta(self, row: Row) -> dict[str, Any]:
        if callable(self.meta):
            return plain(self._called("tests", self.meta, row))
        return {name: plain(row[name]) for name in self.meta if row.get(name) is not None}

    def _value(self, row: Row, name: str) -> Any:
        column: Column = getattr(self, name)
        if isinstance(column, str):
            return pick(row, column) if column else None
        return self._called(name, column, row)

    def _called(self, name: str, read: Callable[[Row], Any], row: Row) -> Any:
        try:
            return read(row)
        except (LookupError, TypeError, ValueError, AttributeError, SyntaxError) as error:
            raise Unusable(f"cannot read the {name}: {error!r}") from error


def detect(rows: Sequence[Row]) -> str | None:
    """The most specific format whose needs these first rows meet."""
    columns = {column for row in rows for column in row}
    fitting = {
        name: (len(format.needs), format.when is not None)
        for name, format in FORMATS.items()
        if columns.issuperset(format.needs) and (format.when is None or any(map(format.when, rows)))
    }
    return max(fitting, key=fitting.__getitem__, default=None)


def absent(wanted: Iterable[Column], columns: Iterable[str]) -> list[str]:
    """Wanted columns that are not there; of a path the first part counts, and a function finds its own."""
    there = set(columns)
    return [c for c in wanted if isinstance(c, str) and c not in there and c.split(".")[0] not in there]


# ---- readers for rows whose parts are not plain columns


def _said(column: str, *roles: str) -> Callable[[Row], str]:
    """The first message of a role, in either spelling of chat rows; plain text is taken as it is."""

    def read(row: Row) -> str:
        messages = row[column]
        if isinstance(messages, str):
            return messages
        for message in messages:
            if message.get("from", message.get("role")) in roles:
                return message.get("value", message.get("content"))
        raise Unusable(f"no message from {roles[0]} in {column}")

    return read


_BESPOKE = Tags("bespoke")
_bespoke_user = _said("conversations", "user", "human")
_bespoke_reply = _said("conversations", "assistant", "gpt")


def _bespoke_solution(row: Row) -> str:
    solution = _BESPOKE.inside(_BESPOKE.solution, _bespoke_reply(row))
    if not solution:
        raise Unusable(f"no {_BESPOKE.opening(_BESPOKE.solution)} in the assistant's message")
    return solution


def _bespoke_thought(row: Row) -> str:
    return _BESPOKE.inside(_BESPOKE.thought, _bespoke_reply(row)) or ""


def _bespoke_marked(row: Row) -> bool:
    return _BESPOKE.opening(_BESPOKE.solution) in str(row.get("conversations"))


def _gsm8k_parts(row: Row) -> tuple[str, str]:
    worked = text(row["answer"])
    final = FINAL_LINE.search(worked)
    if not final:
        raise Unusable("the answer does not end with a line #### and the final answer")
    return re.sub(r"<<[^<>]*>>", "", worked[: final.start()]).strip(), final[1].replace(",", "")


def _gsm8k_solution(row: Row) -> str:
    # "####" means something in this dataset only; a student is taught, and checked by, a sentence
    steps, final = _gsm8k_parts(row)
    return f"{steps}\nThe answer is {final}.".lstrip()


_GPQA_RIGHT = "Correct Answer"
_GPQA = (_GPQA_RIGHT, *(f"Incorrect Answer {number}" for number in (1, 2, 3)))


def _gpqa_order(row: Row) -> list[str]:
    """The columns of the answers, in an order of each question's own: the right one must not always be A."""
    return random.Random(text(row["Question"])).sample(_GPQA, len(_GPQA))


def _gpqa_choices(row: Row) -> list[str]:
    choices = [text(row[column]) for column in _gpqa_order(row)]
    if not all(choices):
        raise Unusable("one of the four answers is empty")
    return choices


def _trace_reply(name: str) -> Callable[[Row], str]:
    """A tagged part of the assistant's message, in either spelling of the tags."""

    def read(row: Row) -> str:
        reply = _said("messages", "assistant", "gpt")(row)
        tags = next((tags for tags in (Tags(), _BESPOKE) if tags.opening(tags.solution) in reply), None)
        found = tags and tags.inside(getattr(tags, name), reply)
        if not found:
            raise Unusable(f"no {name} between tags in the assistant's message")
        return found

    return read


FORMATS: dict[str, Format] = {
    "standard": Format(
        question="question",
        solution="solution",
        answer="answer",
        reasoning_trace="reasoning_trace",
        choices="choices",
        needs=("question",),
    ),
    "bespoke": Format(
        question=_bespoke_user,
        solution=_bespoke_solution,
        reasoning_trace=_bespoke_thought,
        tags=_BESPOKE,
        needs=("conversations",),
        when=_bespoke_marked,
    ),
    "atlas_sft": Format(
        question="problem_text",
        answer="ground_truth",
        meta=("student_approach", "teacher_diagnosis", "teacher_teaching"),
        needs_answer=False,  # these rows are imitated, not checked
        needs=("problem_text", "student_approach", "teacher_diagnosis", "teacher_teaching"),
    ),
    "atlas_rl": Format(
        question=_said("prompt", "user"),
        answer="ground_truth",
        needs=("prompt", "ground_truth"),
    ),
    "gsm8k": Format(
        question="question",
        solution=_gsm8k_solution,
        answer=lambda row: _gsm8k_parts(row)[1],
        kind="number",
        needs=("question", "answer"),
        when=lambda row: bool(FINAL_LINE.search(str(row.get("answer")).strip())),
    ),
    "math": Format(
        question="problem",
        solution="solution",
        answer="answer",
        meta=("level", "type", "subject"),
        needs=("problem", "solution"),
    ),
    "aime": Format(  # a problem and its answer, in many test sets without a solution
        question="problem",
        solution="solution",
        answer="answer",
        meta=("id", "year"),
        needs=("problem", "answer"),
    ),
    "gpqa": Format(
        question="Question",
        solution=lambda row: text(row.get("Explanation")) or text(row[_GPQA_RIGHT]),
        answer=lambda row: _gpqa_order(row).index(_GPQA_RIGHT),
        choices=_gpqa_choices,
        meta=("High-level domain", "Subdomain"),
        needs=("Question", *_GPQA),
    ),
    "traces": Format(  # what `tutelage traces` writes: an explanation is a student's thought
        question="question",
        solution="solution",
        answer="answer",
        reasoning_trace="explanation",
        needs_answer=False,  # these rows are imitated, not checked
        needs=("question", "solution", "explanation"),
    ),
    "messages": Format(
        question=_said("messages", "user", "human"),
        solution=_trace_reply("solution"),
        reasoning_trace=_trace_reply("thought"),
        needs_answer=False,
        needs=("messages",),
    ),
    "omni_math": Format(
        question="problem",
        solution="solution",
        answer="answer",
        meta=("domain", "difficulty", "source"),
        needs=("problem", "solution", "answer", "difficulty"),
    ),
    "humaneval": Format(
        question="prompt",
        solution=programs.humaneval_answer,
        answer=programs.humaneval_answer,
        meta=programs.humaneval,
        kind="code",
        needs=("prompt", "canonical_solution", "test", "entry_point"),
    ),
    "mbpp": Format(
        question=programs.mbpp_question,
        solution="code",
        answer="code",
        meta=programs.mbpp,
        kind="code",
        needs=("code", "test_list"),
    ),
}
