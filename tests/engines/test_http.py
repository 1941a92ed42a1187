"""The client's way through a proxy, against one that lets nobody pass."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import aiohttp
import pytest

from tutelage.engines.http import Client, proxy, why
from tutelage.errors import EngineError


class Gate(BaseHTTPRequestHandler):
    asked: list[dict[str, str]]

    def do_CONNECT(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.send_error(407)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def gate() -> Iterator[HTTPServer]:
    Gate.asked = []
    with HTTPServer(("127.0.0.1", 0), Gate) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("password", "shown"), [("", None), ("me:secret@", "Basic bWU6c2VjcmV0")])
def test_a_proxy_sees_no_key_and_an_error_no_password(gate: HTTPServer, password: str, shown: str | None) -> None:
    async def main() -> None:
        client = Client(5.0, f"http://{password}127.0.0.1:{gate.server_address[1]}", {"Authorization": "Bearer key"})
        try:
            await client.fetch("https://model.invalid/v1/models")
        finally:
            await client.close()

    with pytest.raises(aiohttp.ClientError) as error:
        asyncio.run(main())
    assert "407" in why(error.value) and "secret" not in why(error.value)
    assert "authorization" not in Gate.asked[0] and Gate.asked[0].get("proxy-authorization") == shown


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://model.invalid/v1", "http://near:1"),
        ("https://model.invalid/v1", "https://far:2"),
        ("http://ours.invalid:8000/v1", None),
        ("http://a.ours.invalid/v1", None),
        ("http://[::1]:8000/v1", None),
    ],
)
def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch, url: str, found: str | None) -> None:
    named = {"http": "near:1", "all": "https://far:2", "no": "ours.invalid,::1"}
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    for name, value in named.items():
        monkeypatch.setenv(f"{name}_proxy", value)
    assert proxy(url) == found
    monkeypatch.setenv("http_proxy", "socks5://me:secret@near:1")
    with pytest.raises(EngineError, match=r"is socks5, which is not spoken") as error:
        proxy("http://model.invalid/v1")
    assert "secret" not in str(error.value)
