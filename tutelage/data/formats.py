"""Formats: how one row of data becomes one Problem. A new dataset is one more entry in FORMATS."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from tutelage.data import programs, readers
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
        question=readers.bespoke_user,
        solution=readers.bespoke_solution,
        reasoning_trace=readers.bespoke_thought,
        tags=readers.BESPOKE,
        needs=("conversations",),
        when=readers.bespoke_marked,
    ),
    "atlas_sft": Format(
        question="problem_text",
        answer="ground_truth",
        meta=("student_approach", "teacher_diagnosis", "teacher_teaching"),
        needs_answer=False,  # these rows are imitated, not checked
        needs=("problem_text", "student_approach", "teacher_diagnosis", "teacher_teaching"),
    ),
    "atlas_rl": Format(
        question=readers.said("prompt", "user"),
        answer="ground_truth",
        needs=("prompt", "ground_truth"),
    ),
    "gsm8k": Format(
        question="question",
        solution=readers.gsm8k_solution,
        answer=lambda row: readers.gsm8k_parts(row)[1],
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
        solution=lambda row: text(row.get("Explanation")) or text(row[readers.GPQA_RIGHT]),
        answer=lambda row: readers.gpqa_order(row).index(readers.GPQA_RIGHT),
        choices=readers.gpqa_choices,
        meta=("High-level domain", "Subdomain"),
        needs=("Question", *readers.GPQA),
    ),
    "explained": Format(  # as standard: an explanation is a student's thought
        question="question",
        solution="solution",
        answer="answer",
        reasoning_trace="explanation",
        choices="choices",
        needs=("question", "solution", "explanation"),
        when=lambda row: not row.get("reasoning_trace"),
    ),
    "traces": Format(  # what `tutelage traces` writes, known by columns that nobody else has
        question="question",
        solution="solution",
        answer="answer",
        reasoning_trace="explanation",
        meta=("style",),
        needs_answer=False,  # these rows are imitated, not checked
        needs=("question", "solution", "explanation", "reward", "copy", "teacher_revision"),
    ),
    "messages": Format(
        question=readers.said("messages", "user", "human"),
        solution=readers.tagged("solution"),
        reasoning_trace=readers.tagged("thought"),
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
