"""An Apache Kafka broker with TLS and SASL listeners, and the stores of `tests/fixtures/stores`.

Listeners beside PLAINTEXT: SSL (clients must show a certificate), SASL_PLAINTEXT and SASL_SSL with PLAIN,
SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (unsecured tokens). User `ann`, password `PASSWORD`, in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.kafka_broker import KafkaBroker, free_port, wait_for

STORES = Path(__file__).resolve().parent.parent / "fixtures/stores"
STORE_PASSWORD, KEY_PASSWORD = "storepass", "keypass"
USER, PASSWORD = "ann", 'an"n,s=ecrét'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def quoted(text: str) -> str:
    """Returns a string of JAAS."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas(mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
    """Returns a client's `sasl.jaas.config`."""
    if mechanism == "OAUTHBEARER":
        return f'{OAUTH} required unsecuredLoginStringClaim_sub="{user}";'
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return f'{module} required username="{user}" password={quoted(password)};'


def trust(kind: str = "jks") -> dict[str, str]:
    """Returns a client's trust store: jks, p12 or pem."""
    if kind == "pem":
        return {"ssl.truststore.location": str(STORES / "ca.pem"), "ssl.truststore.type": "PEM"}
    return {
        "ssl.truststore.location": str(STORES / f"trust.{kind}"),
        "ssl.truststore.password": STORE_PASSWORD,
    }


def key(who: str, kind: str) -> dict[str, str]:
    """Returns a key store: jks, p12, pem, or pem with an encrypted key (of the client only)."""
    if kind == "pem":
        return {"ssl.keystore.location": str(STORES / f"{who}.pem"), "ssl.keystore.type": "PEM"}
    if kind == "encrypted":
        location = str(STORES / "client-encrypted.pem")
        return {
            "ssl.keystore.location": location,
            "ssl.keystore.type": "PEM",
            "ssl.key.password": KEY_PASSWORD,
        }
    store = {"ssl.keystore.location": str(STORES / f"{who}.{kind}"), "ssl.keystore.password": STORE_PASSWORD}
    return store | ({"ssl.key.password": KEY_PASSWORD} if kind == "jks" else {})


class SecureKafka(KafkaBroker):
    """`connection(protocol, mechanism)` are Java's properties for a client."""

    def __init__(self, work: Path, properties: Mapping[str, str] | None = None) -> None:
        self.ports = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        controller = free_port()
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        listeners += f",CONTROLLER://127.0.0.1:{controller}"
        protocols = ",".join(f"{name}:{name}" for name in self.ports)
        secure = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.ssl.ssl.client.auth": "required",
            **trust(),
            **key("server", "jks"),
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{name}"
            users = f"{PLAIN} required user_{USER}={quoted(PASSWORD)};"
            secure[f"{prefix}.plain.sasl.jaas.config"] = property_(users)
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                secure[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{SCRAM} required;"
            secure[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{OAUTH} required;"
        super().__init__(work, {**secure, **(properties or {})})

    @property
    def address(self) -> str:
        """Returns the address of the PLAINTEXT listener."""
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    def start(self) -> None:
        super().start()
        admin = AdminClient({"bootstrap.servers": self.address})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(60)
        # The broker hears of users from its controller, and clients give up at a user that is not there.
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            wait_for(f"{USER} to be known for {mechanism}", partial(self._takes, mechanism))

    def _takes(self, mechanism: str) -> bool:
        login = {
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
        address = f"127.0.0.1:{self.ports['SASL_PLAINTEXT']}"
        admin = AdminClient({"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", **login})
        return bool(admin.list_topics(timeout=5).brokers)

    def connection(
        self, protocol: str, mechanism: str = "SCRAM-SHA-512", *, host: str = "localhost", store: str = "jks"
    ) -> dict[str, str]:
        """Returns Java's client properties for one of the listeners."""
        props = {
            "bootstrap.servers": f"{host}:{self.ports[protocol]}",
            "security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            props |= trust(store)
        if protocol == "SSL":
            props |= key("client", store)
        if protocol.startswith("SASL_"):
            props |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism)}
        return props


def property_(value: str) -> str:
    """Returns a value as a `.properties` file holds it (read as ISO-8859-1)."""
    value = value.replace("\\", "\\\\")
    return "".join(c if ord(c) < 128 else f"\\u{ord(c):04x}" for c in value)
