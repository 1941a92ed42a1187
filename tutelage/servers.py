"""vLLM servers of a run: what they serve, the command that starts one, and the wait until all are up."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

from tutelage import models
from tutelage.engines.fleet import addresses
from tutelage.engines.nccl import FLAGS
from tutelage.errors import ConfigError, EngineError
from tutelage.ports import free, listener, taken
from tutelage.supervise import Run
from tutelage.training.config import Train
from tutelage.training.policy import apart, base

OWN = Path(__file__).parent.parent / ".server" / "bin" / "python"  # what `make server` makes
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the limits vLLM knows


def called(config: Train) -> str:
    """What servers call the model that is trained; weights that change have a name of their own, so that nobody who
    finds the server later takes them for the model they began as."""
    return base(config) if config.lora_r else f"{base(config)}@trained"


def own(config: Train, count: int) -> int:
    """How many of so many servers a partner with weights of its own needs: the last ones."""
    if not apart(config):
        return 0
    others = config.student_servers or count // 2
    if not 0 < others < count:
        raise ConfigError(
            f"{config.partner} has weights of its own and needs servers of its own beside those of the model that is "
            f"trained: of these {count} give it student_servers=1 or more, or start 2 or more"
        )
    return others


def division(config: Train) -> tuple[list[str], list[str]]:
    """The addresses of the policy's servers, and of its partner's where they are others."""
    hosts = [addresses(host, config.vllm_port, config.vllm_servers) for host in config.vllm_host.split(",")]
    single = all(len(host) == 1 for host in hosts)  # URLs or hosts with one server each, else hosts that are alike
    groups = [[url for host in hosts for url in host]] if single else hosts
    cuts = [len(group) - own(config, len(group)) for group in groups]
    ours = [url for group, cut in zip(groups, cuts, strict=True) for url in group[:cut]]
    return ours, [url for group, cut in zip(groups, cuts, strict=True) for url in group[cut:]]


def interpreter(device: str = "cpu") -> str:
    """The Python that has vLLM: TUTELAGE_SERVER, this one, or without a GPU the environment of `make server`."""
    named = os.environ.get("TUTELAGE_SERVER")
    if named and not os.access(named, os.X_OK):
        raise ConfigError(f"TUTELAGE_SERVER={named} is no interpreter: name the python of an environment with vLLM")
    if named:
        return named
    if find_spec("vllm"):
        return sys.executable
    if device == "cpu" and OWN.exists():
        return str(OWN)
    # Its own environment, because vLLM pins another torch.
    gpu = "python3 -m venv .vllm && .vllm/bin/pip install vllm==0.26.0 && export TUTELAGE_SERVER=$PWD/.vllm/bin/python"
    raise ConfigError(f"vLLM is not installed: type {'make server' if device == 'cpu' else gpu}")


def command(
    model: str | Path,
    port: int,
    *,
    served_name: str,
    host: str = "127.0.0.1",
    device: str = "cuda",
    dtype: str = "auto",
    lora_rank: int = 0,
    max_model_len: int | None = None,
    seed: int = 0,
    reloads: bool = False,
    more: Sequence[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a server process. One that `reloads` takes whole weights from a folder, for which
    vLLM opens its development endpoints to all who reach it."""
    argv = [interpreter(device), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    argv += ["--served-model-name", served_name, "--host", host, "--port", str(port), "--seed", str(seed)]
    argv += ["--enable-prefix-caching", "--logprobs-mode", "processed_logprobs", "--disable-uvicorn-access-log"]
    env = {"VLLM_SERVER_DEV_MODE": str(int(reloads)), "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    if max_model_len:
        argv += ["--max-model-len", str(max_model_len)]
    if lora_rank:
        if lora_rank > RANKS[-1]:
            raise ConfigError(f"lora_r={lora_rank} is over what vLLM serves: type lora_r={RANKS[-1]}")
        argv += ["--enable-lora", "--max-lora-rank", str(min(rank for rank in RANKS if rank >= lora_rank))]
        env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if device == "cpu":
        argv += ["--dtype", "float32" if dtype == "auto" else dtype, "--enforce-eager"]
        # A seeded sample whose prompt is read in parts kills a CPU server (its generators cannot step back).
        argv += ["--no-enable-chunked-prefill"]
        cores = sorted(os.sched_getaffinity(0))
        env |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "TORCHDYNAMO_DISABLE": "1",  # compiles for 20 s at the first request, even when eager
            "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads starve the trainer beside it
        }
    else:
        argv += ["--dtype", dtype]
        env["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # it has no log-probs at the sampling temperature
    return [*argv, *more], os.environ | env


def start(
    run: Run, config: Train, folder: Path, gpus: Sequence[str] = (), memory: float = 0.9
) -> list["subprocess.Popen[bytes]"]:
    """All servers of a training, up and healthy: one on each GPU, or on the CPU where none is given."""
    host, others = config.vllm_host, own(config, config.vllm_servers)
    if "," in host or "://" in host:
        raise ConfigError(f"servers start on one machine: type vllm_host=0.0.0.0 there instead of {host}")
    ports = [config.vllm_port + i for i in range(config.vllm_servers)]
    for port in ports:
        if who := taken(host, port):
            raise ConfigError(f"port {port} is taken by {who}: stop it, or type vllm_port={free(host, len(ports))}")
    if host not in ("127.0.0.1", "localhost"):
        print(f"tutelage: whoever reaches {host} may use these servers, and give them weights", file=sys.stderr)
    wired = config.weight_sync == "nccl"
    if wired and len(ports) - others > len(gpus):  # NCCL has no two ranks on one
        raise ConfigError(
            f"weight_sync=nccl takes a GPU for each of the {len(ports) - others} servers of the model that is trained, "
            f"and there are {len(gpus)} for them: type weight_sync=disk"
        )
    folder.mkdir(parents=True, exist_ok=True)
    processes, logs, urls = [], [], [f"http://{host}:{port}" for port in ports]
    crowd = -(-len(ports) // len(gpus)) if gpus else 1  # servers on one GPU
    room = ["--gpu-memory-utilization", f"{config.server_memory or memory / crowd:.2f}"] if gpus else []
    for i, port in enumerate(ports):
        trained = i < len(ports) - others
        path = models.locate(base(config) if trained else config.partner)
        argv, environment = command(
            path,
            port,
            served_name=called(config) if trained else config.partner,
            host=host,
            device="cuda" if gpus else "cpu",
            dtype=config.dtype,
            lora_rank=rank(config) if trained else 0,
            reloads=trained and not config.lora_r,
            max_model_len=context(config, path),
            seed=config.seed + i,
            more=room + (FLAGS if wired and trained else []),
        )
        if gpus:
            environment |= {"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]}
        logs.append(folder / (f"vllm_server_{i}.log" if i else "vllm_server.log"))
        if logs[-1].exists():  # what ended an earlier one stays, and is not taken for the end of this one
            logs[-1].replace(logs[-1].with_suffix(".log.old"))
        with logs[-1].open("wb") as log:
            processes.append(run.start(argv, environment, log))
        if crowd > 1:  # of two that start on one GPU together each counts the other's memory as its own
            wait(processes, urls[: i + 1], logs, config.server_timeout)
    wait(processes, urls, logs, config.server_timeout)
    return processes


def rank(config: Train) -> int:
    """Of the adapter that is trained: a new one, or one that is taken up again."""
    file = models.locate(config.model_name_or_path or config.student_model) / models.ADAPTER
    return int(json.loads(file.read_text())["r"]) if config.lora_r and file.is_file() else config.lora_r


def context(config: Train, folder: Path) -> int:
    """As much as a lesson can take, and as the model has."""
    from transformers import AutoConfig

    most = config.max_prompt_length + config.max_completion_length + config.max_tokens
    return min(most, getattr(AutoConfig.from_pretrained(folder).get_text_config(), "max_position_embeddings", most))


def wait(
    processes: Sequence["subprocess.Popen[bytes]"], urls: Sequence[str], logs: Sequence[Path], seconds: float
) -> None:
    """Until all servers say that they are healthy; one that ends or never does is an error with its last words."""
    began, shown, ready = time.monotonic(), -10.0, set[str]()
    while len(ready) < len(urls):
        passed = time.monotonic() - began
        for process, url, log in zip(processes, urls, logs, strict=True):
            if process.poll() is not None:
                raise EngineError(f"the vLLM server at {url} ended with code {process.returncode}: {last(log)}")
            if url not in ready and passed > seconds:
                raise EngineError(
                    f"the vLLM server at {url} was not healthy after {seconds:g} s: raise server_timeout, or see what "
                    f"holds it up: {last(log)}"
                )
            if url not in ready and healthy(url):
                who = listener(int(url.rpartition(":")[2]))
                if who is not None and os.getsid(who) != process.pid:
                    raise EngineError(f"process {who} answers at {url} in our server's place: type vllm_port=…")
                ready.add(url)
        if passed - shown >= 10 or len(ready) == len(urls):
            shown = passed
            print(f"tutelage: {len(ready)} of {len(urls)} vLLM servers ready, {passed:.0f} s", file=sys.stderr)
        time.sleep(0.2)


def healthy(url: str) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/health", timeout=5) as reply:  # no proxy in between
            return bool(reply.status < 300)
    except (OSError, HTTPException):
        return False


def last(log: Path, lines: int = 12) -> str:
    """The error that ended a server, as far as its log tells, and the lines around its end."""
    words = log.read_text(errors="replace").splitlines()
    errors = [line for line in words if re.search(r"\b\w*(Error|Exception)\b: ", line)]
    cause = errors[-1].split("] ", 1)[-1].strip() if errors else "its log names no error"
    return "\n  ".join([f"{cause}; the end of {log}:", *words[-lines:]])
