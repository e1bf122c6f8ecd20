"""Apache's clients log in by Kerberos, with a real KDC."""

from __future__ import annotations

import subprocess

import pytest
from support import kafka_oracle
from support.kafka_broker import free_port
from support.kerberos import BROKER, REALM, Kdc
from support.klamm import klamm

from klamm.testing import EmbeddedBroker
from klamm.testing.broker import BrokerFailed

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def realm(kdc, tmp_path_factory):
    with Kdc(tmp_path_factory.mktemp("kdc")) as found:
        yield found


@pytest.fixture
def served(realm, monkeypatch):
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    return realm


def properties(table, port=0, **more):
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CLIENTS://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.clients.gssapi.sasl.jaas.config": f'{MODULE} required useKeyTab=true storeKey=true keyTab="{table}" principal="{BROKER}";',
        **more,
    }


def log_in(realm, port, table, principal, tmp_path):
    """Lists topics by Apache's tool."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true keyTab="{table}" principal="{principal}";\n'
    )
    command = kafka_oracle.require().command(
        TOPICS, "--list", "--bootstrap-server", f"localhost:{port}", "--command-config", str(file)
    )
    flags = [f"-Djava.security.krb5.conf={realm.folder / 'krb5.conf'}"]
    return subprocess.run(
        [command[0], *flags, *command[1:]], capture_output=True, text=True, timeout=120, check=False
    )


def test_apaches_client_logs_in_by_its_key_table(served, tmp_path, apache_kafka):
    table, of_ann = served.key_table(BROKER), served.key_table(f"ann@{REALM}")
    rules = {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](b.*)s/^.*$/guest/,DEFAULT"}
    port = free_port()
    with EmbeddedBroker(tmp_path / "data", config=properties(table, port, **rules)) as broker:
        assert klamm("topic", "create", "seen", "-b", broker.bootstrap).returncode == 0
        listed = log_in(served, port, of_ann, f"ann@{REALM}", tmp_path)
        assert (listed.returncode, listed.stdout.split()) == (0, ["seen"]), listed.stderr
        of_bob = served.key_table(f"bob@{REALM}")
        assert log_in(served, port, of_bob, f"bob@{REALM}", tmp_path).returncode == 0
        assert '"principal": "User:ann"' in broker.log_text
        assert '"principal": "User:guest"' in broker.log_text


def test_a_key_table_without_the_brokers_keys_ends_the_start(served, tmp_path, apache_kafka):
    table = served.key_table(f"other@{REALM}")
    with pytest.raises(BrokerFailed, match=r"gssapi\.sasl\.jaas\.config: .*other.* cannot be used"):
        EmbeddedBroker(tmp_path / "data", config=properties(table)).start()
    with pytest.raises(BrokerFailed, match="there is no such key table"):
        EmbeddedBroker(tmp_path / "data", config=properties(tmp_path / "none")).start()
