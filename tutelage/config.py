"""Every command's keys: typed and documented."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tutelage.composing import choices, key, keys, known, words, written
from tutelage.errors import ConfigError

ENGINES = ("local", "vllm")
HINTS = ("llm", "program", "self", "null", "shuffled")
CONTROLS = ("null", "shuffled", "independent", "self", "program")
PICKS = ("reward", "fit", "all")
SPLIT = ("seed", "split_seed", "held_out", "limit")  # which problems of whatever data
_LIST = (list, tuple, int, float, str)  # a single value stands for a list of one


@dataclass
class Serving:
    """Where models speak."""

    engine: str = key("local", "local: models in this process; vllm: on vLLM servers, under these names")
    vllm_host: str = key("127.0.0.1", "where vLLM servers run: hosts or full URLs, with commas between them")
    vllm_port: int = key(8765, "the port of a host's first server", 1, 65535)
    vllm_servers: int = key(1, "servers on each host, on as many ports from vllm_port on", 1)

    def __post_init__(self) -> None:
        known("engine", self.engine, ENGINES)
        if self.vllm_port + self.vllm_servers > 65536:
            raise ConfigError(f"ports end at 65535: type vllm_port={65536 - self.vllm_servers}")


def uncut(engine: str, top_p: float) -> None:
    """Refuse what leaves a lesson without the log-probs that it is weighed by."""
    if engine == "vllm" and top_p < 1:
        raise ConfigError("a server has no log-probs of a distribution that top_p cuts: type top_p=1")


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
        None, "key/value memory of a model in this process; null: 4 on a CPU, 16 on a GPU", 0.01
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
    seed: int = key(42, "fixes generated problems, splits and every sample", 0, 2**32 - 1)


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
    seed: int = key(42, "fixes generated problems, splits and every sample", 0, 2**32 - 1)
    split_seed: int = key(42, "fixes which questions are held out, whatever the seed of a run")
    held_out: float = key(0.2, "share kept from training; evaluation uses only these. 0: no split", 0, 0.99)
    limit: int | None = key(None, "at most this many problems", 1)


@dataclass
class Evaluate(Roles, Lesson, Data):
    """tutelage evaluate: lessons on held-out problems."""

    defaults: Any = field(default_factory=lambda: ["_self_", {"data": "arithmetic"}])
    lesson: str = key(
        "adaptive",
        "adaptive: help where needed; explain: the teacher sees the solution; solo: the student alone; feedback: "
        "dialogues with hints (for their keys type evaluate lesson=feedback --help)",
    )
    samples: int = key(4, "solo: answers of the student to each problem (k)", 1)
    style: Any = key(
        "auto",
        "solo, explain: tags and prompts: r1, bespoke, parts of r1, plain (solo), or auto: as the model was trained",
        holds=(str, dict),
    )
    in_flight: int = key(256, "lessons held at once", 1)
    results_dir: str = key("results", "where runs are kept")
    resamples: int = key(2000, "bootstrap resamples behind the intervals", 100)
    overwrite: bool = key(False, "forget what an earlier run of the same command left")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.results_dir = str(Path(self.results_dir).expanduser())  # a shell leaves the ~ of results_dir=~/x alone
        if self.lesson == "explain":
            uncut(self.engine, self.top_p)


@dataclass
class Hinting:
    """How a dialogue with feedback is held."""

    max_turns: int = key(5, "attempts in a dialogue, with a hint after each that is wrong; 1: no feedback", 1)
    hints: str = key("llm", "who gives them: llm (the teacher), program (the verifier), self, null or shuffled")
    judge: bool = key(False, "let the teacher's model read every hint for leaks too, after matching")


@dataclass
class Feedback(Roles, Lesson, Hinting, Data):
    """Who takes part in dialogues with feedback, on what."""

    unused: ClassVar[tuple[str, ...]] = ("max_probe_tokens", "baseline_samples", "taught_samples")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.unused:
            if getattr(self, name) != keys(type(self))[name].default:
                raise ConfigError(f"dialogues have no use for {name}: leave {name}=… out")
        known("hints", self.hints, HINTS)


@dataclass
class Dialogues(Feedback):
    """tutelage dialogues: dialogues with feedback on training problems, for a student to be trained on."""

    defaults: Any = field(default_factory=lambda: ["_self_", {"data": "arithmetic"}])
    samples: int = key(4, "dialogues on each problem", 1)
    output: str = key("rollouts.jsonl", "a .jsonl file for the dialogues that may be trained on, when all are held")
    in_flight: int = key(256, "dialogues held at once", 1)
    results_dir: str = key("results", "where runs are kept")
    overwrite: bool = key(False, "forget what an earlier run of the same command left")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.results_dir = str(Path(self.results_dir).expanduser())
        self.output = written(self.output, self.dataset_id_or_path, ".jsonl")


@dataclass
class Exam(Feedback, Evaluate):
    """tutelage evaluate lesson=feedback: students that are given hints, on one or more benchmarks, against controls."""

    unused = (*Feedback.unused, "style")
    lesson: str = key("feedback", "dialogues with hints")
    student: str = key("smollm2-135m", "one or more with commas; base stands for what the adapters among them adapt")
    benchmarks: str | None = key(
        None,
        "names from configs/data with commas, at most limit problems of each; null: data",
        instead=("data", *(name for name in keys(Data) if name not in SPLIT)),
    )
    held_out: float | None = key(  # type: ignore[assignment]
        None, "share kept from training; only these are used. null: what the data's own file says, or 0.2", 0, 0.99
    )
    controls: str = key(
        "null,shuffled,independent", "what to subtract: any of null, shuffled, independent, self, program"
    )
    samples: int = key(1, "dialogues on each problem", 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        known("lesson", self.lesson, ["feedback"])
        if not words(self.student):
            raise ConfigError("student= names nobody: type student=smollm2-135m")
        if self.benchmarks is not None and not words(self.benchmarks):
            raise ConfigError("benchmarks= names none: type benchmarks=puzzle,maze, or leave it out")
        for name in words(self.controls):
            known("controls", name, CONTROLS)
        for name in words(self.benchmarks or ""):
            known("benchmarks", name, choices("data"))
        if self.held_out is None and not self.benchmarks:
            self.held_out = Data.held_out


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
    style: Any = key("auto", "auto: as the teacher was trained, else r1; or as for training", holds=(str, dict))
    student: str = key("", "who scores the explanations; empty: the student that the teacher was trained with")
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
        self.results_dir = str(Path(self.results_dir).expanduser())
        self.output = written(self.output, self.dataset_id_or_path, ".parquet", ".jsonl")
        known("pick", self.pick, PICKS)
        uncut(self.engine, self.top_p)
