"""Servers and trainers as one run: what is wrong is said before or when it happens, and nothing is left behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tutelage import launch, ports, servers
from tutelage.composing import compose
from tutelage.errors import ConfigError, EngineError
from tutelage.training.config import Train

ROOT = Path(__file__).parents[1]
TEST = "TUTELAGE_TEST"
SCRIPT = ROOT / "scripts/launch_with_server.sh"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is up at once."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/helpers/stub.py "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("TUTELAGE_SERVER", str(script))


@pytest.fixture
def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield int(one.getsockname()[1])


def ours(folder: Path) -> list[int]:
    """Processes that a launch in this folder has started, by their environment: vLLM's change their words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{TEST}={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def begin(folder: Path, port: int, *words: str) -> "subprocess.Popen[str]":
    argv = [str(SCRIPT), "1", "1", "configs/run/quickstart.yaml", f"results_dir={folder}", f"vllm_port={port}", *words]
    environment = os.environ | {TEST: str(folder.parent)}
    return subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.05)


def test_a_taken_port_is_named_with_its_owner(listener: int, tmp_path: Path, stub: None) -> None:
    process = begin(tmp_path / "results", listener)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"port {listener} is taken by process {os.getpid()} (" in said and "type vllm_port=" in said
    assert ports.taken("127.0.0.1", ports.free("127.0.0.1", 2)) == ""


@pytest.mark.parametrize(
    ("how", "words", "says"),
    [
        ("dies", (), "ended with code 3: ValueError: No supported config format found"),
        pytest.param(
            *("hangs", ("server_timeout=2",), "was not healthy after 2 s: raise server_timeout"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_server_that_fails_says_why(
    how: str, words: tuple[str, ...], says: str, tmp_path: Path, port: int, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB", how)
    process = begin(tmp_path / "results", port, *words)
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 2
    assert says in said and "vllm_server.log" in said
    assert ours(tmp_path) == []


@pytest.mark.parametrize(
    ("stage", "how"),
    [
        ("servers", signal.SIGINT),
        pytest.param("servers", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("training", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("training", signal.SIGINT, marks=pytest.mark.slow),
        ("training", signal.SIGKILL),
    ],
)
def test_whatever_ends_it_leaves_no_process(
    stage: str, how: signal.Signals, tmp_path: Path, port: int, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB", "hangs" if stage == "servers" else "")
    process = begin(tmp_path / "results", port)
    until(lambda: ports.taken("127.0.0.1", port) if stage == "training" else list(tmp_path.glob("results/*/vllm*.log")))
    if stage == "training":
        until(lambda: any(b"\0train\0" in Path(f"/proc/{one}/cmdline").read_bytes() for one in ours(tmp_path)))
    process.send_signal(how)
    process.wait(timeout=60)
    until(lambda: not ours(tmp_path))
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)


SMALL = """num_generations=2 train_batch_size=2 limit=2 eval_limit=0 max_completion_length=8 max_tokens=4
max_probe_tokens=4 baseline_samples=1 taught_samples=1 resample=0 save_steps=1 report_to=null max_steps=50""".split()


@pytest.mark.slow  # its parts are tested with servers of our own in engines/test_fleet.py
def test_a_server_killed_in_the_middle_stops_the_run(tmp_path: Path, port: int) -> None:
    """The whole of it, on a real vLLM server; what was learned is kept."""
    folder = tmp_path / "results"
    process = begin(folder, port, *SMALL)
    try:
        until(lambda: list(folder.glob("*/checkpoint-1/trainer_state.json")) or process.poll() is not None, 180)
        names = {one: Path(f"/proc/{one}/comm").read_text().strip() for one in ours(tmp_path)}
        engines = [one for one, name in names.items() if name.startswith("VLLM::")]
        assert engines, names
        for one in engines:  # as if it had run out of memory
            os.kill(one, signal.SIGKILL)
        said, _ = process.communicate(timeout=240)  # a request in hand is found out by its server's health
    finally:
        process.kill()
    assert process.returncode == 2, said
    assert "no vLLM server is left" in said and "goes on from its last checkpoint" in said
    until(lambda: not ours(tmp_path))


@pytest.mark.parametrize(
    ("count", "number", "gpus", "expected"),
    [
        (4, "4", 8, (4, ["0", "1", "2", "3"], ["4", "5", "6", "7"])),
        (1, "3", 4, (1, ["0"], ["1", "2", "3"])),
        (1, "1", 1, (1, ["0"], ["0"])),
        (1, "1", 0, (1, [], [])),
        (4, "4", 0, (1, [], [])),
        (2, "cpu:2", 0, (2, [], [])),
    ],
)
def test_gpus_are_shared_out(count: int, number: str, gpus: int, expected: tuple[object, ...]) -> None:
    assert launch.share(count, number, [str(i) for i in range(gpus)]) == expected


def test_too_few_gpus_say_what_would_fit() -> None:
    with pytest.raises(ConfigError, match=r"more GPUs than the 4 here: type ./launch_with_server.sh 2 2 …"):
        launch.share(4, "4", ["0", "1", "2", "3"])


def test_one_server_plays_both_roles_of_one_model() -> None:
    def ports(*words: str) -> tuple[list[str], list[str]]:
        teacher, student = servers.division(compose(Train, list(words)))
        return [url.removeprefix("http://") for url in teacher], [url.removeprefix("http://") for url in student]

    assert ports("vllm_servers=2", "vllm_host=a") == (["a:8765", "a:8766"], [])
    whole = ["lora_r=0", "model_name_or_path=smollm2-135m"]
    assert ports(*whole, "vllm_servers=2", "vllm_host=a,b") == (["a:8765", "b:8765"], ["a:8766", "b:8766"])
    assert ports(*whole, "vllm_host=http://a:1,http://b:2,c") == (["a:1", "b:2"], ["c:8765"])
    assert ports(*whole, "vllm_servers=3", "vllm_host=a", "student_servers=2") == (["a:8765"], ["a:8766", "a:8767"])
    with pytest.raises(ConfigError, match="student_servers=1 or more, or start 2 or more"):
        ports(*whole)
    assert servers.called(compose(Train, whole)) == "smollm2-135m@trained"  # nobody else's smollm2-135m


def test_an_adapter_that_is_taken_up_again_has_its_own_rank(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 64, "base_model_name_or_path": "smollm2-135m"}')
    assert servers.rank(compose(Train, [f"model_name_or_path={tmp_path}"])) == 64
    assert servers.rank(compose(Train, ["lora_r=8"])) == 8
    assert servers.rank(compose(Train, ["lora_r=0"])) == 0


def test_somebody_elses_server_on_our_port_is_not_ours(tmp_path: Path, port: int) -> None:
    stranger = subprocess.Popen(
        [sys.executable, ROOT / "tests/helpers/stub.py", "--host", "127.0.0.1", "--port", str(port)]
    )
    ours = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        until(lambda: ports.taken("127.0.0.1", port))
        with pytest.raises(EngineError, match=f"process {stranger.pid} answers at .* in our server's place"):
            servers.wait([ours], [f"http://127.0.0.1:{port}"], [tmp_path / "log"], 30)
    finally:
        stranger.kill(), stranger.wait(), ours.kill(), ours.wait()


def test_the_last_error_of_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "vllm_server.log"
    log.write_text("INFO up\n(EngineCore pid=1) ERROR 11-15 [core.py:1] OSError: no such model\nINFO bye\n")
    assert servers.last(log).startswith("OSError: no such model; the end of ")
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(EngineError, match="ended with code 0: OSError: no such model"):
        servers.wait([process], ["http://127.0.0.1:9"], [log], 5)
