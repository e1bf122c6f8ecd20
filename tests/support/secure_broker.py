"""Our broker with logins: properties, users, and a raw client that logs in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.kafka_broker import free_port
from support.raw import RawClient
from support.secure_kafka import MECHANISMS, PASSWORD, PLAIN, USER, key, quoted

from klamm.testing import EmbeddedBroker
from klamm_broker.server.sasl_keys import HANDLER, UNSECURED
from klamm_kafka.client.scram import ScramClient
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest


class SecureBroker(EmbeddedBroker):
    """PLAINTEXT beside SASL_PLAINTEXT and SASL_SSL with all mechanisms; user `USER` with `PASSWORD` in all, `bob` with `bob-secret` in PLAIN."""

    def __init__(self, work: Path, config: dict[str, str] | None = None) -> None:
        self.sasl_port, self.tls_port = free_port(), free_port()
        super().__init__(
            work / "data",
            config={
                "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{self.sasl_port},SASL_SSL://127.0.0.1:{self.tls_port}",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                **key("server", "jks"),
                "plain.sasl.jaas.config": f'{PLAIN} required user_{USER}={quoted(PASSWORD)} user_bob="bob-secret";',
                f"oauthbearer.{HANDLER}": UNSECURED,
                "delegation.token.secret.key": "token-secret-key",
                **(config or {}),
            },
        )

    @property
    def sasl_bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def add_user(self, name: str = USER, password: str = PASSWORD) -> None:
        """Give a user SCRAM credentials, over the listener without logins."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())  # fmt: skip
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(60)


class LoginClient(RawClient):
    """A raw client; the methods return the last answer to a login."""

    def shake(self, mechanism: str, version: int = 1) -> Any:
        return self.request(SaslHandshakeRequest(mechanism=mechanism), version)

    def say(self, data: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = self.request(SaslAuthenticateRequest(auth_bytes=data), 2)
        return answer

    def plain(self, user: str = USER, password: str = PASSWORD) -> SaslAuthenticateResponse:
        self.shake("PLAIN")
        return self.say(f"\0{user}\0{password}".encode())

    def scram(self, user: str = USER, password: str = PASSWORD, *, mechanism: str = "SCRAM-SHA-256", token: bool = False) -> SaslAuthenticateResponse:  # fmt: skip
        self.shake(mechanism)
        client = ScramClient(mechanism, user, password, token_auth=token)
        first = self.say(client.first())
        if first.error_code:
            return first
        last = self.say(client.final(first.auth_bytes))
        if not last.error_code:
            client.verify(last.auth_bytes)
        return last
