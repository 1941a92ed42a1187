"""What a command line of training means on this machine: published recipes shrink where the hub is out of reach."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tutelage.composing import compose
from tutelage.data.formats import detect
from tutelage.data.sources import rows
from tutelage.lessons import styles
from tutelage.lessons.styles import spelled
from tutelage.models import saved
from tutelage.training.config import Train

# In results_dir, links to the newest training of each kind: what later commands start from or are given.
LINKS = {"rcl": "rcl_teacher", "rlt": "rlt_teacher", "rl2f": "rl2f"}
SFT = {"adaptive": "pre_rl_model", "explain": "pre_rlt_model", "solo": "student", "feedback": "sft"}
WARM = ("rcl", "rlt")  # reinforcement that goes on from SFT on its lesson
IMPLIED = {"data": "bespoke_stratos", "model": "qwen25_7b"}
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+(:[\w.-]+)?")


def resolve(words: list[str]) -> Train:
    """The config to train with: settled, and with a teacher to start from."""
    config = compose(Train, settle(words))
    typed = {word.partition("=")[0] for word in words}
    if config.model_name_or_path is None or (config.method in WARM and not typed & {"model", "model_name_or_path"}):
        before, config.model_name_or_path = config.model_name_or_path, start(config)
        if config.model_name_or_path != before:
            say(f"training starts from {config.model_name_or_path}")
    config.model_name_or_path = real(config.model_name_or_path)
    if config.lesson == "solo" and not any(name.split(".")[0] == "style" for name in typed):
        before, config.style = config.style, written_in(config) or config.style
        if config.style != before:
            say(f"style={spelled(config.style)}, as the traces were written")
    return config


def written_in(config: Train) -> Any:
    """The style of traces on this disk, as their first row says: the tags they were scored in are those to learn."""
    if not Path(config.dataset_id_or_path).expanduser().exists():
        return None
    first = next(rows(config.dataset_id_or_path, split=config.dataset_split, data_files=config.data_files), None)
    if not isinstance(first, Mapping) or detect([first]) != "traces" or not first.get("style"):
        return None
    return styles.read(first["style"])


def settle(words: list[str]) -> list[str]:
    """The words, with the embedded model or generated data in place of what cannot be had. What is typed stays."""
    typed = {word.partition("=")[0] for word in words}
    words = implied(words)
    config = compose(Train, words)
    # A warm-up, too, asks the student about problems without worked lessons.
    models = {name: getattr(config, name) for name in ("model_name_or_path", "student_model", "teacher_model")}
    swaps, lost = [], []
    for swap, values in (
        ("model=smollm2", models),
        ("data=arithmetic", {"dataset_id_or_path": config.dataset_id_or_path}),
    ):
        group = swap.partition("=")[0]
        needed = [value for key, value in values.items() if value and key not in typed and group not in typed]
        if absent := [name for name in needed if HUB_ID.fullmatch(name) and not at_hand(name, group)]:
            swaps.append(swap)
            lost += absent
    if not lost or reachable():
        return words
    say(f"the hub is out of reach, so no {', '.join(dict.fromkeys(lost))}: {' '.join(swaps)} instead")
    replaced = {swap.partition("=")[0] for swap in swaps}
    if "data" in replaced:
        replaced |= {"dataset_split", "data_files", "columns", "format"}  # of rows that are not there
    return [*(word for word in words if re.split(r"[.=]", word)[0] not in replaced), *swaps]


def implied(words: list[str]) -> list[str]:
    """A warm-up for explanations needs solutions, and the model that reinforcement goes on with."""
    typed = {word.partition("=")[0] for word in words}
    if "lesson=explain" not in words or "run=teacher_sft" not in words:
        return words
    keys = {"data": {"data", "dataset_id_or_path"}, "model": {"model", "model_name_or_path"}}
    return [*words, *(f"{name}={IMPLIED[name]}" for name in IMPLIED if not typed & keys[name])]


def at_hand(name: str, group: str) -> bool:
    """Whether a hub id is a local path, or was fetched before."""
    from huggingface_hub import constants

    if Path(name).expanduser().exists():
        return True
    name = name.partition(":")[0]
    hub = Path(constants.HF_HUB_CACHE) / f"{'models' if group == 'model' else 'datasets'}--{name.replace('/', '--')}"
    if group == "model":
        return any(hub.glob("snapshots/*/*.safetensors"))  # a config alone is no model
    prepared = Path(os.environ.get("HF_DATASETS_CACHE", Path(constants.HF_HOME) / "datasets"))
    return any(hub.glob("snapshots/*/*")) or (prepared / name.replace("/", "___").lower()).is_dir()


def reachable() -> bool:
    """Whether the hub answers: one short question, no retries."""
    from huggingface_hub import constants, get_session, is_offline_mode

    if is_offline_mode():
        return False
    try:
        return bool(get_session().head(constants.ENDPOINT, timeout=5).status_code < 500)
    except Exception:  # no network shows in as many ways as there are libraries below
        return False


def start(config: Train) -> str:
    """Where a training begins that no one named: reinforcement goes on from its warm-up, if there was one."""
    warm = Path(config.results_dir) / SFT[config.lesson]
    return str(warm) if config.method in WARM and saved(warm) else config.model_name_or_path or config.student_model


def link(config: Train) -> str:
    """What the newest training of this kind is called."""
    if config.method == "sft":
        return SFT[config.lesson]
    return "rlvr" if config.method == "rl2f" and config.max_turns == 1 else LINKS[config.method]


def real(name: str | None) -> str | None:
    """A link to the newest warm-up is that warm-up: a later one must not change what a name in a folder means."""
    path = Path(name or "")
    return str(path.parent / os.readlink(path)) if path.is_symlink() else name


def say(text: str) -> None:
    """One line for the user, from the first process only."""
    if os.environ.get("RANK", "0") == "0":
        print(f"tutelage: {text}", file=sys.stderr)
