"""SASL GSSAPI (RFC 4752), the server's side: Kerberos proves who the client is, and no layer of its own protects what follows.

The library's part, which reads a key table, is behind `Context`. Messages: tokens of the context until it is
established; then our offer of layers, and the client's choice with the user that it wants to be.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from klamm_broker.security.kerberos_names import KerberosNames, NoRule
from klamm_broker.security.sasl.mechanism import Identity, LoginRefused

_NO_LAYER: Final = 1
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])
"""The layers that we have (none), and the largest message of one in three bytes (0 without a layer)."""


class ContextRefused(ValueError):
    """The library does not accept a message; the text is its reason."""


class Context(Protocol):
    """A security context of the library's. All methods raise ContextRefused."""

    @property
    def complete(self) -> bool:
        """True once both sides have proved who they are."""

    def step(self, token: bytes) -> bytes:
        """Returns the answer to a token of the client; empty if there is none."""

    def client(self) -> str:
        """Returns the client's principal."""

    def wrap(self, data: bytes) -> bytes:
        """Returns a message that only the client can read as ours."""

    def unwrap(self, data: bytes) -> bytes:
        """Returns the content of a message of the client."""


class _Stage(Enum):
    TOKENS = auto()
    OFFER = auto()
    """The context is established; the client sends an empty message for our offer."""
    CHOICE = auto()


class GssapiServer:
    """One login."""

    def __init__(self, make: Callable[[], Context], names: KerberosNames) -> None:
        self._make = make
        self._names = names
        self._context: Context | None = None
        self._stage = _Stage.TOKENS
        self.identity: Identity | None = None

    def step(self, data: bytes, now_ms: int) -> bytes:
        try:
            if self._context is None:
                self._context = self._make()
            match self._stage:
                case _Stage.TOKENS:
                    return self._token(self._context, data)
                case _Stage.OFFER:
                    return self._offer(self._context)
                case _Stage.CHOICE:
                    return self._choice(self._context, data)
        except ContextRefused as e:
            raise LoginRefused(f"GSSAPI: {e}") from None

    def _token(self, context: Context, data: bytes) -> bytes:
        answer = context.step(data)
        if not context.complete:
            return answer
        self._stage = _Stage.OFFER
        return answer or self._offer(context)

    def _offer(self, context: Context) -> bytes:
        self._stage = _Stage.CHOICE
        return context.wrap(_OFFER)

    def _choice(self, context: Context, data: bytes) -> bytes:
        chosen = context.unwrap(data)
        if len(chosen) < len(_OFFER) or chosen[0] != _NO_LAYER:
            raise LoginRefused("GSSAPI: the client chose a layer that was not offered")
        client = context.client()
        try:
            wanted = chosen[len(_OFFER) :].decode() or client
        except UnicodeDecodeError:
            raise LoginRefused("GSSAPI: the authorization id is not UTF-8") from None
        if wanted != client:
            raise LoginRefused(f"GSSAPI: {client} may not log in as another principal")
        try:
            self.identity = Identity(name=self._names.short(client))
        except NoRule as e:
            raise LoginRefused(f"GSSAPI: {e}") from None
        return b""
