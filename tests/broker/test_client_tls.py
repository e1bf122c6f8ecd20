"""The asyncio client over TLS: a front of ours speaks it before the real broker."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager

import pytest
from support.secure_kafka import key, trust

from klamm_base.errors import ConfigError
from klamm_base.security import ClientSecurity
from klamm_base.tls import TlsSettings
from klamm_kafka.client import AuthenticationFailed, Connection, ConnectionLost
from klamm_kafka.client.secure import Secure
from klamm_kafka.wire.messages.metadata import MetadataRequest


@asynccontextmanager
async def front(broker, host="127.0.0.1", **props):
    """Yields a TLS listener that passes bytes on to the broker; gives its port."""
    settings = {**key("server", "jks"), **trust("p12"), **props}
    context = TlsSettings.from_properties(settings).server_context()
    tasks = set()

    async def copy(reader, writer):
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    async def serve(reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", broker.port)
        tasks.add(asyncio.current_task())
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(serve, host, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def metadata(port, host="localhost", **props):
    security = ClientSecurity.from_properties({"security.protocol": "SSL", **props})
    async with await Connection.open(host, port, secure=Secure(security), timeout_s=60) as connection:
        return await connection.request(MetadataRequest(topics=[]))


@pytest.mark.parametrize("store", ["jks", "p12", "pem"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_broker_behind_tls(broker, store, host):
    async with front(broker) as port:
        assert (await metadata(port, host, **trust(store))).brokers


@pytest.mark.parametrize("store", ["jks", "p12", "pem", "encrypted"])
async def test_a_client_shows_its_certificate(broker, store):
    async with front(broker, **{"ssl.client.auth": "required"}) as port:
        assert (await metadata(port, **trust(), **key("client", store))).brokers


async def test_who_is_not_believed_is_told_so(broker):
    from support.secure_kafka import STORES

    async with front(broker) as port:
        with pytest.raises(AuthenticationFailed, match="certificate is not trusted"):
            await metadata(port, **{"ssl.truststore.location": str(STORES / "other-ca.pem")})
    async with front(broker, **{"ssl.client.auth": "required"}) as port:
        with pytest.raises(
            (AuthenticationFailed, ConnectionLost),
            match=r"refuses the TLS handshake|does it want a certificate",
        ):
            await metadata(port, **trust())


async def test_another_name_is_not_believed_unless_told_so(broker):
    """127.0.0.2 is not in the server's certificate."""
    async with front(broker, host="127.0.0.2") as port:
        with pytest.raises(AuthenticationFailed, match=r"not valid for '127\.0\.0\.2'"):
            await metadata(port, "127.0.0.2", **trust())
        loose = {**trust(), "ssl.endpoint.identification.algorithm": ""}
        assert (await metadata(port, "127.0.0.2", **loose)).brokers


async def test_plain_and_tls_are_told_apart(broker):
    with pytest.raises(ConnectionLost, match=r"look at security\.protocol"):
        await metadata(broker.port, "127.0.0.1", **trust())
    async with front(broker) as port:
        with pytest.raises(
            ConnectionLost,
            match=r"the other side speaks TLS|closed the connection; does it want TLS or a login \(security\.protocol\)\?",
        ):
            await Connection.open("127.0.0.1", port, timeout_s=60)


def test_a_listener_needs_a_key_and_who_is_to_be_believed():
    with pytest.raises(ConfigError, match=r"needs ssl\.keystore\.location"):
        TlsSettings.from_properties({}).server_context()
    with pytest.raises(ConfigError, match=r"needs ssl\.truststore\.location"):
        TlsSettings.from_properties({**key("server", "p12"), "ssl.client.auth": "required"}).server_context()
