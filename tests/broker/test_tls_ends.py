"""Certificates of listeners that are renewed: they tell of their end, and are for the same server (KIP-978)."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from contextlib import nullcontext
from pathlib import Path

import pytest

from klamm.security.authority import SERVER_DAYS, make_authority, make_server
from klamm_base.errors import ConfigError
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.tls_contexts import TlsContexts

pytestmark = pytest.mark.usefixtures("processes")


async def test_a_certificate_that_has_ended_or_ends_soon_is_told(tmp_path, caplog):
    store = tmp_path / "broker.pem"
    authority = make_authority("an authority", dt.datetime.now(dt.UTC))

    def put(days: int) -> None:
        began = dt.datetime.now(dt.UTC) - dt.timedelta(days=SERVER_DAYS - days)
        signed = make_server(authority, ["localhost"], began)
        (tmp_path / "new.pem").write_bytes(signed.key + signed.certificate)
        (tmp_path / "new.pem").rename(store)

    def told() -> list[str]:
        found = [r.getMessage() for r in caplog.records if "its certificate" in r.getMessage()]
        caplog.clear()
        return found

    put(5)
    contexts, loop = TlsContexts(), asyncio.get_running_loop()
    contexts.take(BrokerConfig.load({"listeners": "SSL://:0", "ssl.keystore.location": str(store)}))
    contexts.look(loop)
    day = (dt.datetime.now(dt.UTC) + dt.timedelta(days=5)).date()
    assert told() == [f"listener SSL: its certificate ends on {day}"]
    contexts.look(loop)
    assert told() == []
    for days, words in ((-2, " has ended on "), (100, None)):
        put(days)
        before = contexts["SSL"]
        contexts.look(loop)
        async with asyncio.timeout(30):
            while contexts["SSL"] is before:
                await asyncio.sleep(0.01)
        found = told()
        assert len(found) == (words is not None)
        assert all(words in line for line in found)


@pytest.mark.parametrize(
    ("names", "allowed", "refused"),
    [
        (["localhost", "one"], "", ""),
        (["localhost", "one", "two"], "", ""),
        (["localhost"], "", "not for one; ssl.allow.san.changes=true"),
        (["localhost"], "ssl.allow.san.changes", ""),
        (["two", "localhost", "one"], "", "CN=two is the new certificate's name, not CN=localhost"),
        (["two", "localhost", "one"], "ssl.allow.dn.changes", ""),
    ],
)
async def test_a_renewed_certificate_is_for_the_same_server(tmp_path, caplog, names, allowed, refused):
    authority = make_authority("an authority", dt.datetime.now(dt.UTC))

    def put(names: list[str], path: Path) -> None:
        signed = make_server(authority, names, dt.datetime.now(dt.UTC))
        (tmp_path / "new.pem").write_bytes(signed.key + signed.certificate)
        (tmp_path / "new.pem").rename(path)

    def config(path: Path) -> BrokerConfig:
        props = {"listeners": "SSL://:0", "ssl.keystore.location": str(path)}
        return BrokerConfig.load(props | ({allowed: "true"} if allowed else {}))

    store, other = tmp_path / "broker.pem", tmp_path / "other.pem"
    put(["localhost", "one"], store)
    put(names, other)
    contexts, loop = TlsContexts(), asyncio.get_running_loop()
    contexts.take(config(store))
    with pytest.raises(ConfigError, match=refused) if refused else nullcontext():
        contexts.check(config(other))  # by a dynamic config

    before = contexts["SSL"]
    caplog.set_level(logging.INFO, "klamm_broker.server.tls_contexts")
    put(names, store)  # the same file
    contexts.look(loop)
    async with asyncio.timeout(30):
        while not caplog.records:
            await asyncio.sleep(0.01)
    assert (contexts["SSL"] is before) == bool(refused)
    assert (refused or "has read its key store") in caplog.text
