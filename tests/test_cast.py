"""What a command opens, it closes."""

import asyncio

import pytest

from tutelage.cast import speakers
from tutelage.config import Roles
from tutelage.engines.openai import OpenAIEngine
from tutelage.errors import EngineError


def test_endpoints_are_closed_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def connect(engine: OpenAIEngine) -> OpenAIEngine:
        if engine.name == "second":
            raise EngineError("gone")
        return engine

    async def close(engine: OpenAIEngine) -> None:
        closed.append(engine.name)

    async def main() -> None:
        async with speakers(Roles(), [("first", "http://one.invalid/v1"), ("second", "http://two.invalid/v1")]):
            pass

    monkeypatch.setattr(OpenAIEngine, "connect", connect)
    monkeypatch.setattr(OpenAIEngine, "close", close)
    with pytest.raises(EngineError, match="gone"):
        asyncio.run(main())
    assert closed == ["second", "first"]
