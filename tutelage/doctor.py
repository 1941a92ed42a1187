"""tutelage doctor: what this machine has, which recipes fit it, and what to change for the others."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tutelage import servers
from tutelage.composing import choices, compose
from tutelage.errors import ConfigError
from tutelage.files import cache_home
from tutelage.ports import free, taken
from tutelage.training.config import Train
from tutelage.training.recipe import HUB_ID, at_hand, reachable
from tutelage.verify import sandbox

GIB = 2**30
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bm])\b", re.IGNORECASE)


@dataclass(frozen=True)
class Machine:
    """What counts for a recipe."""

    gpus: list[float]  # GiB of each
    memory: float  # GiB
    online: bool


def examine(console: Console) -> None:
    """Print all there is to know before a first training."""
    import torch

    cuda = torch.cuda.is_available()
    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if cuda else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    machine = Machine([card.total_memory / GIB for card in cards], memory, reachable())
    found = Table(show_header=False, title="this machine", title_justify="left")
    found.add_row("Python", platform.python_version())
    found.add_row("torch", f"{torch.__version__}, CUDA {torch.version.cuda if cuda else 'not in use'}")
    for name in ("transformers", "trl", "peft", "accelerate", "deepspeed"):
        found.add_row(name, version(name) or "not installed")
    for i, card in enumerate(cards):
        found.add_row(f"GPU {i}", f"{card.name}, {machine.gpus[i]:.0f} GiB")
    found.add_row("CPU", f"{os.cpu_count()} cores, {memory:.0f} GiB" + ("" if cards else "; no GPU"))
    found.add_row("vLLM", vllm(bool(cards)))
    found.add_row("sandbox", box())
    port = compose(Train, []).vllm_port
    who = taken("127.0.0.1", port)
    found.add_row(f"port {port}", f"taken by {who}: add vllm_port={free('127.0.0.1', 1)}" if who else "free")
    for label, path in (("results", Path.cwd()), ("cache", cache_home())):
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        found.add_row(f"disk for {label}", f"{shutil.disk_usage(existing).free / GIB:.0f} GiB free in {existing}")
    found.add_row("hub", "reachable" if machine.online else "out of reach: names of hub models and data will not load")
    console.print(found)
    advice = Table("recipe", "fits", "what to type", title="recipes", title_justify="left")
    for name in choices("run"):
        fits, hint = judge(name, machine)
        advice.add_row(f"run={name}", "yes" if fits else "no", hint)
    console.print(advice)


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def vllm(cards: bool) -> str:
    """The version of the interpreter that would serve; asking the package itself would take seconds."""
    try:
        python = servers.interpreter("cuda" if cards else "cpu")
    except ConfigError as error:
        return str(error)
    ask = "import importlib.metadata as m; print({d.name: d.version for d in m.distributions()})"
    packages = subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout
    match = re.search(r"'(vllm(?:-cpu)?)': '([^']+)'", packages)
    return f"{match[1]} {match[2]} in {python}" if match else f"not in {python}"


def box() -> str:
    """What stands around a program that is checked here."""
    report = sandbox.examine(["def f(): return 1"], {"entry": "f", "prompt": "", "setup": "", "tests": "assert f()"})
    if report.unusable:
        return f"programs cannot be checked: {report.unusable}"
    if report.gap:
        return f"no walls around a program's {report.gap}: use a container of its own (docs/guides/benchmarks.md)"
    return "walls around a program's files, processes and network"


def size(name: str) -> float:
    """Parameters of a model in billions, by its name; a local folder by its files."""
    if Path(name).is_dir():
        return sum(file.stat().st_size for file in Path(name).glob("*.safetensors")) / 2 / 1e9
    match = SIZE.search(name.replace("-", " "))
    return 0.0 if match is None else float(match[1]) * (1 if match[2].lower() == "b" else 1e-3)


def need(config: Train) -> float:
    """GiB that weights take over all GPUs: with gradients and Adam's two moments, or frozen under an adapter."""
    policy = config.model_name_or_path or config.student_model
    both = config.method != "sft" and not (config.lora_r and policy == config.partner)
    weights = size(policy) * (2.2 if config.lora_r else 16) + (size(config.partner) * 2 if both else 0)
    return weights * 1e9 / GIB + 2  # and something to compute in


def judge(name: str, machine: Machine) -> tuple[bool, str]:
    """Whether a recipe runs here as it is, and what to type."""
    config = compose(Train, [f"run={name}"])
    small = "model=smollm2 data=arithmetic"
    sources = {config.model_name_or_path: "model", config.partner: "model", config.dataset_id_or_path: "data"}
    hub = [source for source in sources if source and HUB_ID.fullmatch(source)]
    if not machine.online and not all(at_hand(source, sources[source]) for source in hub):
        return False, f"the hub is out of reach: it shrinks to {small} by itself"
    wanted, whole, count = need(config), sum(machine.gpus), len(machine.gpus)
    lack = f"needs about {wanted:.0f} GiB of GPU memory, there are {whole:.0f}"
    if wanted <= 0.8 * whole:
        return True, f"./launch.sh {count} configs/run/{name}.yaml"
    if not machine.gpus:
        fits = wanted <= 4 and wanted <= 0.5 * machine.memory
        return fits, f"./launch.sh 1 configs/run/{name}.yaml" if fits else f"{lack}: add {small}"
    adapter = need(compose(Train, [f"run={name}", "lora_r=16"]))
    if adapter <= 0.8 * min(machine.gpus):
        return False, f"{lack}: add lora_r=16 learning_rate=1e-5 (about {adapter:.0f} GiB on each)"
    return False, f"{lack}: end the command with offload, or add {small}"
