"""KafkaPrincipal: who is at the other end of a connection, as Kafka names them (`User:alice`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER_TYPE: Final = "User"


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A kind and a name. `str` gives the form of ACLs, super.users and logs: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""Whoever has not authenticated: everybody on a listener without TLS client certificates and logins."""


def parse(text: str) -> KafkaPrincipal:
    """Returns the principal that `text` names. Raises ValueError, in Kafka's words."""
    kind, colon, name = text.partition(":")
    if not text:
        raise ValueError("expected a string in format principalType:principalName but got null or empty string")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(kind, name)
