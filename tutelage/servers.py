"""The command that starts one vLLM server, on a GPU or without any."""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tutelage import models
from tutelage.errors import ConfigError
from tutelage.training.config import Train

OWN = Path(__file__).parent.parent / ".server" / "bin" / "python"  # what `make server` makes
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the limits vLLM knows


def division(config: Train) -> tuple[str, int]:
    """The model under the teacher on the servers, and how many of all servers a student of its own needs."""
    base = str(config.model_name_or_path or config.student_model)
    if config.lora_r:
        base = models.base(base)
        if base == config.student_model:
            return base, 0  # one server plays both roles
    own = config.student_servers or config.vllm_servers // 2
    if not own or own >= config.vllm_servers:
        raise ConfigError(
            f"a student with weights of its own needs servers of its own, and so does the teacher: of vllm_servers="
            f"{config.vllm_servers} give the student student_servers=1 or more, or start 2 or more"
        )
    return base, own


def interpreter() -> str:
    """The Python that has vLLM: TUTELAGE_SERVER, the environment of `make server`, or this one."""
    named = os.environ.get("TUTELAGE_SERVER")
    if named and not os.access(named, os.X_OK):
        raise ConfigError(f"TUTELAGE_SERVER={named} is no interpreter: name the python of an environment with vLLM")
    if named or OWN.exists():
        return named or str(OWN)
    if find_spec("vllm"):
        return sys.executable
    raise ConfigError("vLLM is not installed: type make server for a CPU, or pip install vllm==0.26.0 for GPUs")


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
    more: Sequence[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a server process; `more` are vLLM options of the user's own, which win."""
    argv = [interpreter(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    argv += ["--served-model-name", served_name, "--host", host, "--port", str(port), "--seed", str(seed)]
    argv += ["--enable-prefix-caching", "--logprobs-mode", "processed_logprobs", "--disable-uvicorn-access-log"]
    env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
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
