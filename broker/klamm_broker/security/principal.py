"""Principals: the users that connections act for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A type, which is `User` everywhere, and a name. `token_authenticated`: logged in with a delegation token."""

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER, "ANONYMOUS")
"""The principal of a connection that has not logged in, on a listener without logins."""


def parse(text: str) -> KafkaPrincipal:
    """Returns the principal of `User:name`. Raises ValueError that says how one looks."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(kind, name)
