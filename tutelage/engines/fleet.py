"""One or many vLLM servers as one: routing by load and prefix, retries, and servers that die taken out."""

import asyncio
import errno
import random
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from tutelage.engines.http import URL, Client, Reply, content, dig, said, short, why
from tutelage.engines.turnstile import Turnstile
from tutelage.errors import EngineError

OLDEST, NEWEST = (0, 26), (0, 32)  # versions of vLLM this was run with, and those between
TRIES = 4  # a server that drops this many connections in a row is dead
PATIENCE = 15.0  # seconds without a reply after which a server is asked whether it is well
BLOCK, BLOCKS = 64, 100_000  # tokens between two marks of a prompt, and marks that are remembered
SLACK = 8  # samples a server may be ahead of the idlest before prompts it knows go elsewhere
CAP = 512  # requests at once, each a connection
TOKENS = "/inference/v1/generate"  # ids in and out: takes a server 2/3 of the CPU time of /v1/completions
LOGS = "results/latest_run/vllm_server*.log"


class Lost(EngineError):
    """This server is dead: another one may answer."""


class Unwell(Exception):
    """It owes a reply and is not healthy."""


@dataclass(eq=False)
class Server:
    """One address, and what we know of it."""

    url: str
    load: int = 0  # samples asked of it and not yet received
    death: str = ""  # why it was taken out
    version: str = ""
    terse: bool = False  # speaks tokens only where that is enough
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    turnstile: Turnstile | None = None  # where models must not speak together
    probe: "asyncio.Task[bool] | None" = None  # all who wonder whether it is well wait for one answer


class Fleet:
    """Servers of the same models, one pool of connections and one cap on requests for all that speak through it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        concurrency: int = CAP,
        timeout: float = 1800.0,
        backoff: float = 0.25,
        patience: float = PATIENCE,
    ) -> None:
        """`timeout` is for one reply, `patience` for asking meanwhile whether a server is well; `backoff` is the wait
        after a first lost connection and doubles after each."""
        for url in urls:
            if not URL.match(url):
                raise EngineError(f"{url} is no address of a server: write it like http://127.0.0.1:8765")
        self.servers = [Server(url.rstrip("/").removesuffix("/v1")) for url in dict.fromkeys(urls)]
        for server in self.servers:
            server.turnstile = Turnstile() if without_gpu(server.url) else None
        self.timeout, self.backoff, self.patience = timeout, backoff, patience
        self._slots = asyncio.Semaphore(concurrency)
        self._jitter = random.Random()  # our own, so that retries never move the seeds of a run
        self._knows: dict[int, set[Server]] = {}
        self._client = Client(timeout)  # no proxy: one for the outside world is not for servers of ours

    def living(self) -> list[Server]:
        """The servers that are left; none is the end."""
        living = [server for server in self.servers if not server.death]
        if not living:
            causes = "; ".join(f"{server.url} {server.death}" for server in self.servers)
            raise EngineError(
                f"no vLLM server is left ({causes}): read {LOGS} or where their output goes, start them again and "
                "repeat the command, which goes on from its last checkpoint"
            )
        return living

    async def connect(self) -> Self:
        """Every server is up, of a version we know, and says what it serves."""
        try:
            await asyncio.gather(*(self._meet(server) for server in self.servers))
        except BaseException:
            await self.close()  # whoever was to close it never gets it
            raise
        return self

    async def ask(
        self, model: str, prompt: Sequence[int], request: Callable[[Server], tuple[str, Any]], samples: int = 1
    ) -> tuple[Server, Reply]:
        """The answer of whichever server suits the prompt to the path and body of its `request`; when it dies
        meanwhile, of another."""
        marks = list(marked(prompt))
        async with self._slots:
            while True:
                server = self._choose(marks)
                server.load += samples
                turn = server.turnstile.turn(model) if server.turnstile else nullcontext()
                try:
                    async with turn:
                        return server, await self.send(server, *request(server))
                except Lost:
                    continue
                finally:
                    server.load -= samples

    async def send(self, server: Server, path: str, body: Any = None, most: int = TRIES) -> Reply:
        """A reply of this server; lost connections are tried again, because an idle one is dropped now and then."""
        url, reason = server.url + path, ""
        for tries in range(most):
            if server.death:
                raise Lost(f"{server.url} {server.death}")
            try:
                reply = await self._reply(server, url, body)
            except aiohttp.SocketTimeoutError:
                if await self._healthy(server):
                    raise EngineError(f"{url} gave no answer in {self.timeout:g} s: read {LOGS}") from None
                reason = "gives no answer and is not healthy"
                break
            except Unwell:
                reason = "gives no answer and is not healthy"
                if await self._healthy(server):  # again
                    continue
                break
            except (aiohttp.ClientError, OSError) as error:
                if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                    raise EngineError("too many open files, and every request is one: type ulimit -n 65536") from None
                reason = f"cannot be reached ({why(error)})"
                if tries < most - 1:
                    await asyncio.sleep(self.backoff * 2**tries * self._jitter.uniform(0.5, 1.0))
                continue
            if reply.status < 500 or await self._healthy(server):
                return reply
            # vLLM's front end outlives its engine for a while and answers everything with 500.
            reason = f"answered {reply.status} and is not healthy ({short(said(reply))})"
            break
        if not server.death:
            server.death = reason
            if left := [other.url for other in self.servers if not other.death]:
                print(f"tutelage: {server.url} {reason}: its requests go to {', '.join(left)}", file=sys.stderr)
        raise Lost(f"{server.url} {reason}")

    async def _reply(self, server: Server, url: str, body: Any) -> Reply:
        """What it answers; one whose engine died may keep us waiting for ever, and only its health tells."""
        asked = asyncio.ensure_future(self._client.fetch(url, body))
        try:
            while not (await asyncio.wait([asked], timeout=self.patience))[0]:
                if not await self._healthy(server) and not asked.done():
                    raise Unwell
            return asked.result()
        finally:
            asked.cancel()

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _choose(self, marks: list[int]) -> Server:
        """The idlest of those that know most of the prompt, or the idlest of all when those are clearly busier."""
        idlest = min(self.living(), key=lambda server: server.load)
        for mark in reversed(marks):
            if known := [server for server in self._knows.get(mark, ()) if not server.death]:
                chosen = min(known, key=lambda server: server.load)
                if chosen.load <= 1.5 * idlest.load + SLACK:
                    idlest = chosen
                break
        for mark in marks:
            self._knows.setdefault(mark, set()).add(idlest)
        while len(self._knows) > BLOCKS:  # the oldest go first
            del self._knows[next(iter(self._knows))]
        return idlest

    async def _healthy(self, server: Server) -> bool:
        if server.probe is None or server.probe.done():
            server.probe = asyncio.create_task(self._probe(server))
        return await asyncio.shield(server.probe)

    async def _probe(self, server: Server) -> bool:
        """Asked more than once: a server may drop its kept-alive connections after a 500, and be well."""
        for tries in range(TRIES):
            with suppress(aiohttp.ClientError, OSError):  # a timeout is an OSError
                wait = aiohttp.ClientTimeout(total=20)
                return (await self._client.fetch(server.url + "/health", timeout=wait)).ok
            await asyncio.sleep(self.backoff * 2**tries)
        return False

    async def _meet(self, server: Server) -> None:
        try:
            health = await self.send(server, "/health")
            version = await self.send(server, "/version")
        except Lost as error:
            raise EngineError(f"{error}: is the server running? try: curl {server.url}/health") from None
        server.version = str(dig(content(version), "version") or "")
        if not health.ok or not server.version:
            raise EngineError(f"{server.url} is no vLLM server: use student_url={server.url}/v1 for other endpoints")
        found = tuple(int(part) for part in server.version.split(".")[:2] if part.isdecimal())
        if not OLDEST <= found <= NEWEST:
            span = " to ".join(".".join(map(str, edge)) for edge in (OLDEST, NEWEST))
            raise EngineError(
                f"{server.url} runs vLLM {server.version}, and only {span} are supported: pip install vllm==0.26.0, "
                "or make server on a machine without a GPU"
            )
        # Where it is open, the fault is our empty request; from some version on it is closed unless a flag opens it.
        server.terse = (await self.send(server, TOKENS, {})).status in (400, 422)
        await self.refresh(server)

    async def refresh(self, server: Server) -> None:
        """What the server says it serves, now."""
        cards = dig(content(await self.send(server, "/v1/models")), "data")
        server.models = {str(card["id"]): card for card in cards or () if dig(card, "id")}


def without_gpu(url: str) -> bool:
    """A server on this machine, where there is no GPU; one far away is taken to have one."""
    here = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1", "0.0.0.0", socket.gethostname())
    return here and not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/kfd").exists()


def marked(prompt: Sequence[int]) -> Iterator[int]:
    """A mark for every beginning of a prompt, so many tokens apart, and one for the whole of it."""
    mark = 0
    for start in range(0, len(prompt), BLOCK):
        mark = hash((mark, *prompt[start : start + BLOCK]))
        yield mark


def addresses(hosts: str, port: int, servers: int = 1) -> list[str]:
    """`hosts` is one or more, with commas: a full URL is one server, a host has `servers` of them from `port` on."""
    found = []
    for host in filter(None, (host.strip() for host in hosts.split(","))):
        if "://" in host:
            found.append(host)
        elif host.rpartition(":")[2].isdecimal() and host.count(":") == 1:
            found.append(f"http://{host}")
        else:
            found += [f"http://{host}:{port + i}" for i in range(servers)]
    if not found:
        raise EngineError("vllm_host is empty: type vllm_host=127.0.0.1")
    return found
