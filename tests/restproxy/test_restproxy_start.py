"""The start of a REST proxy whose brokers are away."""

from __future__ import annotations

import asyncio

import pytest

from klamm.restproxy import server
from klamm.restproxy.config import ProxyConfig
from klamm_base.properties import Properties


def test_a_start_without_brokers_says_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "SAY_AFTER_S", 0.0)
    away = {"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0"}
    proxy = server.RestProxy(ProxyConfig.from_properties(Properties(away)))

    async def start() -> None:
        try:
            await asyncio.wait_for(proxy.start(), timeout=1)
        finally:
            await proxy.stop()

    with pytest.raises(TimeoutError):
        asyncio.run(start())
    assert "waiting for the brokers at 127.0.0.1:1" in caplog.messages
