"""The common ground of the mechanisms: the user of a login that succeeded, the reason of one that failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from klamm_base.errors import KlammError


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user who has proved who it is. `expires_ms` is the end of what it proved that with, in ms since the epoch."""

    name: str
    token_authenticated: bool = False
    expires_ms: int | None = None


class LoginRefused(KlammError):
    """A login that fails. The text goes into the log, and never holds a secret.

    `told` is what the client is told. None stands for Kafka's general sentence, which does not say what was wrong.
    """

    def __init__(self, why: str, *, told: str | None = None) -> None:
        super().__init__(why)
        self.told = told


def refused_aloud(why: str) -> LoginRefused:
    """Returns a refusal whose reason the client may know: Kafka's SaslAuthenticationException."""
    return LoginRefused(why, told=why)


class ServerMechanism(Protocol):
    """One login. `identity` is set once it has succeeded."""

    identity: Identity | None

    def step(self, data: bytes, now_ms: int) -> bytes:
        """Returns the answer to a message of the client. Raises LoginRefused."""


MakeMechanism = Callable[[], ServerMechanism]
