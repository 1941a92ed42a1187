"""What engines that speak HTTP share: addresses, seeds, and replies of which nothing is taken for granted."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

import httpx

URL = re.compile(r"https?://(\[[\da-f:]+\]|[^/\s:\[\]]+)(:\d{1,5})?(/\S*)?$", re.IGNORECASE)

# No two servers word it alike: OpenAI, vLLM, llama.cpp, SGLang, Text Generation Inference, Anthropic.
OVERFLOW = re.compile(
    r"(?i)context[ _]?(length|size|window)|maximum (model|sequence) length|`inputs` tokens|prompt is too long"
    r"|max_tokens must be at least 1, got [-0]"
)


@dataclass(frozen=True)
class Reply:
    """A whole answer, read like one of httpx."""

    status_code: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.body)


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


def content(reply: Reply | httpx.Response) -> Any:
    try:
        return reply.json()
    except ValueError:  # a proxy's page, or half an answer
        return None


def said(reply: Reply | httpx.Response) -> str:
    """The server's own words on one short line."""
    data = content(reply)
    found = (dig(data, *path) for path in (("error", "message"), ("error",), ("message",), ("detail",)))
    return " ".join(str(next(filter(None, found), reply.text or "no message")).split())


def short(line: str) -> str:
    return line if len(line) <= 200 else line[:199] + "…"


def overflows(reply: Reply | httpx.Response) -> bool:
    """llama.cpp once said it with a 500, TGI says it with a 422."""
    return reply.status_code in (400, 413, 422, 500) and OVERFLOW.search(reply.text) is not None
