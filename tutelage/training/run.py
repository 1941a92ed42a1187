"""One training command from its words to its folder."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from tutelage import dialogues, evaluate, models
from tutelage.composing import keys
from tutelage.errors import ConfigError, TutelageError
from tutelage.files import lock, point, write
from tutelage.training.batch import Sizes, sizes
from tutelage.training.config import Train
from tutelage.training.policy import checkpoint
from tutelage.training.recipe import link, resolve, say

# How long and how visibly a run goes on, not what it learns: a change of these continues the same run.
INCIDENTAL = (
    "max_steps num_train_epochs save_steps save_total_limit save_final_model eval_steps logging_steps "
    "sample_steps report_to results_dir output_dir cache_gb per_device_train_batch_size gradient_checkpointing "
    "engine vllm_host vllm_port vllm_servers student_servers max_logprob_gap server_memory server_timeout"
).split()

# What a student's rate on a problem depends on; `models` and `prompts` are those of the origin.
RATED_BY = (
    "method model_name_or_path student_model dtype temperature top_p max_tokens baseline_samples seed models prompts"
).split()

ORIGIN = "origin.json"  # in a run's folder: what its names stood for


def train(words: list[str]) -> Path:
    """Train, or go on where the same command stopped."""
    config = resolve(words)
    split = sizes(config, int(os.environ.get("WORLD_SIZE", "1")))
    folder = place(config)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # the rollout function has a contract test of ours
    for message in ("Could not find a config file", "Unable to fetch remote file"):
        warnings.filterwarnings("ignore", message=message)  # PEFT looks for a base that has a name here, no path
    with contextlib.ExitStack() as stack:
        if os.environ.get("RANK", "0") == "0":
            try:
                stack.enter_context(lock(folder / ".lock", wait=False))
            except BlockingIOError:
                raise ConfigError(f"another process is training in {folder}: type output_dir=elsewhere") from None
            unlike(config, folder)
            write(folder / ORIGIN, json.dumps(content(config)) + "\n")
            write(folder / "config.yaml", yaml.safe_dump(settings(config), sort_keys=False))
            point(Path(config.results_dir) / "latest_run", folder)
        try:
            method(config)(config, folder, split)
        except Exception as error:
            # What torch and safetensors raise on a full disk speaks of positions in files.
            if isinstance(error, OSError | TutelageError) or shutil.disk_usage(folder).free > 2**20:
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        known = Path(config.results_dir) / link(config)
        if config.save_final_model and (known.is_symlink() or not known.exists()):
            point(known, folder)  # where the commands that follow look for it
            say(f"{known} now points at these results")
    import torch.distributed as processes

    if processes.is_available() and processes.is_initialized():
        processes.destroy_process_group()  # or leaving would abort the others
    return folder


def method(config: Train) -> Callable[[Train, Path, Sizes], Any]:
    if config.method == "sft":
        from tutelage.training.sft import sft

        return sft
    from tutelage.training.rl import reinforce

    return reinforce


def unlike(config: Train, folder: Path) -> None:
    """A folder belongs to one training: other settings must not silently go on from its checkpoints or ratings."""
    file, ratings = folder / "config.yaml", list(folder.glob("curriculum.*.jsonl"))
    if not file.is_file() or (checkpoint(folder) is None and not ratings):
        return
    before, now = yaml.safe_load(file.read_text()), settings(config)
    # A folder of an earlier version was trained with the defaults of the keys that are new.
    before = {name: entry.default for name, entry in keys(Train).items()} | before
    old, new = ({name: json.dumps(value, sort_keys=True) for name, value in some.items()} for some in (before, now))
    changed = [name for name in new if name not in INCIDENTAL and old[name] != new[name]]
    if (origin := folder / ORIGIN).is_file():
        known, found = json.loads(origin.read_text()), content(config)
        changed += [name for name in found if known.get(name, found[name]) != found[name]]
    if changed and checkpoint(folder):
        raise ConfigError(
            f"{folder} holds a training with other {', '.join(changed)}: type output_dir=elsewhere, or delete it"
        )
    if others := sorted({*changed} & {*RATED_BY}):
        say(f"problems are rated anew: {', '.join(others)} changed")
        for path in ratings:
            path.unlink()


def settings(config: Train) -> dict[str, object]:
    return {name: value for name, value in asdict(config).items() if name != "defaults"}


def place(config: Train) -> Path:
    """Where the user says, or a folder named by all that the training depends on."""
    if config.output_dir:
        return Path(config.output_dir).expanduser()
    stable = {name: value for name, value in settings(config).items() if name not in INCIDENTAL} | content(config)
    digest = hashlib.blake2b(json.dumps(stable, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()
    return Path(config.results_dir) / f"{config.method}-{Path(config.dataset_id_or_path).stem}-{digest}"


def content(config: Train) -> dict[str, object]:
    """What the same name stands for may change: a longer warm-up, dialogues held anew, other prompts."""
    names = (config.model_name_or_path, config.partner)
    found: dict[str, object] = {
        "models": [models.fingerprint(Path(name)) for name in names if name and Path(name).is_dir()],
        "prompts": hashlib.blake2b(json.dumps(spoken(config), default=str).encode(), digest_size=8).hexdigest(),
    }
    rows = Path(config.dataset_id_or_path).expanduser()
    if rows.is_file():
        with rows.open("rb") as file:
            found["rows"] = hashlib.file_digest(file, "blake2b").hexdigest()
    return found


def spoken(config: Train) -> list[object]:
    """All prompts of the lesson that is trained, as they are now."""
    feedback = config.lesson == "feedback"
    return dialogues.wording() if feedback else evaluate.wording(config.lesson, config.style)
