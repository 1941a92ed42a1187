"""The command line: `tutelage COMMAND key=value …`."""

import errno
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from tutelage import __version__
from tutelage.composing import choices, compose, groups, keys
from tutelage.config import Dialogues, Evaluate, Exam, Figures, Show, Teach, Traces
from tutelage.errors import ConfigError, TutelageError, nearest
from tutelage.training.config import Train

# Before any library that would look: no telemetry, and threads that hardly spin, since cores may be shared. A few
# microseconds of it, from one matrix product to the next, make a model on two cores a fifth faster.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

USAGE = """\
usage: tutelage COMMAND [key=value …] [--debug]

  evaluate              lessons on held-out problems, with a table of what they show
  dialogues             dialogues with feedback on training problems, for a student to be trained on
  teach "QUESTION"      one lesson, as a transcript
  train run=RECIPE      SFT and reinforcement: teacher_sft, teacher_rcl, teacher_rlt, student_sft, student_rl2f, …
  traces teacher=…      explanations of every problem, scored by a student: what students are trained on
  figures RUN           pictures of a run's folder, and one page with its numbers and lessons to read
  serve-rollouts …      the vLLM servers of a training alone, for trainers that attach with engine=vllm
  doctor                what this machine has, which recipes fit it, and what to change for the others
  data show [SOURCE]    how rows become problems: a file, a folder, a hub id or a name from configs/data

  tutelage COMMAND --help lists its keys; --version tells the version."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a known failure is one sentence and a non-zero exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        code = dispatch(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept, and the same command goes on from there", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and unread():
            return 141
        if debug:
            traceback.print_exc()
        print(f"tutelage: {explain(error)}", file=sys.stderr)
        return 2


def explain(error: Exception) -> str:
    """One sentence: ours say what to type; anything else is the disk's word or a fault of ours."""
    if isinstance(error, TutelageError):
        return str(error)
    full = "disk is full" in str(error)  # as SQLite says it
    if (isinstance(error, OSError) and error.strerror) or full:
        text = f"{getattr(error, 'strerror', error)}"
        if filename := getattr(error, "filename", None):
            text += f": {filename}"
        if full or getattr(error, "errno", None) == errno.ENOSPC:
            text += "; free some space, or add results_dir=… on another disk: what was finished is kept"
        return text
    return f"{type(error).__name__}: {error} (this is a fault of ours: --debug shows where)"


def unread() -> bool:
    """Whether whoever read our words has read enough, as head does."""
    output = select.poll()
    output.register(1, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False  # it was another pipe that broke
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would complain of the rest when it ends
    return True


def dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    command, rest = words[0], words[1:]
    if command == "data":
        if not rest or rest[0] != "show":
            raise ConfigError("type: tutelage data show PATH_OR_ID")
        command, rest = "data show", rest[1:]
    if command == "doctor":
        from tutelage.doctor import examine

        examine(Console())
        return 0
    if command not in COMMANDS:
        raise ConfigError(f"no command {command!r}; {nearest(command, [*COMMANDS, 'doctor'])}")
    schema, run = COMMANDS[command]
    if command == "evaluate" and "lesson=feedback" in rest:
        schema = Exam
    if "-h" in rest or "--help" in rest:
        describe(command, schema)
        return 0
    run(rest)
    return 0


def evaluate(words: list[str]) -> None:
    if "lesson=feedback" in words:
        return examine(words)
    for name in (word.partition("=")[0] for word in words):
        if name in keys(Exam).keys() - keys(Evaluate).keys():
            raise ConfigError(f"{name}=… is for dialogues with hints: add lesson=feedback")
    config = compose(Evaluate, words)
    from tutelage import report
    from tutelage.evaluate import evaluate as run

    folder, estimates, lessons = run(config)
    Console().print(report.table(estimates, lessons))
    report.say(f"results: {folder} (config.yaml, episodes.jsonl, metrics.json)")


def examine(words: list[str]) -> None:
    config = compose(Exam, words)
    from tutelage import report
    from tutelage.exam import evaluate as run

    folder, cells = run(config)
    Console().print(*report.students(cells, config.max_turns), sep="\n")
    report.say(f"results: {folder} (config.yaml, episodes.jsonl, metrics.json)")


def teach(words: list[str]) -> None:
    if not words or sets(Teach, words[0]):
        raise ConfigError('type: tutelage teach "What is 17 * 6?"')
    config = compose(Teach, words[1:])
    from tutelage import report
    from tutelage.evaluate import teach as run

    report.transcript(Console(), run(config, words[0]))


def dialogues(words: list[str]) -> None:
    config = compose(Dialogues, words)
    from tutelage import report
    from tutelage.dialogues import dialogues as run

    made = run(config)
    report.say(f"{made.output}: {made.kept} of {made.held} dialogues may be trained on, {made.solved} of them solved")
    if made.unused:
        report.say(made.unused)
    report.say(f"results: {made.folder} (config.yaml, episodes.jsonl, metrics.json)")


def figures(words: list[str]) -> None:
    if not words or sets(Figures, words[0]):
        raise ConfigError("type: tutelage figures results/latest_run")
    config = compose(Figures, words[1:])
    from tutelage import report
    from tutelage.report.page import report as run

    page, said = run(Path(words[0]).expanduser(), config.lessons)
    for line in (said, f"figures: {page.parent / 'figures'}; page: {page}"):
        report.say(line)


def show(words: list[str]) -> None:
    if words and (os.path.exists(words[0]) or not sets(Show, words[0])):
        words = [f"data={words[0]}", *words[1:]]
    config = compose(Show, words)
    from tutelage import report
    from tutelage.evaluate import read

    dataset = read(config, tell=False)  # all is in the table
    dataset.problems = dataset.problems[: config.limit]
    report.dataset(Console(), dataset, config)


def sets(schema: type, word: str) -> bool:
    """Whether a word sets a key; a question or a file's name may hold a = too."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.lstrip("+~").split(".")[0] in (*keys(schema), *groups(schema))


def train(words: list[str]) -> None:
    from tutelage import report
    from tutelage.training.run import train as run

    folder = run(words)
    if os.environ.get("RANK", "0") == "0":
        report.say(f"results: {folder}")


def traces(words: list[str]) -> None:
    config = compose(Traces, words)
    from tutelage import report
    from tutelage.traces import traces as run

    folder, card = run(config)
    for line in (card.partition("\n## Origin")[0], f"traces: {config.output} (and .md); results: {folder}"):
        report.say(line)


def serve(words: list[str]) -> None:
    from tutelage.launch import serve as run

    sys.exit(run(words))


FIRST = {"teach": '"QUESTION" ', "figures": "RUN ", "data show": "[SOURCE] "}  # what stands before the keys
SERVERS = "tutelage serve-rollouts: the vLLM servers of a training alone, under the keys of that training."
COMMANDS: dict[str, tuple[type, Callable[[list[str]], None]]] = {
    "evaluate": (Evaluate, evaluate),
    "dialogues": (Dialogues, dialogues),
    "teach": (Teach, teach),
    "train": (Train, train),
    "traces": (Traces, traces),
    "figures": (Figures, figures),
    "serve-rollouts": (Train, serve),
    "data show": (Show, show),
}


def describe(command: str, schema: type) -> None:
    """A command's keys, their defaults and what they are for."""
    title = SERVERS if command == "serve-rollouts" else schema.__doc__
    print(f"{title}\n\nusage: tutelage {command} {FIRST.get(command, '')}key=value …\n")
    for group in groups(schema):
        print(f"  {group}={{{','.join(choices(group))}}}")
    for name, entry in keys(schema).items():
        if name in getattr(schema, "unused", ()):
            continue
        default = "null" if entry.default is None else entry.default
        if isinstance(default, tuple):
            default = f"[{','.join(map(str, default))}]"
        print(f"  {f'{name}={default}':32} {entry.metadata['about']}")


if __name__ == "__main__":
    sys.exit(main())
