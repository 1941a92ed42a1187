"""./launch.sh N RUN key=value … [offload|zero1]: as many training processes as asked for, started in the right way."""

import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tutelage.config import CONFIGS, choices, compose
from tutelage.errors import ConfigError, TutelageError, nearest
from tutelage.training.batch import sizes
from tutelage.training.config import Train
from tutelage.training.recipe import say, settle

ACCELERATE = Path(__file__).parent.parent / "accelerate_configs"
MODES = {"offload": "zero3_offload"} | {mode: mode for mode in ("zero1", "zero3", "zero3_offload", "ddp", "fsdp2")}
USAGE = "./launch.sh N configs/run/teacher_sft.yaml key=value … [offload|zero1], where N is GPUs, or cpu:2 without any"


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the training process or its launcher, so that signals and the exit code are its own."""
    try:
        number, overrides, modes = parse(list(sys.argv[1:] if arguments is None else arguments))
        here = gpus()
        # Settled once here: processes that asked the hub one by one could come to different answers.
        argv = command([number, *settle(overrides), *modes], here)
    except TutelageError as error:
        print(f"tutelage: {error}", file=sys.stderr)
        return 2
    if number == "1" and here > 1:  # the Trainer would spread one process over all it sees
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if number.startswith("cpu:"):  # torchrun would give each process one thread
        threads = (os.cpu_count() or 1) // int(number.removeprefix("cpu:"))
        os.environ.setdefault("OMP_NUM_THREADS", str(max(threads, 1)))
    os.execvp(argv[0], argv)


def command(words: Sequence[str], gpus: int) -> list[str]:
    """The command that trains, for so many GPUs on this machine; keys and batch sizes are checked here, once."""
    number, overrides, modes = parse(words)
    config = compose(Train, overrides)
    on_cpu = number.startswith("cpu:") or not gpus
    processes = int(number.removeprefix("cpu:"))
    if not number.startswith("cpu:") and processes > gpus:
        if gpus:
            raise ConfigError(
                f"{processes} processes need as many GPUs and there are {gpus}: type ./launch.sh {gpus} …"
            )
        if processes > 1:
            say(f"no GPU here: training on the CPU with 1 process instead of {processes} (cpu:2 would start 2)")
        processes = 1
    sizes(config, processes)
    python, train = [sys.executable, "-m"], ["tutelage.cli", "train", *overrides]
    if on_cpu:
        if modes:
            say(f"{modes[0]} is for GPUs: without it on the CPU")
        if number.startswith("cpu:"):
            train.insert(2, "device=cpu")  # before what is typed, which wins
        # accelerate would start one process here and not say so
        several = [*python, "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        return [*(several if processes > 1 else python), *train]
    # Lessons in the training process need whole weights on every GPU; the warm-up does not.
    whole = "zero1" if config.method == "rcl" else "zero3"
    mode = MODES[modes[0]] if modes else "ddp" if config.lora_r else whole
    if processes == 1 and mode != "zero3_offload":
        return [*python, *train]  # nothing to split
    if mode.startswith("zero") and not find_spec("deepspeed"):
        raise ConfigError(f"{mode} needs DeepSpeed: pip install deepspeed, or end the command with fsdp2 or ddp")
    file = str(ACCELERATE / f"{mode}.yaml")
    accelerate = ["accelerate.commands.launch", "--config_file", file, "--num_processes", str(processes), "-m"]
    return [*python, *accelerate, *train]


def parse(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """How many processes, the overrides of training, and the mode if one is named."""
    if len(words) < 2 or not re.fullmatch(r"(cpu:)?[1-9]\d*", words[0]):
        raise ConfigError(f"type {USAGE}")
    bare = [word for word in words[2:] if "=" not in word]
    for word in bare:
        if word not in MODES:
            raise ConfigError(f"{word!r} is neither key=value nor a way to split; {nearest(word, MODES)}")
    if len(bare) > 1:
        raise ConfigError(f"type {' or '.join(bare)}, not both")
    return words[0], [f"run={recipe(words[1])}", *(word for word in words[2:] if "=" in word)], bare


def recipe(word: str) -> str:
    """The name of a run file: configs/run/x.yaml, run=x and x are the same."""
    path = Path(word.removeprefix("run="))
    known = CONFIGS / "run" / f"{path.stem}.yaml"
    if path.suffix == ".yaml" and path.is_file() and not (known.is_file() and path.samefile(known)):
        raise ConfigError(f"{path} is not in {known.parent}: put it there, under a name of its own")
    if not known.is_file():
        raise ConfigError(f"no run file {word!r}; {nearest(path.stem, choices('run'))}")
    return path.stem


def gpus() -> int:
    import torch

    return torch.cuda.device_count()  # as CUDA_VISIBLE_DEVICES lets us see them


if __name__ == "__main__":
    sys.exit(main())
