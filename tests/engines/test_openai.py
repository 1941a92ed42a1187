"""The OpenAI-compatible engine against a real HTTP server that misbehaves on request."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tutelage.engines.base import Message, Sample, Sampling
from tutelage.engines.http import derive
from tutelage.engines.openai import OpenAIEngine
from tutelage.errors import EngineError, PromptTooLong, Refused

ASK: list[Message] = [{"role": "user", "content": "2+2?"}]
MODELS = {"object": "list", "data": [{"id": "student", "root": "/weights/a"}, {"id": "teacher"}]}


def answer(text: str | None = "4", finish: str | None = "stop", tokens: int | None = 3) -> dict[str, Any]:
    reply: dict[str, Any] = {"choices": [{"finish_reason": finish, "message": {"content": text}}]}
    return reply if tokens is None else reply | {"usage": {"completion_tokens": tokens, "prompt_tokens": 9}}


class Reply:
    """One scripted behaviour: a status with a body, after `delay` seconds; `cut` ends it half-way."""

    def __init__(
        self,
        status: int = 200,
        body: Any = None,
        headers: dict[str, str] | None = None,
        delay: float = 0,
        cut: bool = False,
    ) -> None:
        self.status, self.headers, self.delay, self.cut = status, headers or {}, delay, cut
        body = answer() if body is None else body
        self.body = (body if isinstance(body, str) else json.dumps(body)).encode()


def error(status: int, message: str = "broken", retry_after: str = "") -> Reply:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return Reply(status, {"error": {"message": message}}, headers)


class Server(ThreadingHTTPServer):
    """Answers chats by `script`, the last entry for ever, and keeps what it was asked, when and how often."""

    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Reply] = [Reply()]
        self.models: Reply = Reply(body=MODELS)
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.connections: set[Any] = set()
        self.busy = self.busiest = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: Any) -> None:
        """Clients that time out hang up: that is what is being tested."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.keys.append(self.headers.get("authorization"))
        self.send(self.server.models)

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            reply = server.script[min(len(server.bodies), len(server.script) - 1)]
            server.bodies.append(body)
            server.paths.append(self.path)
            server.keys.append(self.headers.get("authorization"))
            server.times.append(time.monotonic())
            server.connections.add(self.client_address)
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
        time.sleep(reply.delay)
        with server.lock:
            server.busy -= 1
        self.send(reply)

    def send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        if reply.cut:
            self.wfile.write(reply.body[: len(reply.body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(reply.body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def use(server: Server | str, job: Callable[[OpenAIEngine], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        url = server if isinstance(server, str) else server.url
        settings: dict[str, Any] = {"model": "student", "base_url": url, "backoff": 0.001} | options
        engine = OpenAIEngine(**settings)
        async with engine:
            return await job(engine)

    return asyncio.run(main())


def ask(server: Server | str, n: int = 1, seed: int = 0, messages: Any = ASK, **options: Any) -> list[Sample]:
    sampling = options.pop("sampling", Sampling())
    return use(server, lambda engine: engine.generate(messages, sampling, n, seed), **options)


def connect(server: Server | str, **options: Any) -> OpenAIEngine:
    return use(server, lambda engine: engine.connect(), **options)


def test_the_request_and_the_sample(server: Server) -> None:
    server.script = [Reply(delay=0.05)]
    [sample] = ask(server, sampling=Sampling(max_tokens=7, temperature=0.3, top_p=0.9), api_key="k\r\n1\n")
    assert (sample.text, sample.finish, sample.tokens) == ("4", "stop", 3)
    assert sample.ids == sample.logprobs == sample.prompt_ids == ()
    assert 0.05 <= sample.seconds < 5
    assert server.paths == ["/v1/chat/completions"] and server.keys == ["Bearer k1"]
    assert server.bodies == [
        {"model": "student", "messages": ASK, "max_tokens": 7, "temperature": 0.3, "top_p": 0.9}
        | {"seed": derive(0, 0)}
    ]


def test_top_k_is_sent_only_when_set_and_no_key_sends_no_header(server: Server) -> None:
    ask(server, sampling=Sampling(top_k=20))
    assert server.bodies[0]["top_k"] == 20 and server.keys == [None]


def test_n_samples_are_n_requests_with_their_own_tokens(server: Server) -> None:
    # which reply meets which sample is a race, but each text must keep its own token count
    server.script = [Reply(body=answer(str(i), tokens=i)) for i in range(5)]
    samples = ask(server, n=5)
    assert sorted(int(sample.text) for sample in samples) == [0, 1, 2, 3, 4]
    assert all(sample.tokens == int(sample.text) for sample in samples)
    assert not any("n" in body for body in server.bodies)


def test_samples_come_back_in_the_order_of_their_seeds(server: Server) -> None:
    server.script = [Reply(body=answer("slow"), delay=0.2), Reply(body=answer("fast"))]
    samples = ask(server, n=2)
    by_seed = dict(zip([body["seed"] for body in server.bodies], ["slow", "fast"], strict=True))
    assert [sample.text for sample in samples] == [by_seed[derive(0, 0)], by_seed[derive(0, 1)]]


def test_seeds_are_deterministic_distinct_and_31_bits(server: Server) -> None:
    for seed in (0, 1, 0):
        ask(server, n=4, seed=seed, concurrency=1)
    seeds = [body["seed"] for body in server.bodies]
    assert seeds[:4] == seeds[8:] == [derive(0, i) for i in range(4)]
    assert len(set(seeds[:8])) == 8  # neighbouring seeds share no sample
    assert all(0 <= derive(seed, i) < 2**31 for seed in (-1, 0, 2**63) for i in range(200))


def test_a_prefill_is_continued(server: Server) -> None:
    ask(server, messages=[*ASK, {"role": "assistant", "content": "<think>"}])
    ask(server)
    assert server.bodies[0]["continue_final_message"] is True
    assert server.bodies[0]["add_generation_prompt"] is False
    assert not {"continue_final_message", "add_generation_prompt"} & set(server.bodies[1])


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_passing_trouble_is_retried(server: Server, status: int) -> None:
    server.script = [error(status), error(status), Reply()]
    assert ask(server)[0].text == "4"
    assert len(server.bodies) == 3
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]


def test_backoff_grows(server: Server) -> None:
    server.script = [error(500)] * 4 + [Reply()]
    ask(server, backoff=0.05)
    gaps = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
    # jitter is between half and the whole of 50, 100, 200, 400 ms
    assert all(gap >= 0.025 * 2**i for i, gap in enumerate(gaps))


def test_retry_after_is_honoured(server: Server) -> None:
    server.script = [error(429, retry_after="0.4"), Reply()]
    ask(server)
    assert server.times[1] - server.times[0] >= 0.4


def test_retry_after_as_a_date_is_honoured(server: Server) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    server.script = [error(503, retry_after=date), Reply()]
    ask(server)
    assert server.times[1] - server.times[0] >= 0.5  # dates have whole seconds


def test_retry_after_nonsense_is_ignored_and_a_day_is_not_waited_for(server: Server) -> None:
    server.script = [error(429, retry_after="soon"), error(429, "quota", retry_after="86400")]
    with pytest.raises(EngineError, match="86400 s"):
        ask(server)
    assert len(server.bodies) == 2


@pytest.mark.parametrize("status", [400, 402, 403, 422])
def test_other_4xx_are_not_retried(server: Server, status: int) -> None:
    server.script = [error(status, "top_p must be in (0, 1]")]
    with pytest.raises(EngineError, match=rf"answered {status} \(top_p must be in"):
        ask(server)
    assert len(server.bodies) == 1


def test_500_for_ever_raises_after_all_tries(server: Server) -> None:
    server.script = [error(500, "CUDA out of memory " * 50)]
    with pytest.raises(EngineError, match=r"after 4 tries, http://.*/completions answered 500 \(CUDA") as e:
        ask(server, retries=3)
    assert len(server.bodies) == 4
    assert len(str(e.value)) < 400 and "\n" not in str(e.value)


def test_one_failure_stops_the_other_samples(server: Server) -> None:
    server.script = [error(400)] + [error(500)] * 50

    async def job(engine: OpenAIEngine) -> int:
        with pytest.raises(EngineError, match="answered 400"):
            await engine.generate(ASK, Sampling(), n=2)
        asked = len(server.bodies)
        await asyncio.sleep(0.3)
        return len(server.bodies) - asked

    assert use(server, job, backoff=0.01, retries=20) <= 1  # one may have been on its way


def test_connection_refused_says_how_to_look(server: Server) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can open it meanwhile
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        for job in (ask, connect):
            with pytest.raises(EngineError, match=rf"is the server running\? try: curl {url}/models"):
                job(url, retries=2)


def test_a_dropped_connection_is_retried(server: Server) -> None:
    server.script = [Reply(cut=True), Reply()]
    assert ask(server)[0].text == "4"
    assert len(server.bodies) == 2


def test_connections_dropped_for_ever_raise(server: Server) -> None:
    server.script = [Reply(cut=True)]
    with pytest.raises(EngineError, match="after 2 tries"):
        ask(server, retries=1)


def test_timeout_is_retried_and_then_raises(server: Server) -> None:
    server.script = [Reply(delay=1.0), Reply()]
    assert ask(server, timeout=0.4)[0].seconds < 0.4  # only the try that succeeded is timed
    server.script, asked = [Reply(delay=1.0)], len(server.bodies)
    with pytest.raises(EngineError, match=r"after 2 tries, .* gave no answer in 0.4 s"):
        ask(server, timeout=0.4, retries=1)
    assert len(server.bodies) - asked == 2


def test_the_concurrency_cap_holds(server: Server) -> None:
    server.script = [Reply(delay=0.02)]

    async def crowd(engine: OpenAIEngine) -> Any:
        return await asyncio.gather(*(engine.generate(ASK, Sampling(), n=3, seed=i) for i in range(20)))

    samples = use(server, crowd, concurrency=4)
    assert sum(map(len, samples)) == len(server.bodies) == 60
    assert server.busiest == 4  # reached, never passed
    assert len(server.connections) <= 4


def test_waiting_for_a_slot_is_no_timeout_and_not_timed(server: Server) -> None:
    server.script = [Reply(delay=0.1)]
    samples = ask(server, n=12, concurrency=1, timeout=0.6)  # the last one waits for 1.1 s
    assert len(server.bodies) == 12
    assert max(sample.seconds for sample in samples) < 0.6


def test_a_busy_server_gets_fewer_requests(server: Server) -> None:
    server.script = [error(429, retry_after="0.3"), Reply()]
    ask(server, n=2, concurrency=1)
    assert server.times[1] - server.times[0] >= 0.3  # the other sample did not jump in


def test_length_finish(server: Server) -> None:
    server.script = [Reply(body=answer("so far", "length", 256))]
    assert ask(server)[0].finish == "length"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=answer("no", "content_filter")),
        Reply(body=answer("no", "tool_calls")),
        Reply(body=answer(None)),
        error(400, "The response was filtered due to the prompt triggering our content management policy."),
        Reply(400, {"error": {"code": "content_filter", "message": "no"}}),
        error(403, "blocked by moderation"),
    ],
)
def test_a_filter_refuses_one_prompt(server: Server, reply: Reply) -> None:
    server.script = [reply]
    with pytest.raises(Refused):
        ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "reply",
    [
        *(error(400, "unknown field top_k"), error(403, "no such key"), error(404)),
        *(Reply(body=answer("no", finish)) for finish in ("abort", None)),
    ],
)
def test_what_is_wrong_with_every_prompt_ends_a_run(server: Server, reply: Reply) -> None:
    server.script = [reply]
    with pytest.raises(EngineError) as raised:
        ask(server)
    assert not isinstance(raised.value, Refused)


def test_half_a_character_is_replaced(server: Server) -> None:
    """JSON can spell it, and no file of ours could hold it."""
    server.script = [Reply(body=answer("half \ud83d of 4"))]
    assert ask(server)[0].text == "half ? of 4"


def test_an_empty_answer_is_an_answer(server: Server) -> None:
    server.script = [Reply(body=answer("", "stop", 1))]
    assert ask(server)[0].text == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (answer(None), r"no content \(finish_reason=stop\)"),
        (answer("no", "content_filter"), "finish_reason=content_filter"),
        (answer("no", "tool_calls"), "finish_reason=tool_calls"),
        (answer("no", None), "finish_reason=None"),
        (answer(tokens=None), r"no usage\.completion_tokens"),
        (answer() | {"usage": None}, r"no usage\.completion_tokens"),
        ({"choices": [], "usage": {"completion_tokens": 0}}, "holds no answer"),
        ({"error": {"message": "upstream is down", "code": 502}}, "holds no answer: upstream is down"),
        ("<html>Please log in</html>", "holds no answer: <html>Please log in"),
        ("[]", "holds no answer"),
        ('"text"', "holds no answer"),
    ],
)
def test_what_is_no_answer_raises(server: Server, body: Any, words: str) -> None:
    server.script = [Reply(body=body)]
    with pytest.raises(EngineError, match=words):
        ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 2048 tokens. However, you requested 3000 tokens."),
        (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
        (400, "max_tokens must be at least 1, got -186."),
        (400, "The input (61709 tokens) is longer than the model's context length (40960 tokens)."),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),
        (500, "the request exceeds the available context size. try increasing the context size"),
    ],
)
def test_context_overflow_is_prompt_too_long(server: Server, status: int, message: str) -> None:
    server.script = [error(status, message)]
    with pytest.raises(PromptTooLong, match="lower max_tokens"):
        ask(server)
    assert len(server.bodies) == 1


def test_overflow_named_by_its_code_only(server: Server) -> None:
    server.script = [Reply(400, {"error": {"message": "too big", "code": "context_length_exceeded"}})]
    with pytest.raises(PromptTooLong):
        ask(server)


def test_a_bad_key_says_what_to_set_and_is_not_repeated(server: Server) -> None:
    server.script = [error(401, "Incorrect API key provided: sk-secret")]
    server.models = error(401, "Incorrect API key provided: sk-secret")
    for job in (ask, connect):
        with pytest.raises(EngineError, match=r"set the key in .*OPENAI_API_KEY") as e:
            job(server, api_key="sk-secret")
        assert "sk-secret" not in str(e.value)


def test_an_unknown_model_lists_the_known_ones(server: Server) -> None:
    server.script = [error(404, "The model `gpt` does not exist.")]
    for job in (ask, connect):
        with pytest.raises(EngineError, match="has no model gpt: known: student, teacher"):
            job(server, model="gpt")
        with pytest.raises(EngineError, match=r"has no model studnt: did you mean student\?"):
            job(server, model="studnt")


@pytest.mark.parametrize("models", [Reply(body=MODELS), error(404), error(401)])
def test_a_wrong_path_says_so(server: Server, models: Reply) -> None:
    server.script, server.models = [Reply(404, {"detail": "Not Found"})], models
    with pytest.raises(EngineError, match=r"answered 404 \(Not Found\): is base_url right\?"):
        ask(server)


@pytest.mark.parametrize("models", [error(404), error(405), Reply(body="<html>"), Reply(body={"data": []})])
def test_connect_accepts_an_endpoint_without_a_list_of_models(server: Server, models: Reply) -> None:
    server.models = models
    assert connect(server).name == "student"


def test_connect_reads_gemini_names(server: Server) -> None:
    server.models = Reply(body={"data": [{"id": "models/student"}, {}, "odd"]})
    connect(server)


def test_the_revision_follows_model_endpoint_and_weights(server: Server) -> None:
    first = connect(server)
    assert (first.name, first.revision.split("#")[0]) == ("student", server.url)
    assert connect(server).revision == first.revision == connect(server.url + "/").revision
    assert connect(server, model="teacher").revision != first.revision
    server.models = Reply(body={"data": [{"id": "student", "root": "/weights/b", "created": 5}]})
    other = connect(server).revision
    assert other != first.revision
    server.models = Reply(body={"data": [{"id": "student", "root": "/weights/b", "created": 6}]})
    assert connect(server).revision == other  # vLLM's `created` is the time of asking


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://x/v1", "http://host:port/v1", "http://", ""])
def test_a_wrong_base_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(EngineError, match="write it like http://"):
        OpenAIEngine("student", url)


@pytest.mark.parametrize("url", ["http://[::1]:8000/v1", "https://api.openai.com/v1/", "http://h:80"])
def test_a_right_base_url_is_taken(url: str) -> None:
    assert OpenAIEngine("student", url).base_url == url.rstrip("/")


def test_it_cannot_score(server: Server) -> None:
    with pytest.raises(EngineError, match="use a local model or engine=vllm"):
        use(server, lambda engine: engine.score([1], [2]))
