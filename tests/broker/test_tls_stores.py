"""Stores that are read while the broker runs: the event loop goes on, whatever a store takes, and no change is lost."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
import time

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate
from support.inprocess import connect, serving

from klamm.security.authority import make_authority, make_server
from klamm_base import keystores
from klamm_base.errors import ConfigError
from klamm_broker.server import tls_stores
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.tls_contexts import TlsContexts
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

pytestmark = pytest.mark.usefixtures("processes")
ROUNDS = 1_000_000
PASSWORD = "store-secret"


@pytest.fixture(scope="module")
def store():
    """Returns a PKCS12 store that takes a quarter of a second, each time that it is read."""
    signed = make_server(
        make_authority("an authority", dt.datetime.now(dt.UTC)), ["localhost"], dt.datetime.now(dt.UTC)
    )
    key = serialization.load_pem_private_key(signed.key, None)
    slow = (
        serialization.PrivateFormat.PKCS12.encryption_builder().kdf_rounds(ROUNDS).hmac_hash(hashes.SHA256())
    )
    certificate = load_pem_x509_certificate(signed.certificate)
    return pkcs12.serialize_key_and_certificates(b"a", key, certificate, None, slow.build(PASSWORD.encode()))


def serving_plain(tmp_path):
    return serving(tmp_path / "data", listener_security_protocol_map="PLAINTEXT:PLAINTEXT,TLS:SSL")


async def change(connection, **values):
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    asked = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    (answer,) = (await connection.request(IncrementalAlterConfigsRequest(resources=[asked]))).responses
    return answer.error_message if answer.error_code else None


def with_store(server, path):
    port = server.broker.listeners["PLAINTEXT"].port
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},TLS://127.0.0.1:0",
        "listener.name.tls.ssl.keystore.location": str(path),
        "listener.name.tls.ssl.keystore.password": PASSWORD,
    }


async def test_a_store_of_a_million_rounds_does_not_hold_the_loop(tmp_path, store):
    path = tmp_path / "store.p12"
    path.write_bytes(store)
    began = time.thread_time()
    pkcs12.load_pkcs12(store, PASSWORD.encode())
    cost = time.thread_time() - began
    async with serving_plain(tmp_path) as server, await connect(server) as connection:
        began = time.thread_time()
        changed = asyncio.create_task(change(connection, **with_store(server, path)))
        async with await connect(server) as other:
            assert await change(other, **{"max.connections": "99"}) is None
            assert not changed.done()
        assert await changed is None
        assert time.thread_time() - began < cost / 2
        assert server.broker.config["max.connections"] == 99, "a change that came meanwhile is not lost"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = server.broker.listeners["TLS"].port
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()


async def test_a_store_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tls_stores, "LIMIT_S", 1.0)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    async with serving_plain(tmp_path) as server, await connect(server) as connection:
        refused = await change(connection, **with_store(server, path))
        assert "listener TLS: its stores cannot be read: not within 1 s" in refused
        assert server.broker.config.dynamic == {}


async def test_a_store_with_another_password_is_refused_in_its_words(tmp_path, store):
    path = tmp_path / "store.p12"
    path.write_bytes(store)
    async with serving_plain(tmp_path) as server, await connect(server) as connection:
        wrong = with_store(server, path) | {"listener.name.tls.ssl.keystore.password": "another-secret"}
        refused = await change(connection, **wrong)
        assert f"ssl.keystore.location={path}: PKCS12 that cannot be opened: the password is wrong" in refused
        assert "secret" not in refused


def test_a_store_is_read_once_for_check_and_take(tmp_path, store, monkeypatch):
    path = tmp_path / "store.p12"
    path.write_bytes(store)
    read = []
    monkeypatch.setattr(keystores.Store, "read", lambda self: read.append(self.path) or store)
    props = {"listeners": "SSL://:0", "ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}
    config, contexts = BrokerConfig.load(props), TlsContexts()
    for job in contexts.reading(config):
        job()
    contexts.check(config)
    contexts.take(config)
    assert contexts["SSL"].names.subject == "CN=localhost"
    assert read == [], "the process has read it"
    assert list(contexts.reading(config)) == [], "nothing is new"


def test_stores_have_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(keystores, "BYTES_MAX", 100)
    path = tmp_path / "store.pem"
    path.write_bytes(bytes(101))
    with pytest.raises(ConfigError, match="is larger than 100 bytes"):
        keystores.read_trusted(keystores.Store(name="ssl.truststore.location", path=str(path)))


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "import os; os.abort()"])
def test_a_process_that_fails_is_told(monkeypatch, code):
    monkeypatch.setattr(tls_stores, "_COMMAND", (tls_stores.sys.executable, "-c", code))
    with pytest.raises(ConfigError, match="the process that reads them ended with exit code"):
        tls_stores.read_apart({})


def test_settings_come_through_the_process_as_they_are(tmp_path):
    signed = make_server(
        make_authority("an authority", dt.datetime.now(dt.UTC)), ["localhost"], dt.datetime.now(dt.UTC)
    )
    (tmp_path / "store.pem").write_bytes(signed.key + signed.certificate)
    props = {
        "ssl.keystore.location": str(tmp_path / "store.pem"),
        "ssl.truststore.location": str(tmp_path / "store.pem"),
        "ssl.key.password": "unused",
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ssl.client.auth": "required",
        "ssl.enabled.protocols": "TLSv1.3",
    }
    assert tls_stores.read_apart(props) == tls_stores.TlsSettings.from_properties(props)
