"""./launch.sh N RUN …: as many training processes as asked for; ./launch_with_server.sh M N RUN …: with M servers."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from tutelage import data, servers, supervise
from tutelage.composing import CONFIGS, choices, compose, joined
from tutelage.errors import ConfigError, EngineError, nearest
from tutelage.files import point
from tutelage.training.batch import sizes
from tutelage.training.config import Train
from tutelage.training.policy import apart
from tutelage.training.recipe import resolve, say, settle
from tutelage.training.run import place

ACCELERATE = Path(__file__).parent.parent / "accelerate_configs"
MODES = {"offload": "zero3_offload"} | {mode: mode for mode in ("zero1", "zero3", "zero3_offload", "ddp", "fsdp2")}
USAGE_SERVER = "./launch_with_server.sh M N configs/run/teacher_rcl.yaml key=value … [offload|zero1]: M servers, N GPUs"
USAGE = "./launch.sh N configs/run/teacher_sft.yaml key=value … [offload|zero1], where N is GPUs, or cpu:2 without any"


class Stop(BaseException):
    """A signal that asks us to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the training process or its launcher, so that signals and the exit code are its own."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["--with-server"]:
            return with_server(words[1:])
        return alone(words)
    except Exception as error:
        from tutelage.cli import explain

        print(f"tutelage: {explain(error)}", file=sys.stderr)
        return 2


def alone(words: Sequence[str]) -> int:
    number, overrides, modes = parse(words)
    here = gpus()
    # Settled once here: processes that asked the hub one by one could come to different answers.
    argv = command([number, *settle(overrides), *modes], here)
    if number == "1" and here > 1:  # the Trainer would spread one process over all it sees
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    os.execvpe(argv[0], argv, threads(number) | os.environ)


def threads(number: str) -> dict[str, str]:
    """Torchrun would give each process on the CPU one thread."""
    if not number.startswith("cpu:"):
        return {}
    return {"OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // int(number.removeprefix("cpu:")), 1))}


def with_server(words: Sequence[str]) -> int:
    """Servers, then the training beside them."""
    if not words or not re.fullmatch(r"[1-9]\d*", words[0]):
        raise ConfigError(f"type {USAGE_SERVER}")
    number, overrides, modes = parse(words[1:], USAGE_SERVER)
    overrides = [*settle(overrides), "engine=vllm"]
    config = resolve(overrides)
    reach(config)
    count, serving, training = share(int(words[0]), number, devices())
    if config.weight_sync == "nccl" and set(serving) & set(training):
        raise ConfigError("weight_sync=nccl needs servers on other GPUs than the trainer's: type weight_sync=disk")
    # Two models need two servers, if need be on one GPU.
    config.vllm_servers = max(count, 2) if apart(config) else count
    known = [f"vllm_servers={config.vllm_servers}", f"model_name_or_path={config.model_name_or_path}"]
    argv = command([number, *overrides, *known, *modes], len(training))
    environment = threads(number) | os.environ | ({"CUDA_VISIBLE_DEVICES": ",".join(training)} if training else {})
    memory = 0.4 if set(serving) & set(training) else 0.9

    def train(run: supervise.Run) -> int:
        servers.start(run, config, folder, serving, memory)
        trainer = run.start(argv, environment)
        try:
            return trainer.wait()
        except Stop as stop:  # it may want to say what is kept
            trainer.send_signal(stop.args[0])
            with contextlib.suppress(subprocess.TimeoutExpired, Stop):
                trainer.wait(supervise.GRACE)
            raise

    folder = place(config)
    return supervised(train, config, folder)


def reach(config: Train) -> None:
    """Data that cannot be had is said before servers take minutes to come up."""
    if (source := config.dataset_id_or_path) != "generated":
        next(data.rows(source, split=config.dataset_split, data_files=config.data_files), None)


def serve(words: list[str]) -> int:
    """tutelage serve-rollouts: the servers of a training alone, until they are told to end."""
    config = resolve([*settle(words), "engine=vllm"])
    visible, folder = devices(), place(config)
    serving = visible[: config.vllm_servers]

    def stand(run: supervise.Run) -> int:
        processes = servers.start(run, config, folder, serving)
        open_to_all = config.vllm_host == "0.0.0.0"
        host = socket.gethostname() if open_to_all else config.vllm_host
        say(
            f"serving until Ctrl-C; to train add: engine=vllm vllm_host={host} vllm_port={config.vllm_port} "
            f"vllm_servers={config.vllm_servers}"
            + ("" if open_to_all else " (vllm_host=0.0.0.0 here lets other machines in)")
        )
        while alive := [process for process in processes if process.poll() is None]:
            if len(alive) < len(processes):
                say(f"{len(processes) - len(alive)} servers ended: read {folder}/vllm_server*.log")
                processes = alive
            time.sleep(0.5)
        raise EngineError(f"no vLLM server is left: read {folder}/vllm_server*.log")

    return supervised(stand, config, folder)


def supervised(work: Callable[[supervise.Run], int], config: Train, folder: Path) -> int:
    """Whatever ends it, nothing stays behind."""
    folder.mkdir(parents=True, exist_ok=True)
    point(Path(config.results_dir) / "latest_run", folder)
    for name in supervise.SIGNALS:
        if signal.getsignal(name) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(name, interrupted)
    try:
        with supervise.Run() as run:
            return work(run)
    except Stop as stop:
        return 128 + int(stop.args[0])


def share(count: int, number: str, visible: list[str]) -> tuple[int, list[str], list[str]]:
    """How many servers, and the GPUs for them and for training: apart where there are enough, one for both if alone."""
    processes = int(number.removeprefix("cpu:"))
    if not visible:
        if count > 1 and not number.startswith("cpu:"):
            say(f"no GPU here: 1 server on the CPU instead of {count}")
            count = 1
        return count, [], []
    if number.startswith("cpu:"):
        return count, visible[:count], []
    if len(visible) == count == processes == 1:
        return count, visible, visible
    if count + processes > len(visible):
        half = len(visible) // 2
        instead = f"{half} {len(visible) - half}" if half else "1 1"
        raise ConfigError(
            f"{count} for servers and {processes} for training are more GPUs than the {len(visible)} here: "
            f"type ./launch_with_server.sh {instead} …"
        )
    return count, visible[:count], visible[count : count + processes]


def devices() -> list[str]:
    """The GPUs we may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[: gpus()] if named else [str(i) for i in range(gpus())]


def interrupted(number: int, frame: object) -> None:
    raise Stop(number)


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
    # Lessons in the training process need whole weights on every GPU; servers and the warm-up do not.
    whole = "zero1" if config.method != "sft" and config.engine == "local" else "zero3"
    mode = MODES[modes[0]] if modes else "ddp" if config.lora_r else whole
    if whole == "zero1" and mode in ("zero3", "zero3_offload", "fsdp2"):
        raise ConfigError(
            f"{mode} leaves no process the whole weights that lessons in it need: end the command with zero1, or type "
            "./launch_with_server.sh"
        )
    if processes == 1 and mode != "zero3_offload":
        return [*python, *train]  # nothing to split
    if mode.startswith("zero") and not find_spec("deepspeed"):
        raise ConfigError(f"{mode} needs DeepSpeed: pip install deepspeed==0.19.8, or end the command with ddp")
    file = str(ACCELERATE / f"{mode}.yaml")
    accelerate = ["accelerate.commands.launch", "--config_file", file, "--num_processes", str(processes), "-m"]
    return [*python, *accelerate, *train]


def parse(words: Sequence[str], usage: str = USAGE) -> tuple[str, list[str], list[str]]:
    """How many processes, the overrides of training, and the mode if one is named."""
    if len(words) < 2 or not re.fullmatch(r"(cpu:)?[1-9]\d*", words[0]):
        raise ConfigError(f"type {usage}")
    more = joined(words[2:])
    bare = [word for word in more if "=" not in word]
    for word in bare:
        if word not in MODES:
            raise ConfigError(f"{word!r} is neither key=value nor a way to split; {nearest(word, MODES)}")
    if len(bare) > 1:
        raise ConfigError(f"type {' or '.join(bare)}, not both")
    run, rest = recipe(words[1]), [word for word in more if "=" in word]
    # In RLT's documents, which call the folder so, the warm-up is one for explanations.
    if words[1].startswith("cfgs/") and run == "teacher_sft" and not any(word.startswith("lesson=") for word in rest):
        rest.append("lesson=explain")
    return words[0], [f"run={run}", *rest], bare


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
