"""The keys of `tutelage train`: flat, by the names users of these methods and of TRL know."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tutelage.composing import key, known
from tutelage.config import HINTS, Data, Explaining, Hinting, Lesson, Serving, uncut
from tutelage.errors import ConfigError, nearest
from tutelage.rewards.adaptive import REWARDS
from tutelage.rewards.feedback import CREDITS

METHODS = ("sft", "rcl", "rlt", "rl2f")
REPORTERS = ("tensorboard", "wandb")
LESSONS = ("adaptive", "explain", "solo", "feedback")
OF = {"rcl": "adaptive", "rlt": "explain", "rl2f": "feedback"}  # the lesson of each way of reinforcement
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "vespo")  # of TRL's, those by token
# of Transformers', those that need no more settings
SCHEDULES = (
    *("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts"),
    *("polynomial", "inverse_sqrt"),
)
SYNCS = ("disk", "nccl")
SCALES = ("group", "batch", "none")


@dataclass
class Train(Serving, Lesson, Explaining, Hinting, Data):
    """tutelage train: SFT warm-up (run=teacher_sft), then reinforcement by the student's gain (run=teacher_rcl)."""

    defaults: Any = field(
        default_factory=lambda: [
            "_self_",
            {"data": "arithmetic"},
            {"trainer": "rcl"},
            {"reward": "paired"},
            {"engine": "local"},
            {"model": "smollm2"},
            {"run": "quickstart"},
        ]
    )
    method: str = key("rcl", "sft, or reinforcement: rcl and rlt of a teacher, rl2f of a student")
    lesson: str = key(
        "adaptive", "sft: what is imitated: adaptive and explain make teachers, solo and feedback students"
    )

    model_name_or_path: str | None = key(
        None, "what is trained starts from here; null: a teacher's warm-up where there is one, else the student"
    )
    student_model: str = key("smollm2-135m", "the student; frozen where a teacher is trained")
    teacher_model: str | None = key(None, "rl2f: who gives hints, frozen; null: the student's own model")
    lora_r: int = key(16, "rank of the adapter that is trained; 0 trains all weights", 0)
    lora_alpha: int = key(32, "scale of the adapter", 1)
    gradient_checkpointing: bool = key(False, "recompute activations to save memory")
    device: str = key("auto", "auto, cpu or cuda")
    dtype: str = key("auto", "of frozen models: auto, float32, bfloat16 or float16")
    cache_gb: float | None = key(None, "key/value memory of an engine in this process", 0.01)

    student_servers: int | None = key(
        None, "of the vllm_servers, those for the frozen model if it has weights of its own; null: half", 1
    )
    max_logprob_gap: float = key(0.1, "mean gap of servers' and trainer's log-probs at which the run stops", 0)
    weight_sync: str = key("disk", "new weights reach servers by disk; or whole ones (lora_r=0) by nccl, GPU to GPU")
    server_memory: float | None = key(
        None, "share of a GPU's memory for a server; null: 0.9, or 0.4 beside others", 0.01, 1
    )
    server_timeout: float = key(1800, "seconds a server may take to come up", 1)

    learning_rate: float = key(1e-5, "peak learning rate", 0)
    lr_scheduler_type: str = key("constant", "how the learning rate goes on: constant, cosine, linear, …")
    warmup_ratio: float = key(0.0, "share of the steps spent warming up", 0, 1)
    weight_decay: float = key(0.0, "AdamW's weight decay", 0)
    adam_beta2: float = key(0.999, "AdamW's second beta", 0, 1)
    max_grad_norm: float = key(1.0, "gradients are clipped to this norm", 0)
    num_train_epochs: float = key(1.0, "passes over the data", 0.001)
    max_steps: int = key(-1, "optimizer steps; -1: as the epochs say", -1)
    train_batch_size: int | None = key(None, "sequences per optimizer step over all processes; null: 4 groups or 8", 1)
    per_device_train_batch_size: int | None = key(None, "sequences per process and backward pass; null: as fits", 1)
    max_length: int = key(16384, "sft: longest text; longer ones are dropped and counted", 8)
    max_prompt_length: int = key(4096, "longest prompt of a lesson; problems with longer ones are dropped", 8)

    num_generations: int = key(8, "lessons per problem and step (G)", 2)
    num_iterations: int = key(1, "optimizer passes over the same lessons", 1)
    beta: float = key(0.04, "weight of the KL term against the reference", 0)
    loss_type: str = key("dapo", "TRL's: grpo, dapo, dr_grpo, bnpo, …")
    epsilon: float = key(0.2, "lower clip of the ratio", 0)
    epsilon_high: float | None = key(None, "upper clip of the ratio; null: as the lower", 0)
    scale_rewards: str = key("group", "advantages divided by the deviation of: group, batch or none")
    sync_ref_model: bool = key(False, "move the reference towards the policy")
    ref_model_mixup_alpha: float = key(0.9, "by this much", 0, 1)
    ref_model_sync_steps: int = key(32, "every so many steps", 1)

    gamma: float = key(0.7, "rl2f: an attempt earns this much less for each further one that was needed", 0, 1)
    credit: str = key("turn", "rl2f: advantages of each attempt (turn) or of the whole dialogue (trajectory)")
    partial_credit: float = key(1.0, "rl2f: weight of what an unsolved dialogue's last attempt got right", 0, 1)
    mask_truncated: bool = key(True, "rl2f, sft on dialogues: attempts that the token limit cut off are not trained on")
    self_critique: float = key(
        0.0, "rl2f: weight of learning to give the hints that helped without knowing the answer, e.g. 0.1; 0: off", 0
    )

    reward: str = key("paired", "paired, penalty or zero")
    degradation_penalty_multiplier: float = key(2.0, "harm counts this many times (also: degradation_penalty)", 0)
    efficiency_weight: float = key(1.0, "weight of brevity where teaching helped", 0)
    leak_penalty: float = key(1.0, "cost of stating the answer", 0)
    format_penalty: float = key(0.5, "cost of not keeping to the tags", 0)
    resample: int = key(1, "times a group of equal rewards is replaced by another problem's", 0, 7)
    min_baseline: float = key(0.0, "curriculum: only problems the student solves alone at least this often", 0, 1)
    max_baseline: float = key(1.0, "curriculum: and at most this often", 0, 1)

    output_dir: str | None = key(None, "where the run is kept; null: results_dir/<run>")
    results_dir: str = key("results", "where runs are kept")
    save_steps: int = key(10, "a checkpoint every so many steps", 1)
    save_total_limit: int | None = key(2, "checkpoints kept besides the best", 1)
    save_final_model: bool = key(True, "save the trained model at the end")
    eval_steps: int | None = key(None, "held-out lessons every so many steps; null: only at the end", 1)
    eval_limit: int = key(32, "held-out problems per evaluation; 0: none", 0)
    min_ndr: float = key(0.99, "the best checkpoint keeps at least this non-degradation rate, if any does", 0, 1)
    logging_steps: int = key(1, "a line of metrics every so many steps", 1)
    sample_steps: int = key(10, "a lesson printed every so many steps", 1)
    report_to: str | None = key("tensorboard", "tensorboard, wandb, both with a comma, or null for none")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.results_dir = str(Path(self.results_dir).expanduser())
        known("method", self.method, METHODS)
        known("hints", self.hints, [name for name in HINTS if name != "shuffled"])  # which is a control
        known("credit", self.credit, CREDITS)
        known("lesson", self.lesson, LESSONS)
        if self.lesson not in ("adaptive", own := OF.get(self.method, self.lesson)):
            raise ConfigError(f"method={self.method} trains by its own lesson: leave lesson={self.lesson} out")
        self.lesson = own
        known("reward", self.reward, REWARDS)
        if self.method != "sft" and self.temperature == 0:
            raise ConfigError("temperature=0 gives every lesson of a group the same words: type temperature=0.7")
        known("loss_type", self.loss_type, LOSSES)
        known("lr_scheduler_type", self.lr_scheduler_type, SCHEDULES)
        if self.min_baseline > self.max_baseline:
            raise ConfigError(f"no rate is from {self.min_baseline:g} to {self.max_baseline:g}: swap the two")
        self.scale_rewards = {"true": "group", "false": "none"}.get(self.scale_rewards.lower(), self.scale_rewards)
        known("scale_rewards", self.scale_rewards, SCALES)
        if self.method == "rl2f" and self.scale_rewards != "none":
            raise ConfigError("rl2f compares attempts with their group as they are: type scale_rewards=none")
        if self.method != "sft" and self.eval_steps and self.eval_limit and not self.held_out:
            raise ConfigError("eval_steps needs problems that are held out: type held_out=0.2, or eval_limit=0")
        uncut(self.engine, self.top_p)
        known("weight_sync", self.weight_sync, SYNCS)
        if self.weight_sync == "nccl" and self.lora_r:
            raise ConfigError(
                "weight_sync=nccl sends whole weights and an adapter is a small file: type one of "
                "weight_sync=disk and lora_r=0"
            )
        if self.save_steps % self.num_iterations:
            raise ConfigError(
                f"save_steps={self.save_steps} must be a multiple of num_iterations={self.num_iterations}"
            )
        for name in self.reporters:
            if name not in REPORTERS:
                raise ConfigError(f"no report_to={name!r}; {nearest(name, REPORTERS)}, or null for none")
            if not find_spec(name):
                raise ConfigError(f"report_to={name} needs its package: pip install {name}, or type report_to=null")
        if self.method != "sft" and self.sync_ref_model and (self.lora_r or not self.beta):
            raise ConfigError(
                "sync_ref_model=true needs a reference of its own: type sync_ref_model=false, or lora_r=0 and beta=0.04"
            )

    @property
    def partner(self) -> str:
        """The model that is not trained."""
        return self.teacher_model or self.student_model if self.method == "rl2f" else self.student_model

    @property
    def scores(self) -> bool:
        """Does the partner weigh what is said? Then it is in this process: a server scores at temperature 1 only."""
        return self.method == "rlt"

    @property
    def reporters(self) -> list[str]:
        return [name.strip() for name in (self.report_to or "").split(",") if name.strip() not in ("", "none")]
