"""Real vLLM servers for tests."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tutelage import models, servers, supervise


@contextlib.contextmanager
def serving(folder: Path, *more: str, path: str = "") -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A real vLLM server on the CPU with the embedded model: its address and its process, never left behind."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv, env = servers.command(
        models.locate("smollm2-135m"),
        port,
        served_name="smollm2-135m",
        device="cpu",
        lora_rank=16,
        max_model_len=1024,
        reloads=True,
        more=["--enable-scale-out", *more],  # opens the endpoint for tokens, which 0.26 has open
    )
    if path:
        env["PYTHONPATH"] = path
    log, url = folder / "vllm_server.log", f"http://127.0.0.1:{port}"
    with supervise.Run() as run:
        with log.open("wb") as out:
            process = run.start(argv, env, out)
        servers.wait([process], [url], [log], 180)
        yield url, process
