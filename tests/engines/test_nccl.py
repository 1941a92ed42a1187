"""Weights by NCCL, as far as one can go without two GPUs: everything but NCCL itself."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from real import serving
from safetensors.torch import load_file

from tutelage import launch, models, servers
from tutelage.composing import compose
from tutelage.engines import Sampling, nccl
from tutelage.engines.fleet import Fleet
from tutelage.engines.local import TransformersEngine
from tutelage.engines.nccl import FLAGS, Line
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import ConfigError, EngineError
from tutelage.training import cast
from tutelage.training.cast import Weights, whole
from tutelage.training.config import Train

ROOT = Path(__file__).parents[2]
BASE = "smollm2-135m"
LONG = [{"role": "user", "content": "Why is the sky blue, and the sea? " * 20}]
WEIGHTS = {"model.a.weight": torch.ones(2, 3), "lm_head.weight": torch.full((4,), 2.0, dtype=torch.bfloat16)}
WHOLE = ["weight_sync=nccl", "lora_r=0", f"model_name_or_path={BASE}"]
CLEAR = "/reset_prefix_cache?reset_running_requests=true"


class Recorder(ThreadingHTTPServer):
    """Writes down what it is asked; `size` workers, and an answer of its own for one path."""

    def __init__(self, size: int):
        super().__init__(("127.0.0.1", 0), Handler)
        self.size, self.asked, self.answers = size, list[tuple[str, Any]](), dict[str, tuple[int, Any]]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Recorder

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.answer(None)

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def answer(self, body: Any) -> None:
        self.server.asked.append((self.path, body))
        status, words = self.server.answers.get(self.path, (200, {"world_size": self.server.size}))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(words).encode())


@pytest.fixture
def recorders() -> Iterator[list[Recorder]]:
    running = [Recorder(2), Recorder(1)]
    yield running
    for one in running:
        one.shutdown(), one.server_close()


@pytest.fixture
def trainer_end(monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's helper and CUDA as the trainer meets them: groups that were opened, and tensors that were sent."""
    end = SimpleNamespace(opened=[], sent=[], wait=None, fail="")

    def trainer_init(info: dict[str, Any]) -> Any:
        end.opened.append(info)
        if end.wait:
            end.wait.wait()
        if end.fail:
            raise RuntimeError(end.fail)
        return SimpleNamespace(broadcast=lambda tensor, src, stream: end.sent.append((tensor, src)))

    network = {"get_ip": lambda: "10.0.0.1", "get_open_port": lambda: 5000}
    helpers = {"vllm.distributed.weight_transfer.nccl_common": {"trainer_init": trainer_init}}
    for name, found in (helpers | {"vllm.utils.network_utils": network}).items():
        module = ModuleType(name)
        vars(module).update(found)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    return end


def send(recorders: list[Recorder], *dead: Recorder) -> None:
    """Three times: to all, to all again, and when some are dead."""

    async def main() -> None:
        async with Fleet([one.url for one in recorders], backoff=0.01) as fleet:
            line = Line(VLLMEngine("base", fleet), "cpu")
            await line.send(WEIGHTS)
            await line.send(WEIGHTS)
            for server in fleet.servers:
                server.death = "is gone" if server.url in [one.url for one in dead] else ""
            await line.send(WEIGHTS)

    asyncio.run(main())


def test_what_servers_and_group_are_told(recorders: list[Recorder], trainer_end: Any) -> None:
    send(recorders, recorders[0])
    group = {"master_address": "10.0.0.1", "master_port": 5000, "world_size": 4}
    rest = group | {"world_size": 2}
    assert trainer_end.opened == [group, rest]  # of one trainer and all workers; once, until a server is lost
    info = dict(names=list(WEIGHTS), dtype_names=["float32", "bfloat16"], shapes=[[2, 3], [4]])
    once = [("/start_weight_update", {}), ("/update_weights", {"update_info": info})]
    once += [("/finish_weight_update", {}), (CLEAR, {})]

    def joins(group: dict[str, Any], offset: int) -> list[Any]:
        body = {"init_info": group | {"rank_offset": offset}}
        return [("/get_world_size", None), ("/init_weight_transfer_engine", body)]

    assert recorders[0].asked == [*joins(group, 1), *once, *once]
    assert recorders[1].asked == [*joins(group, 3), *once, *once, *joins(rest, 1), *once]
    assert [(src, tensor.tolist()) for tensor, src in trainer_end.sent[:2]] == [
        (0, w.tolist()) for w in WEIGHTS.values()
    ]
    assert len(trainer_end.sent) == 3 * 2


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        (
            "/get_world_size",
            404,
            r"has no /get_world_size: start it with weight_sync=nccl, .* --weight-transfer-config",
        ),
        ("/init_weight_transfer_engine", 500, r"took no weights by NCCL \(not configured\): .* type weight_sync=disk"),
        ("/update_weights", 500, r"took no weights by NCCL \(not configured\)"),
    ],
)
def test_a_server_that_will_not_is_heard_though_nccl_waits(
    recorders: list[Recorder], trainer_end: Any, path: str, status: int, words: str
) -> None:
    recorders[1].answers[path] = (status, {"error": {"message": "not configured"}})
    if path.startswith("/init"):
        trainer_end.wait = threading.Event()  # NCCL has no end of its own
    with pytest.raises(EngineError, match=words) as error:
        send(recorders)
    assert recorders[1].url in str(error.value) and "\n" not in str(error.value)


def test_an_end_that_fails_or_is_lost(recorders: list[Recorder], trainer_end: Any) -> None:
    trainer_end.fail = "Duplicate GPU detected"
    with pytest.raises(EngineError, match=r"NCCL failed \(Duplicate GPU detected\): .* type weight_sync=disk"):
        send(recorders)
    recorders[1].shutdown(), recorders[1].server_close()
    with pytest.raises(EngineError, match=rf"{recorders[1].url} cannot be reached .* repeat the command"):
        send(recorders)


def test_what_cannot_work_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="goes from GPU to GPU and this trains on a CPU: type weight_sync=disk"):
        cast.remote(compose(Train, [*WHOLE, "device=cpu"]), None, None, threading.Lock(), None, asyncio.run)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"in the trainer's environment, too .*: pip install vllm"):
        nccl.ready(gpu=True)
    with pytest.raises(ConfigError, match="type one of weight_sync=disk and lora_r=0"):
        compose(Train, ["weight_sync=nccl"])
    with pytest.raises(ConfigError, match=r"no weight_sync 'nccl2'; did you mean nccl\?"):
        compose(Train, ["weight_sync=nccl2"])
    monkeypatch.setattr(launch, "devices", lambda: ["0"])
    with pytest.raises(ConfigError, match="needs servers on other GPUs than the trainer's"):
        launch.with_server(["1", "1", "quickstart", *WHOLE])
    config = compose(Train, [*WHOLE, "vllm_servers=4", "student_servers=1", "vllm_port=64000"])
    for gpus in ([], ["0", "1"]):
        with pytest.raises(ConfigError, match=rf"takes a GPU for each of the 3 servers .* there are {len(gpus)}"):
            servers.start(SimpleNamespace(start=None), config, tmp_path, gpus)  # type: ignore[arg-type]


def test_only_servers_of_what_is_trained_take_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUTELAGE_SERVER", sys.executable)
    monkeypatch.setattr(servers, "wait", lambda *_: None)

    def begun(*words: str) -> list[list[str]]:
        started: list[list[str]] = []
        run: Any = SimpleNamespace(start=lambda argv, *_: started.append(argv))
        config = compose(Train, ["lora_r=0", f"model_name_or_path={BASE}", "vllm_servers=2", "vllm_port=64000", *words])
        servers.start(run, config, tmp_path, ["0", "1"])
        return started

    assert [argv[-2:] == FLAGS for argv in begun("weight_sync=nccl")] == [True, False]
    assert not any(FLAGS[0] in argv for argv in begun())


def test_a_sync_by_nccl_leaves_no_folder(recorders: list[Recorder], trainer_end: Any, tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    owner = trainer(model)
    owner.state, owner._metrics = SimpleNamespace(global_step=3), {"train": {"weights/seconds": []}}

    async def fleet() -> VLLMEngine:
        return VLLMEngine("base", Fleet([recorders[0].url]))

    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cast, "whole", lambda _: WEIGHTS)
        engine = runner.run(fleet())
        weights = Weights(owner, engine, tmp_path / "weights", runner.run, "nccl")
        weights.sync_weights()
        runner.run(engine.fleet.close())
    assert engine.model == "base" and engine.revision == f"{weights.mark}-3"
    assert [path for path, _ in recorders[0].asked][-1] == CLEAR and len(trainer_end.sent) == 2
    assert not list(tmp_path.iterdir()) and owner._metrics["train"]["weights/seconds"]


def trainer(model: Any) -> Any:
    return SimpleNamespace(
        accelerator=Accelerator(cpu=True), model=model, model_wrapped=model, is_world_process_zero=lambda: True
    )


def test_names_are_those_of_a_checkpoint(tmp_path: Path) -> None:
    """Without tied copies, and experts one by one as saved, though the model in memory holds them as one."""
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = dict(vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_local_experts=2)
    heads = dict(num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True)
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads))
    model.save_pretrained(tmp_path)
    saved, sent = load_file(tmp_path / "model.safetensors"), whole(trainer(model))
    assert sent.keys() == saved.keys() != dict(model.named_parameters()).keys()
    assert all(torch.equal(sent[name], saved[name]) for name in saved) and "lm_head.weight" not in sent


def moved(seed: int) -> Any:
    """A model after some training; a CPU server would keep its packed copy of the embeddings."""
    model = models.load(BASE)[0]
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed" not in name:
                weight += 0.01 * weight.std() * torch.randn_like(weight)
    return model


@pytest.mark.slow
def test_a_real_server_takes_weights_by_its_transfer_endpoints(tmp_path: Path, smollm: Any) -> None:
    """vLLM's own code at both ends, of which only the class that calls NCCL is replaced."""
    first, second = moved(1), moved(2)
    torch.save([whole(trainer(first)), whole(trainer(second))], tmp_path / "weights.pt")
    path = f"{ROOT}:{ROOT / 'tests/helpers'}"
    with serving(tmp_path, *FLAGS, "--worker-extension-cls", "wire.Worker", path=path) as (url, _):

        async def speak() -> Any:
            async with Fleet([url]) as fleet:
                engine = await VLLMEngine(BASE, fleet, smollm[1]).connect()
                return await engine.generate(LONG, Sampling(max_tokens=8, temperature=1.0), n=2)

        before = asyncio.run(speak())
        argv = [servers.interpreter(), str(ROOT / "tests/helpers/wire.py"), url, str(tmp_path / "weights.pt")]
        ended = subprocess.run(argv, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=200)
        assert ended.returncode == 0, ended.stderr + (tmp_path / "vllm_server.log").read_text()
        after = asyncio.run(speak())

    async def gap(model: Any, samples: Any) -> float:
        async with TransformersEngine(model, smollm[1], name=BASE) as engine:
            scores = await asyncio.gather(*(engine.score(s.prompt_ids, s.ids, 1.0) for s in samples))
        pairs = zip(samples, scores, strict=True)
        return max(abs(a - b) for sample, score in pairs for a, b in zip(sample.logprobs, score, strict=True))

    assert asyncio.run(gap(second, after)) <= 1e-4
    assert asyncio.run(gap(second, before)) > 0.01 < asyncio.run(gap(first, after))
