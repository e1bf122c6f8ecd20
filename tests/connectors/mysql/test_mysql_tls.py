"""`database.ssl.*` against a real MariaDB with and without TLS."""

import tempfile
from pathlib import Path

import pytest
from support.certificates import Authority
from support.mariadb import MariaDB, require
from support.mysql_source import Source

from klamm_plugins.errors import ConfigError, ConnectError, RetriableError

pytestmark = pytest.mark.usefixtures("mariadb_server")


@pytest.fixture(scope="module")
def authority():
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # the server is another user
        yield Authority.make(Path(directory))


@pytest.fixture(scope="module")
def encrypted(authority):
    require()
    pem = authority.issue("server")
    pem.chmod(0o644)
    options = (f"--ssl-cert={pem}", f"--ssl-key={pem}", f"--ssl-ca={authority.ca}")
    with MariaDB(*options) as server:
        server.sql("CREATE DATABASE d")
        server.sql("CREATE USER tls@'%' REQUIRE SSL")
        server.sql("CREATE USER known@'%' REQUIRE X509")
        server.sql("GRANT ALL ON *.* TO tls@'%', known@'%'")
        yield server


def poll(server, **settings):
    task = Source(server, "d", snapshot__mode="no_data", **settings)
    try:
        return task.task.poll()
    finally:
        task.task.stop()


@pytest.mark.parametrize("mode", ["preferred", "required", "trust"])
def test_encrypted_without_a_check(encrypted, mode):
    assert poll(encrypted, database__user="tls", database__ssl__mode=mode) is None


def test_the_binlog_comes_encrypted_too(encrypted, authority):
    encrypted.sql("CREATE TABLE d.t (id INT PRIMARY KEY)")
    settings = {"database__ssl__mode": "verify_identity", "database__ssl__ca": str(authority.ca)}
    task = Source(
        encrypted, "d", database__user="tls", event__format="row", snapshot__max__threads="2", **settings
    )
    task.task.poll()
    encrypted.sql("INSERT INTO d.t VALUES (1)")
    assert [r.key["id"] for r in task.read(1)] == [1]
    task.task.stop()


def test_disabled_is_in_clear(encrypted):
    with pytest.raises(ConfigError, match="Access denied"):
        poll(encrypted, database__user="tls", database__ssl__mode="disabled")
    assert poll(encrypted, database__ssl__mode="disabled") is None


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity", "verify-full"])
def test_the_servers_certificate_is_checked(encrypted, authority, mode, tmp_path):
    trusted = {"database__ssl__truststore": str(authority.ca)}
    assert poll(encrypted, database__user="tls", database__ssl__mode=mode, **trusted) is None
    (tmp_path / "other").mkdir()
    trusted = {"database__ssl__truststore": str(Authority.make(tmp_path / "other").ca)}
    with pytest.raises((ConnectError, RetriableError), match="certificate verify failed"):
        poll(encrypted, database__user="tls", database__ssl__mode=mode, **trusted)


def test_a_key_store_says_who_we_are(encrypted, authority, tmp_path):
    with pytest.raises(ConfigError, match="Access denied"):
        poll(encrypted, database__user="known", database__ssl__mode="required")
    store = as_pkcs12(authority.issue("client"), tmp_path / "client.p12", b"hush")
    settings = {
        "database__user": "known",
        "database__ssl__mode": "required",
        "database__ssl__keystore": str(store),
    }
    assert poll(encrypted, **settings, database__ssl__keystore__password="hush") is None
    with pytest.raises(ConfigError, match=r"database\.ssl\.keystore") as found:
        poll(encrypted, **settings, database__ssl__keystore__password="wrong-secret")
    assert "wrong-secret" not in str(found.value)


def test_without_tls_at_the_server_preferred_goes_on_and_required_fails():
    require()
    with MariaDB("--skip-ssl") as server:
        server.sql("CREATE DATABASE d")
        assert poll(server) is None
        with pytest.raises(ConfigError, match=r"(?i)ssl.* database\.ssl\.mode=preferred"):
            poll(server, database__ssl__mode="required")


def as_pkcs12(pem, path, password):
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    data = pem.read_bytes()
    key = serialization.load_pem_private_key(data, None)
    certificate = x509.load_pem_x509_certificate(data)
    encryption = serialization.BestAvailableEncryption(password)
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption))
    return path
