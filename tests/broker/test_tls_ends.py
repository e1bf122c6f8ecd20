"""Certificates of listeners that end: the log tells of them once a day, and of a new one that is no better."""

from __future__ import annotations

import asyncio
import datetime as dt

from klamm.security.authority import SERVER_DAYS, make_authority, make_server
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.tls_contexts import TlsContexts


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
