"""Every command's keys: typed, documented, and checked before anything is loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tutelage.errors import ConfigError, nearest

PACKAGED = Path(__file__).parent / "configs"
CONFIGS = PACKAGED if PACKAGED.is_dir() else Path(__file__).parent.parent / "configs"
ENGINES = ("local", "vllm")
HINTS = ("llm", "program", "self", "null", "shuffled")
CONTROLS = ("null", "shuffled", "independent", "self", "program")
PICKS = ("reward", "fit", "all")
OUTPUTS = (".parquet", ".jsonl")
_LIST = (list, tuple, int, float, str)  # a single value stands for a list of one
ALIASES = {"degradation_penalty": "degradation_penalty_multiplier"}  # names of earlier papers' users


def key(
    default: Any, about: str, low: float | None = None, high: float | None = None, holds: tuple[type, ...] = ()
) -> Any:
    """A config key with its vetted default, a line of documentation, and the range or the shape that makes sense."""
    return field(default=default, metadata={"about": about, "low": low, "high": high, "holds": holds})


@dataclass
class Serving:
    """Where models speak."""

    engine: str = key("local", "local: models in this process; vllm: on vLLM servers, under these names")
    vllm_host: str = key("127.0.0.1", "where vLLM servers run: hosts or full URLs, with commas between them")
    vllm_port: int = key(8765, "the port of a host's first server", 1, 65535)
    vllm_servers: int = key(1, "servers on each host, on as many ports from vllm_port on", 1)

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"no engine {self.engine!r}; {nearest(self.engine, ENGINES)}")
        if self.vllm_port + self.vllm_servers > 65536:
            raise ConfigError(f"ports end at 65535: type vllm_port={65536 - self.vllm_servers}")


@dataclass
class Roles(Serving):
    """Who teaches and who learns."""

    student: str = key("smollm2-135m", "the student: smollm2-135m, a local folder, a hub id, or a served model's name")
    teacher: str | None = key(None, "the teacher, likewise; null: the student's own model")
    student_url: str | None = key(
        None, "an OpenAI-compatible endpoint that serves the student, e.g. http://host:8000/v1"
    )
    teacher_url: str | None = key(None, "the same for the teacher")
    api_key_env: str = key("OPENAI_API_KEY", "the environment variable that holds the endpoints' key")
    requests: int = key(64, "requests in flight at an endpoint", 1)
    device: str = key("auto", "auto, cpu, cuda or cuda:1 for models in this process")
    dtype: str = key("auto", "auto (float32 on a CPU, bfloat16 on a GPU), float32, bfloat16 or float16")
    cache_gb: float | None = key(
        None, "key/value memory of a model in this process; null: 2 on a CPU, 16 on a GPU", 0.01
    )


@dataclass
class Lesson:
    """How a lesson is held."""

    max_probe_tokens: int = key(50, "longest probe", 1)
    max_completion_length: int = key(256, "longest reply of the teacher, diagnosis included", 1)
    max_tokens: int = key(256, "longest answer of the student", 1)
    temperature: float = key(0.7, "of every sample; 0 is greedy", 0, 10)
    top_p: float = key(1.0, "nucleus sampling", 0.01, 1)
    baseline_samples: int = key(4, "answers the student gives alone (K)", 1)
    taught_samples: int = key(4, "answers the student gives when taught (M)", 1)
    seed: int = key(42, "fixes generated problems, splits and every sample")


@dataclass
class Data:
    """Which problems."""

    dataset_id_or_path: str = key("generated", "a file, a folder, a hub id, or generated")
    dataset_split: str = key("train", "the split of a hub dataset")
    data_files: Any = key(None, "the files of a hub dataset or folder, e.g. data_files=train.jsonl", holds=(str, list))
    format: Any = key(
        "auto", "auto, a format's name, or its columns and tags, e.g. format.question=problem", holds=(str, dict)
    )
    columns: Any = key(None, "other column names, e.g. columns.question=problem", holds=(dict,))
    tasks: Any = key(None, "reasoning-gym tasks for generated problems, e.g. tasks=[chain_sum]", holds=(list,))
    size: int | None = key(None, "for generated problems: how many", 1)
    seed: int = key(42, "fixes generated problems, splits and every sample")
    split_seed: int = key(42, "fixes which questions are held out, whatever the seed of a run")
    held_out: float = key(0.2, "share kept from training; evaluation uses only these. 0: no split", 0, 0.99)
    limit: int | None = key(None, "at most this many problems", 1)


@dataclass
class Evaluate(Roles, Lesson, Data):
    """tutelage evaluate: lessons on held-out problems."""

    defaults: Any = field(default_factory=lambda: ["_self_", {"data": "arithmetic"}])
    lesson: str = key("adaptive", "adaptive: a teacher helps where it must; solo: the student alone (avg@k, pass@k)")
    samples: int = key(4, "solo: answers of the student to each problem (k)", 1)
    in_flight: int = key(256, "lessons held at once", 1)
    results_dir: str = key("results", "where runs are kept")
    resamples: int = key(2000, "bootstrap resamples behind the intervals", 100)
    overwrite: bool = key(False, "forget what an earlier run of the same command left")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.results_dir = str(Path(self.results_dir).expanduser())  # a shell leaves the ~ of results_dir=~/x alone


@dataclass
class Hinting:
    """How a dialogue with feedback is held."""

    max_turns: int = key(5, "attempts in a dialogue, with a hint after each that is wrong; 1: no feedback", 1)
    hints: str = key("llm", "who gives them: llm (the teacher), program (the verifier), self, null or shuffled")
    judge: bool = key(False, "let the teacher's model read every hint for leaks too, after matching")


@dataclass
class Feedback(Roles, Lesson, Hinting, Data):
    """Who takes part in dialogues with feedback, on what."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known("hints", self.hints, HINTS)


@dataclass
class Dialogues(Feedback):
    """tutelage dialogues: dialogues with feedback on training problems, for a student to be trained on."""

    defaults: Any = field(default_factory=lambda: ["_self_", {"data": "arithmetic"}])
    samples: int = key(4, "dialogues on each problem", 1)
    output: str = key("rollouts.jsonl", "where the dialogues go that may be trained on, when all are held")
    in_flight: int = key(256, "dialogues held at once", 1)
    results_dir: str = key("results", "where runs are kept")
    overwrite: bool = key(False, "forget what an earlier run of the same command left")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.results_dir, self.output = (str(Path(path).expanduser()) for path in (self.results_dir, self.output))


@dataclass
class Exam(Feedback, Evaluate):
    """tutelage evaluate lesson=feedback: students that are given hints, on one or more benchmarks, against controls."""

    student: str = key("smollm2-135m", "one or more with commas; base stands for what the adapters among them adapt")
    benchmarks: str | None = key(
        None, "names from configs/data with commas, at most limit problems of each; null: data"
    )
    controls: str = key(
        "null,shuffled,independent", "what to subtract: any of null, shuffled, independent, self, program"
    )
    samples: int = key(1, "dialogues on each problem", 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in words(self.controls):
            known("controls", name, CONTROLS)
        for name in words(self.benchmarks or ""):
            known("benchmarks", name, choices("data"))


def words(text: str) -> list[str]:
    """The names in a list with commas, each once."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def known(key: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ConfigError(f"{key}={name} is unknown; {nearest(name, names)}")


@dataclass
class Teach(Roles, Lesson):
    """tutelage teach: one lesson, to read."""

    answer: str = key("", "the right answer, if you want the replies judged")
    baseline_samples: int = key(1, "answers the student gives alone", 1)
    taught_samples: int = key(1, "answers the student gives when taught", 1)


@dataclass
class Show(Data):
    """tutelage data show: how rows become problems."""

    defaults: Any = field(default_factory=lambda: ["_self_", {"data": "arithmetic"}])
    show: int = key(3, "problems to print", 0)


@dataclass
class Figures:
    """tutelage figures: pictures of a run, and a page with its numbers and lessons to read."""

    lessons: int = key(500, "at most so many lessons on the page", 0)


@dataclass
class Explaining:
    """How explanations are asked for and weighed, by the names that users of RLT know."""

    style: Any = key("r1", "r1 or bespoke tags, or parts of your own, e.g. style.tags.thought=think", holds=(str, dict))
    answer_log_prob_coeff: Any = key(
        (1.0, 0.01), "weights of the solution's log-prob, one for each reduction", holds=_LIST
    )
    kl_penalty_reward_coeff: Any = key((3.0, 0.03), "weights of the explanation's KL; [0,0]: no KL", holds=_LIST)
    reduction_log_prob_fn: Any = key(("mean", "min"), "mean, sum, min, max, median, first_quartile, …", holds=_LIST)
    reduction_kl_fn: Any = key(("mean", "max"), "likewise, for the KL", holds=_LIST)
    clip_log_prob: float | None = key(1e5, "bound of a token's log-prob; null: none", 0)
    clip_kl: float | None = key(1e5, "bound of a token's KL; null: none", 0)
    normalize_log_prob_fn: str | None = key(None, "exp, exp_norm (1 - exp(-x)) or null, token by token")
    normalize_kl_fn: str | None = key(None, "likewise, for the KL")
    use_schulman_kl_estimation: bool = key(False, "estimate the KL as d - 1 + exp(-d) instead of d")
    not_matched_penalty: float = key(-1.0, "added where the explanation's closing tag is missing", None, 0)
    include_teacher_think_entropy: bool = key(True, "false: the student's log-prob alone in place of the KL")
    unbias_teacher_log_probs: bool = key(True, "the teacher's log-probs at its sampling temperature; false: at 1")
    unbias_student_log_probs_temp: float | None = key(0.7, "the student's log-probs at this temperature; null: 1", 0.01)


@dataclass
class Traces(Roles, Explaining, Data):
    """tutelage traces: explanations of every problem with a solution, for students to learn from."""

    defaults: Any = field(default_factory=lambda: ["_self_", {"data": "arithmetic"}])
    student: str = key("", "who scores the explanations; empty: what the teacher was trained from")
    samples: int = key(4, "explanations of each problem", 1)
    pick: str = key("reward", "reward: the best of each problem; fit: the best that fits, or the best; all")
    fits: int = key(16384, "pick=fit: tokens that a student's whole text may take", 1)
    max_tokens: int = key(16384, "longest explanation", 1)
    temperature: float = key(0.7, "of every explanation", 0, 10)
    top_p: float = key(1.0, "nucleus sampling", 0.01, 1)
    drop_malformed: bool = key(True, "leave out explanations without a closing tag or without a word")
    drop_leaked: bool = key(False, "leave out explanations that state the final answer")
    max_restated: float = key(1.0, "leave out explanations that repeat more than this share of the solution", 0, 1)
    output: str = key("traces.parquet", "a .parquet or .jsonl file to write; its data card is <output>.md")
    in_flight: int = key(64, "problems explained at once", 1)
    results_dir: str = key("results", "where runs are kept")
    overwrite: bool = key(False, "forget what an earlier run of the same command left")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.results_dir, self.output = (str(Path(path).expanduser()) for path in (self.results_dir, self.output))
        if self.pick not in PICKS:
            raise ConfigError(f"no pick {self.pick!r}; {nearest(self.pick, PICKS)}")
        if Path(self.output).suffix not in OUTPUTS:
            raise ConfigError(f"output={self.output} must end in {' or '.join(OUTPUTS)}")


T = TypeVar("T")


def compose(schema: type[T], overrides: Sequence[str]) -> T:
    """key=value words over configs/ over the defaults above, as Hydra composes them."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    words: list[str] = []
    texts: dict[str, str | None] = {}  # set past Hydra: its grammar gives backslashes, quotes and ${} a meaning
    for name, value in (_checked(schema, word) for word in overrides):
        kind = keys(schema)[name].type if name in keys(schema) else Any
        file = name in groups(schema) and value in choices(name)  # reward=zero is a key, and the file that sets it
        if kind in (str, str | None) and not file:
            texts[name] = None if value == "null" and kind is not str else value
        else:
            words.append(_word(name, value))
    # A source of the user's own: nothing of the default data may linger behind it.
    if "dataset_id_or_path" in texts and not any(word.startswith("data=") for word in words):
        words.append("~data")
    name = schema.__name__.lower()
    ConfigStore.instance().store(name=name, node=schema)
    try:
        with initialize_config_dir(str(CONFIGS.resolve()), version_base="1.3"):
            composed = hydra_compose(name, words)
        values: Any = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error)) from error
    config = schema(**values | texts)
    _check(config)
    return config


def keys(schema: type) -> dict[str, Any]:
    return {entry.name: entry for entry in fields(schema) if entry.name != "defaults"}


def groups(schema: type) -> list[str]:
    """The config groups a command composes, such as data."""
    defaults: Any = {entry.name: entry.default_factory for entry in fields(schema)}.get("defaults", list)
    return [name for choice in defaults() if isinstance(choice, dict) for name in choice]


def choices(group: str) -> list[str]:
    return sorted(file.stem for file in (CONFIGS / group).glob("*.yaml"))


def _checked(schema: type, word: str) -> tuple[str, str]:
    """The key and the value of a word, checked by name; data=PATH stands for dataset_id_or_path=PATH."""
    name, equals, value = word.partition("=")
    name = ALIASES.get(name, name)
    entries = keys(schema)
    known = [*entries, *groups(schema)]
    top = name.lstrip("+~").split(".")[0]
    if not equals:
        raise ConfigError(f"{word!r} is not key=value; {nearest(word, known)}")
    if top not in known:
        raise ConfigError(f"unknown key {top!r}; {nearest(top, known)}")
    if top != name.split(".")[0]:
        raise ConfigError(f"type {top}={value}: keys are set, not added or removed")
    if "." in name:
        if top not in entries or not entries[top].metadata["holds"]:
            raise ConfigError(f"{name}: {top} has no parts; type {top}={value}")
    elif not value.strip() and (name not in entries or entries[name].default != ""):
        raise ConfigError(f"{name}= is empty: type a value behind it, or leave it out")
    if name == "data" and value not in choices("data"):
        if "/" not in value and not Path(value).exists():
            raise ConfigError(f"no data {value!r}: no such file or folder, and {nearest(value, choices('data'))}")
        return "dataset_id_or_path", value
    if name in groups(schema) and name not in entries and value not in choices(name):
        raise ConfigError(f"no {name} {value!r}; {nearest(value, choices(name))}")
    return name, value


def _word(name: str, value: str) -> str:
    """An override in Hydra's grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    word = f"{name}={value}"
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        raise ConfigError(f"cannot read {word!r}: close its brackets and quotes, and quote it for the shell") from None
    return f"++{word}" if "." in name else word  # inside a mapping, any key may be new


def _explain(error: Exception) -> str:
    text = str(error.__cause__ or error).strip().splitlines()
    full_key = next((line.split(":", 1)[1].strip() for line in text if line.strip().startswith("full_key:")), "")
    return f"{full_key}: {text[0]}" if full_key else text[0]


def _check(config: Any) -> None:
    for name, entry in keys(type(config)).items():
        value = getattr(config, name)
        low, high, holds = (entry.metadata[part] for part in ("low", "high", "holds"))
        if value is None and (entry.default is None or not holds):
            continue
        if holds and not isinstance(value, holds):
            raise ConfigError(f"{name} cannot be {value!r}: it takes {entry.metadata['about']}")
        endless = isinstance(value, float) and not math.isfinite(value)
        if endless or (low is not None and value < low) or (high is not None and value > high):
            span = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(f"{name}={value} cannot work: type a number {span}")
