"""`/metrics` over HTTPS with a listener's certificate, and for those who show a token."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ssl

import pytest
from support.broker import wait_until
from support.certificates import Authority

from klamm.testing import EmbeddedBroker
from klamm.testing.broker import BrokerFailed
from klamm_base.errors import ConfigError
from klamm_broker.server.config import BrokerConfig

TOKEN = "a-token-of-many-letters"


@pytest.fixture
def authority(tmp_path):
    return Authority.make(tmp_path)


@pytest.fixture
def secured(tmp_path, authority, processes):
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SSL",
        "listener.name.out.ssl.keystore.location": str(authority.issue("server")),
        "klamm.metrics.port": "0",
        "klamm.metrics.host": "127.0.0.1",
        "klamm.metrics.listener.name": "OUT",
        "klamm.metrics.tokens.sha256": f"{'0' * 64},{hashlib.sha256(TOKEN.encode()).hexdigest().upper()}",
    }
    with EmbeddedBroker(tmp_path / "data", config=properties) as broker:
        yield broker


def scrape(broker, authority, token=None):
    """The status of an answer, whose text is checked."""
    host, port = broker.metrics_url.split("/")[2].split(":")
    context = ssl.create_default_context(cafile=authority.ca)
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={} if token is None else {"Authorization": token})
        answer = connection.getresponse()
        assert (b"kafka_server" in answer.read()) == (answer.status == 200)
        assert (answer.headers["WWW-Authenticate"] == "Bearer") == (answer.status == 401)
        return answer.status


def serial(broker, authority):
    host, port = broker.metrics_url.split("/")[2].split(":")
    pem = ssl.get_server_certificate((host, int(port)), ca_certs=str(authority.ca))
    return hashlib.sha256(pem.encode()).hexdigest()


def test_metrics_over_https_with_a_token(secured, authority):
    assert secured.metrics_url.startswith("https://")
    assert scrape(secured, authority, f"Bearer {TOKEN}") == 200
    assert scrape(secured, authority, f"bearer {TOKEN}") == 200
    for wrong in (None, "", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer " + "0" * 64):
        assert scrape(secured, authority, wrong) == 401
    before = serial(secured, authority)
    authority.issue("server")  # the same file, another certificate
    wait_until(lambda: serial(secured, authority) != before, "the new certificate")
    assert scrape(secured, authority, f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize("name", ["PLAINTEXT", "NONE"])
def test_a_listener_without_tls_is_refused(tmp_path, processes, name):
    properties = {"klamm.metrics.port": "0", "klamm.metrics.listener.name": name}
    with pytest.raises(BrokerFailed, match="must be a listener with TLS"):
        EmbeddedBroker(tmp_path / "data", config=properties).start()


def test_a_token_instead_of_its_hash_is_refused():
    with pytest.raises(ConfigError, match="must be SHA-256 hashes"):
        BrokerConfig.load({"klamm.metrics.tokens.sha256": TOKEN})
