"""Many servers as one, against small real HTTP servers that answer like vLLM and die on request."""

import asyncio
import contextlib
import errno
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tutelage import servers
from tutelage.engines import Sampling, sync
from tutelage.engines.fleet import BLOCK, TOKENS, Fleet, Server, addresses, marked
from tutelage.engines.vllm import VLLMEngine
from tutelage.errors import ConfigError, EngineError

CARD = {"id": "base", "root": "weights", "max_model_len": 512, "parent": None}


class Words:
    """A tokenizer of sorts."""

    def decode(self, ids: Any, **_: Any) -> str:
        return " ".join(map(str, ids))


class Fake(ThreadingHTTPServer):
    """Answers completions after `delay` seconds; `drop` connections are cut without an answer, `sick` says 500."""

    request_queue_size = 256
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.refuse = False
        self.delay, self.drop, self.sick, self.version, self.raw = 0.0, 0, False, "0.32.0", False
        self.terse = ""  # or that it speaks, or only answers, where it is asked for tokens
        self.cards: list[Any] = [CARD]
        self.adapters: set[Any] = set()
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.connections: set[Any] = set()
        self.busy = self.busiest = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def die(self) -> None:
        """As a killed process: no new connections, and the open ones end."""
        self.drop = 10**6
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """Clients hang up, and so do we."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            return self.send(503 if self.server.sick else 200, "")
        self.send(200, {"version": self.server.version} if self.path == "/version" else {"data": self.server.cards})

    def do_POST(self) -> None:
        fake = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == TOKENS and not (fake.terse and body):
            return self.send(400 if fake.terse else 403, {})
        with fake.lock:
            fake.bodies.append(body)
            fake.paths.append(self.path)
            fake.connections.add(self.client_address)
            fake.busy += 1
            fake.busiest = max(fake.busiest, fake.busy)
        time.sleep(fake.delay if body.get("n") else 0)
        with fake.lock:
            fake.busy -= 1
            fake.drop -= 1
            known = body.get("lora_name") in fake.adapters
            if "lora_path" in body:
                fake.adapters.add(body["lora_name"])
            else:
                fake.adapters.discard(body.get("lora_name"))
            if fake.drop >= 0:
                self.close_connection = True
                return
        if fake.refuse:  # like vLLM, it announces nothing and closes the connection
            self.close_connection = True
            return self.send(500, {"error": {"message": "out of luck"}})
        if fake.sick:
            return self.send(500, {"error": {"message": "EngineCore encountered an issue."}})
        if self.path == TOKENS:
            entries = [{"logprob": -0.5, "top_logprobs": []}] * 2
            ids = [1, 2] if fake.terse == "speaks" else []
            choice = {"finish_reason": "stop", "token_ids": ids, "logprobs": {"content": entries}}
            many = body["sampling_params"].get("n", 1)
            return self.send(200, {"choices": [choice | {"index": i} for i in range(many)]})
        if "prompt" not in body and known == ("lora_path" in body):
            return self.send(400, {"message": "has already been loaded" if known else "cannot be found"})
        if "prompt" not in body:
            return self.send(200, {})
        logprob = -0.5 if fake.raw else -0.5 / body["temperature"]
        choice = {"finish_reason": "stop", "token_ids": [1, 2]}
        choice["logprobs"] = {"token_logprobs": [logprob] * 2, "top_logprobs": [{"a": logprob}]}
        self.send(200, {"choices": [choice | {"index": i} for i in reversed(range(body.get("n", 1)))]})

    def send(self, status: int, body: Any) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Fake]]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = [Fake(), Fake()]
    for fake in running:
        threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield running
    for fake in running:
        with contextlib.suppress(OSError):
            fake.die()


def use(fakes: list[Fake], work: Callable[[VLLMEngine], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with Fleet([fake.url for fake in fakes], backoff=0.02, **options) as fleet:
            engine = await VLLMEngine("base", fleet, Words()).connect()
            for fake in fakes:
                fake.bodies.clear()
            return await work(engine)

    return asyncio.run(main())


async def crowd(engine: VLLMEngine, many: int = 40, n: int = 4) -> Any:
    asked = (engine.generate_ids([i, i + 1], Sampling(max_tokens=4), n=n, seed=i) for i in range(many))
    return await asyncio.gather(*asked)


def test_a_request_says_everything_a_model_could_have_its_own_ideas_about(fakes: list[Fake]) -> None:
    use(fakes[:1], lambda engine: engine.generate_ids([7, 8], Sampling(9, 0.5), n=3))
    [body] = fakes[0].bodies
    assert 0 <= body.pop("seed") < 2**31
    assert body == dict(
        model="base", prompt=[7, 8], n=3, max_tokens=9, temperature=0.5, top_p=1.0, top_k=0, logprobs=0,
        return_token_ids=True, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0,
    )  # fmt: skip


def test_a_server_that_only_seems_to_speak_tokens_is_asked_for_texts(fakes: list[Fake]) -> None:
    fakes[0].terse = "answers"
    use(fakes[:1], lambda engine: engine.generate_ids([7, 8], Sampling(9, 0.5), n=3))
    assert fakes[0].paths[-1] == "/v1/completions"


def test_too_many_open_files_are_no_fault_of_a_server(fakes: list[Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(engine: VLLMEngine) -> None:
        async def none_left(*_: Any, **__: Any) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(engine.fleet._client, "fetch", none_left)
        with pytest.raises(EngineError, match="ulimit -n"):
            await engine.generate_ids([7, 8], Sampling(9), n=1)
        assert not engine.fleet.servers[0].death

    use(fakes[:1], work)


def test_a_server_that_may_speak_tokens_only_does(fakes: list[Fake]) -> None:
    fakes[0].terse = "speaks"
    samples = use(fakes[:1], lambda engine: engine.generate_ids([7, 8], Sampling(9, 0.5), n=3))
    assert [(sample.ids, sample.logprobs) for sample in samples] == [((1, 2), (-0.5, -0.5))] * 3
    [body] = fakes[0].bodies
    assert fakes[0].paths[-1] == TOKENS and 0 <= body["sampling_params"].pop("seed") < 2**31
    assert body == dict(
        model="base", token_ids=[7, 8],
        sampling_params=dict(
            n=3, max_tokens=9, temperature=0.5, top_p=1.0, top_k=0, logprobs=0, min_p=0.0, repetition_penalty=1.0,
            presence_penalty=0.0, frequency_penalty=0.0, detokenize=False, flat_logprobs=True, output_kind=2,
        ),
    )  # fmt: skip


def test_two_servers_share_the_load(fakes: list[Fake]) -> None:
    for fake in fakes:
        fake.delay = 0.05
    groups = use(fakes, crowd)
    assert [len(group) for group in groups] == [4] * 40
    shares = [len(fake.bodies) for fake in fakes]
    assert sum(shares) == 40 and min(shares) >= 15


def test_one_cap_for_all_servers_and_engines(fakes: list[Fake]) -> None:
    for fake in fakes:
        fake.delay = 0.02

    async def work(engine: VLLMEngine) -> None:
        other = VLLMEngine("base", engine.fleet, engine.tokenizer)
        other.context = engine.context
        await asyncio.gather(crowd(engine), crowd(other))

    use(fakes, work, concurrency=6)
    assert max(fake.busiest for fake in fakes) >= 3 and sum(fake.busiest for fake in fakes) <= 12
    assert sum(len(fake.connections) for fake in fakes) <= 12
    assert sum(len(fake.bodies) for fake in fakes) == 80


def test_a_prompt_goes_where_its_beginning_is_known(fakes: list[Fake]) -> None:
    async def work(engine: VLLMEngine) -> None:
        for talk in range(6):
            prompt = [*range(BLOCK), talk, *range(BLOCK)]  # all begin alike
            for turn in range(3):  # and each grows
                await engine.generate_ids([*prompt, *[turn] * BLOCK * turn], Sampling(), n=2)
                engine.fleet.servers[talk % 2].load += 1  # as if the others were busy just then

    use(fakes, work)
    homes = [{body["prompt"][BLOCK] for body in fake.bodies} for fake in fakes]
    assert not homes[0] & homes[1] and homes[0] | homes[1] == set(range(6))


def test_a_busy_home_is_left() -> None:
    fleet = Fleet(["http://a:1", "http://b:1"])
    home, other = fleet.servers
    marks = list(marked(range(300)))
    assert len(marks) == 5
    assert fleet._choose(marks) is home
    home.load = 6
    assert fleet._choose(marks) is home  # a little busier is no reason
    home.load = 60
    assert fleet._choose(marks) is other
    home.load, other.load = 0, 1
    assert fleet._choose(marks) is home  # both know it now
    other.death = "is gone"
    assert fleet._choose(list(marked([5]))) is home


def test_a_dropped_connection_is_tried_again(fakes: list[Fake], capsys: pytest.CaptureFixture[str]) -> None:
    async def work(engine: VLLMEngine) -> Any:
        fakes[0].drop = 2
        return await engine.generate_ids([1], Sampling(), n=2)

    assert len(use(fakes[:1], work)) == 2
    assert len(fakes[0].bodies) == 3 and fakes[0].bodies[0] == fakes[0].bodies[2]
    assert not capsys.readouterr().err


def test_a_server_killed_in_the_middle_hands_over_its_requests(
    fakes: list[Fake], capsys: pytest.CaptureFixture[str]
) -> None:
    for fake in fakes:
        fake.delay = 0.1

    async def work(engine: VLLMEngine) -> Any:
        asked = asyncio.create_task(crowd(engine))
        await asyncio.sleep(0.05)
        assert fakes[0].busy  # it really had some
        await asyncio.to_thread(fakes[0].die)
        groups = await asked
        assert len(await crowd(engine, many=3)) == 3
        return groups, engine.fleet.servers

    groups, (dead, alive) = use(fakes, work)
    assert [len(group) for group in groups] == [4] * 40
    assert dead.death and not alive.death and dead.load == alive.load == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"{fakes[0].url} cannot be reached" in err and f"go to {fakes[1].url}" in err


def test_a_server_whose_engine_died_is_taken_out(fakes: list[Fake], capsys: pytest.CaptureFixture[str]) -> None:
    async def work(engine: VLLMEngine) -> Any:
        fakes[0].sick = True
        return await crowd(engine)

    assert len(use(fakes, work)) == 40
    assert "not healthy (EngineCore encountered an issue.)" in capsys.readouterr().err


def test_a_server_that_died_without_hanging_up_is_taken_out(fakes: list[Fake]) -> None:
    """A request that its engine had taken is never answered: only its health tells."""

    async def work(engine: VLLMEngine) -> None:
        fakes[0].delay = 30.0
        asked = asyncio.ensure_future(engine.generate_ids(range(BLOCK), Sampling(max_tokens=4)))
        await asyncio.sleep(0.5)  # well meanwhile: it is waited for
        assert not asked.done()
        fakes[0].sick = True
        with pytest.raises(EngineError, match=r"no vLLM server is left .* gives no answer and is not healthy"):
            await asked

    use(fakes[:1], work, patience=0.1)


def test_a_refusal_of_a_healthy_server_is_its_answer_though_it_hangs_up(fakes: list[Fake]) -> None:
    async def work(engine: VLLMEngine) -> None:
        fakes[0].refuse = True
        with pytest.raises(EngineError, match=r"answered 500 \(out of luck\): the request itself is refused"):
            await crowd(engine, many=1)
        assert not engine.fleet.servers[0].death

    use(fakes[:1], work)


def test_when_all_are_dead_the_run_stops_with_their_names(fakes: list[Fake]) -> None:
    async def work(engine: VLLMEngine) -> None:
        fakes[0].sick = True
        await asyncio.to_thread(fakes[1].die)
        with pytest.raises(EngineError, match="no vLLM server is left") as error:
            await crowd(engine)
        for words in (fakes[0].url, fakes[1].url, "vllm_server*.log", "checkpoint"):
            assert words in str(error.value)

    use(fakes, work)


def test_a_sync_reaches_every_server_and_a_dead_one_needs_none(fakes: list[Fake], tmp_path: Path) -> None:
    async def work(engine: VLLMEngine) -> None:
        await sync.lora(engine, tmp_path, 1)
        await crowd(engine)
        fakes[0].sick = True
        await sync.lora(engine, tmp_path, 2)
        await crowd(engine, many=4)
        fakes[1].sick = True
        with pytest.raises(EngineError, match="no vLLM server is left"):
            await sync.lora(engine, tmp_path, 3)

    use(fakes, work)
    for fake in fakes:
        loaded = [body["lora_name"] for body in fake.bodies if "lora_path" in body]
        assert loaded == (["base@1", "base@2"] if fake is fakes[0] else ["base@1", "base@2", "base@3"])
        assert not any(body.get("load_inplace") for body in fake.bodies)
    assert {body["model"] for body in fakes[1].bodies if "n" in body} == {"base@1", "base@2"}


def test_a_sync_survives_a_connection_lost_after_the_server_had_loaded(fakes: list[Fake], tmp_path: Path) -> None:
    async def work(engine: VLLMEngine) -> None:
        fakes[0].drop = 1
        await sync.lora(engine, tmp_path, 1)
        fakes[0].drop = 1
        await sync.lora(engine, tmp_path, 2)

    use(fakes[:1], work)
    assert fakes[0].adapters == {"base@2"}
    assert [body["lora_name"][-1] for body in fakes[0].bodies if "lora_path" in body] == ["1", "1", "2", "2"]


def test_a_server_that_answers_too_slowly(fakes: list[Fake]) -> None:
    async def work(engine: VLLMEngine) -> None:
        fakes[0].delay = 1.0
        with pytest.raises(EngineError, match=r"gave no answer in 0\.3 s"):
            await engine.generate_ids([1], Sampling())

    use(fakes[:1], work, timeout=0.3)
    assert len(fakes[0].bodies) == 1  # slow is not lost: asking again would double its work


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "0.19.1"}, r"runs vLLM 0\.19\.1, and only 0\.26 to 0\.32 are supported: pip install"),
        ({"version": "0.33.0"}, r"runs vLLM 0\.33\.0"),
        ({"version": ""}, "is no vLLM server: use student_url="),
        ({"raw": True}, "start it with --logprobs-mode processed_logprobs"),
        ({"cards": [CARD | {"id": "bass"}]}, r"has no model base: did you mean bass\?"),
        ({"cards": [CARD | {"root": "other"}]}, "different weights for base: other and weights"),
        ({"cards": [CARD | {"max_model_len": None}]}, "does not say the context length"),
    ],
)
def test_connect_refuses_in_one_sentence(fakes: list[Fake], change: dict[str, Any], words: str) -> None:
    vars(fakes[1]).update(change)
    with pytest.raises(EngineError, match=words) as error:
        use(fakes, crowd)
    assert "\n" not in str(error.value)


def test_the_shortest_context_counts_and_an_adapter_has_its_bases(fakes: list[Fake]) -> None:
    fakes[1].cards = [CARD | {"max_model_len": 256}, {"id": "teacher", "root": "a", "parent": "base"}]
    fakes[0].cards = [CARD, {"id": "teacher", "root": "a", "parent": "base"}]

    async def work(engine: VLLMEngine) -> None:
        teacher = await VLLMEngine("teacher", engine.fleet, engine.tokenizer).connect()
        assert engine.context == teacher.context == 256
        assert engine.revision != teacher.revision

    use(fakes, work)


def test_addresses() -> None:
    assert addresses("127.0.0.1", 8765) == ["http://127.0.0.1:8765"]
    assert addresses("a, b", 8765, 2) == ["http://a:8765", "http://a:8766", "http://b:8765", "http://b:8766"]
    assert addresses("https://x/v1,h:9", 8765, 2) == ["https://x/v1", "http://h:9"]
    assert [server.url for server in Fleet(["https://x/v1", "https://x/v1"]).servers] == ["https://x"]
    assert Server("http://a").load == 0
    with pytest.raises(EngineError, match="type vllm_host="):
        addresses(" ,", 1)


def test_the_command_of_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    monkeypatch.setenv("TUTELAGE_SERVER", str(python))
    with pytest.raises(ConfigError, match="TUTELAGE_SERVER"):
        servers.command("m", 1, served_name="s")
    python.touch(0o755)
    argv, env = servers.command("m", 8766, served_name="s", lora_rank=20, seed=3, more=["--tensor-parallel-size", "2"])
    words = " ".join(argv)
    parts = f"{python} -m vllm.entrypoints.openai.api_server --model m|--port 8766|--seed 3|--dtype auto"
    parts += "|--logprobs-mode processed_logprobs|--enable-lora --max-lora-rank 32|--tensor-parallel-size 2"
    for part in parts.split("|"):
        assert part in words
    assert "--enforce-eager" not in words and env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1" and "PATH" in env
    argv, env = servers.command("m", 1, served_name="s", device="cpu")
    assert "--enable-lora" not in argv and "--no-enable-chunked-prefill" in argv and "float32" in argv
    with pytest.raises(ConfigError, match="type lora_r=512"):
        servers.command("m", 1, served_name="s", lora_rank=1000)
