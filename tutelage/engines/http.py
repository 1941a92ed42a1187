"""What engines that speak HTTP share: a client, addresses, seeds, and replies of which nothing is taken for granted."""

import hashlib
import json
import re
import resource
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi

from tutelage.errors import EngineError

FILES = 65536  # open at once
IDLE = 4.0  # seconds an unused connection is kept: vLLM drops it after 5
URL = re.compile(r"https?://(\[[\da-f:]+\]|[^/\s:\[\]]+)(:\d{1,5})?(/\S*)?$", re.IGNORECASE)

# No two servers word it alike: OpenAI, vLLM, llama.cpp, SGLang, Text Generation Inference, Anthropic.
OVERFLOW = re.compile(
    r"(?i)context[ _]?(length|size|window)|maximum (model|sequence) length|`inputs` tokens|prompt is too long"
    r"|max_tokens must be at least 1, got [-0]"
)


@dataclass(frozen=True)
class Reply:
    """A whole answer, and the address that gave it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """aiohttp, because looking for a free connection takes httpx 20 ms among 512."""

    def __init__(self, timeout: float, proxy: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        """`timeout` is for one reply. Headers are no session's, because aiohttp shows those to the proxy."""
        roomy()
        self.timeout = timeout
        self.options: dict[str, Any] = {"proxy": proxy, "headers": headers, "allow_redirects": False}
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str, body: Any = None, **options: Any) -> Reply:
        if self._session is None:  # it needs a running loop
            self._session = aiohttp.ClientSession(
                # Who asks keeps a cap: a tighter pool would close one server's idle connections to open another's.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, ssl=trusted()),
                timeout=aiohttp.ClientTimeout(connect=min(self.timeout, 20.0), sock_read=self.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                json_serialize=lambda body: json.dumps(body, separators=(",", ":")),
            )
        method = "GET" if body is None else "POST"
        async with self._session.request(method, url, json=body, **self.options, **options) as answer:
            return Reply(url, answer.status, answer.headers, await answer.read())

    async def close(self) -> None:
        if self._session:
            await self._session.close()


@cache
def roomy() -> None:
    """Every connection is an open file, and a process may often have few of them until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft < wanted and soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that this system knows, and certifi's, because some know none."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def proxy(url: str) -> str | None:
    """The one that the environment names. aiohttp's own way to it reads a ~/.netrc too, and fails where that and a key
    of ours are for one host."""
    parts, known = urlsplit(url), getproxies()
    found = known.get(parts.scheme) or known.get("all")
    if not found or proxy_bypass(re.sub(r"[][]", "", parts.netloc)):  # no_proxy has IPv6 without brackets
        return None
    found = found if "://" in found else f"http://{found}"
    if not found.startswith("http"):
        raise EngineError(f"the proxy for {url} is {found.partition(':')[0]}, which is not spoken: name one of HTTP")
    return found


def why(error: Exception) -> str:
    """Its words, without the password of a proxy that aiohttp repeats."""
    return re.sub(r"//\S*@", "//", str(error)) or type(error).__name__


def derive(seed: int, i: int) -> int:
    """The seed of sample `i`: 31 bits that every server accepts, apart for neighbouring seeds."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{i}".encode(), digest_size=4).digest()) >> 1


def dig(data: Any, *path: str | int) -> Any:
    """What lies at `path` in a reply, or None: no server is trusted to keep to the schema."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def content(reply: Reply) -> Any:
    try:
        return reply.json()
    except ValueError:  # a proxy's page, or half an answer
        return None


def said(reply: Reply) -> str:
    """The server's own words on one short line."""
    data = content(reply)
    found = (dig(data, *path) for path in (("error", "message"), ("error",), ("message",), ("detail",)))
    return " ".join(str(next(filter(None, found), reply.text or "no message")).split())


def short(line: str) -> str:
    return line if len(line) <= 200 else line[:199] + "…"


def overflows(reply: Reply) -> bool:
    """llama.cpp once said it with a 500, TGI says it with a 422."""
    return reply.status in (400, 413, 422, 500) and OVERFLOW.search(reply.text) is not None
