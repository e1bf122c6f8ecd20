"""The key of a worker group and the signatures made with it (KIP-507). No I/O; callers pass the time in.

The leader makes a key and writes it to the config topic; every reader of that topic can sign. Workers
sign their requests to each other, so that nobody else can commit task configs.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final

from klamm.connect.errors import BadRequest, Forbidden, Starting
from klamm.connect.settings.mac_algorithms import ALGORITHMS, algorithm
from klamm.connect.topics.config_topic import SessionKey
from klamm_base.errors import ConfigError

SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"


class SessionKeys:
    """Makes keys, signs and verifies, as this worker's `inter.worker.*` settings say."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._key_algorithm: str = config["inter.worker.key.generation.algorithm"]
        self._bits: int = config["inter.worker.key.size"] or ALGORITHMS[self._key_algorithm][1]
        self._ttl_ms: int = config["inter.worker.key.ttl.ms"]
        self._signs_with: str = config["inter.worker.signature.algorithm"]
        self._verifies: list[str] = config["inter.worker.verification.algorithms"]
        if self._signs_with not in self._verifies:
            raise ConfigError(
                f"inter.worker.signature.algorithm={self._signs_with} is not among inter.worker.verification.algorithms: "
                "other workers of the same configuration would refuse it",
                key="inter.worker.signature.algorithm",
            )

    def new(self, now_ms: int) -> SessionKey:
        return SessionKey(
            key=secrets.token_bytes(self._bits // 8), algorithm=self._key_algorithm, created_ms=now_ms
        )

    def renewal_ms(self, key: SessionKey | None, now_ms: int) -> int | None:
        """Returns in how many ms the leader must make a new key: 0 is now, None never."""
        if key is None or key.algorithm != self._key_algorithm or len(key.key) != self._bits // 8:
            return 0
        return None if self._ttl_ms <= 0 else max(0, key.created_ms + self._ttl_ms - now_ms)

    def sign(self, key: SessionKey, body: bytes) -> dict[str, str]:
        """Returns the headers that sign a request."""
        signature = _mac(key, body, self._signs_with)
        return {
            SIGNATURE_HEADER: base64.b64encode(signature).decode(),
            ALGORITHM_HEADER: self._signs_with,
        }

    def verify(self, key: SessionKey | None, headers: Mapping[str, str], body: bytes) -> None:
        """Raises BadRequest, Starting or Forbidden, in Kafka's words, unless the signature is valid."""
        given, encoded = headers.get(ALGORITHM_HEADER), headers.get(SIGNATURE_HEADER)
        if given is None or encoded is None:
            raise BadRequest("Internal request missing required signature")
        name = algorithm(given)
        if name is None:
            raise BadRequest(f"{given} MAC is not available")
        try:
            signature = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as e:
            raise BadRequest(f"The request's signature is not base64: {e}") from None
        if name not in self._verifies:
            raise BadRequest(
                f"This worker does not support the '{given}' key signing algorithm used by other workers. "
                f"This worker is currently configured to use: [{', '.join(self._verifies)}]. "
                "Check that all workers' configuration files permit the same set of signature algorithms, "
                "and correct any misconfigured worker and restart it."
            )
        if key is None:
            raise Starting(
                "This worker is still starting up and has not been able to read a session key from the config "
                "topic yet"
            )
        if not hmac.compare_digest(_mac(key, body, name), signature):
            raise Forbidden("Internal request contained invalid signature.")


def _mac(key: SessionKey, body: bytes, name: str) -> bytes:
    return hmac.digest(key.key, body, ALGORITHMS[name][0])
