"""The order of messages of one login, as Kafka's SaslServerAuthenticator has it.

Rules: ApiVersions at most once, then SaslHandshake, then messages of the mechanism: in SaslAuthenticate requests after
version 1 of the handshake, as bare tokens after version 0. Anything else ends the connection. A renewed login keeps
mechanism and principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from klamm_broker.security.sasl.mechanism import Identity, LoginRefused, MakeMechanism, ServerMechanism
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.api_versions import ApiVersionsResponse
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeResponse

_LATE: Final = "another request than SaslAuthenticate after SaslHandshake"


class OutOfOrder(ValueError):
    """A request that does not belong to a login, or not at this point. It gets no answer."""


class State(Enum):
    """The requests that may come next."""

    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    REQUESTS = auto()
    """SaslAuthenticate requests."""
    TOKENS = auto()
    """Messages of the mechanism, bare."""
    NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A mechanism of a listener; `session_ms` limits sessions (`connections.max.reauth.ms`), 0 does not."""

    make: MakeMechanism
    session_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A login that has succeeded. `expires_ms` is when its renewal must have begun, in ms since the epoch."""

    mechanism: str
    identity: Identity
    expires_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to the client: a message, or the bytes of a bare token. With `failed` the connection ends after it."""

    message: ApiVersionsResponse | SaslHandshakeResponse | SaslAuthenticateResponse | bytes | None
    failed: str | None = None


class Exchange:
    """One login on one connection. `session` is set once it has succeeded; `renewed` is the session that it renews."""

    def __init__(self, offers: Mapping[str, Offer], renewed: Session | None = None) -> None:
        self._offers = offers
        self._renewed = renewed
        self.state = State.VERSIONS_OR_HANDSHAKE if renewed is None else State.HANDSHAKE
        self.mechanism = ""
        self._server: ServerMechanism
        self._wrong_mechanism = ""
        self.session: Session | None = None

    def versions(self, *, valid: bool) -> Answer | None:
        """Take note of an ApiVersions request; one that was refused may be followed by another. Raises OutOfOrder.

        Returns None if it is to be answered as usual.
        """
        if self.state is State.REQUESTS:
            self.state = State.NOTHING
            return Answer(message=ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), failed=_LATE)
        if self.state is not State.VERSIONS_OR_HANDSHAKE:
            raise OutOfOrder("ApiVersions at this point of a login")
        if valid:
            self.state = State.HANDSHAKE
        return None

    def handshake(self, mechanism: str, version: int) -> Answer:
        """Answers a SaslHandshake. Raises OutOfOrder."""
        if self.state is State.REQUESTS:
            self.state = State.NOTHING
            return Answer(
                message=SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), failed=_LATE
            )
        if self.state not in (State.VERSIONS_OR_HANDSHAKE, State.HANDSHAKE):
            raise OutOfOrder("SaslHandshake at this point of a login")
        offer = self._offers.get(mechanism)
        names = list(self._offers)
        if offer is None:
            self.state = State.NOTHING
            refused = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            return Answer(message=refused, failed=f"SASL mechanism {mechanism[:64]!r} is not enabled")
        if self._renewed is not None and self._renewed.mechanism != mechanism:
            self._wrong_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._renewed.mechanism}'"
            )
        self.mechanism = mechanism
        self._server = offer.make()
        self.state = State.REQUESTS if version >= 1 else State.TOKENS
        return Answer(message=SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=names))

    def authenticate(self, data: bytes, now_ms: int) -> Answer:
        """Answers a SaslAuthenticate. Raises OutOfOrder."""
        if self.state is not State.REQUESTS:
            raise OutOfOrder("SaslAuthenticate without a SaslHandshake of version 1")
        try:
            said = self._step(data, now_ms)
        except LoginRefused as e:
            self.state = State.NOTHING
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=e.told or self._general()
            )
            return Answer(message=refused, failed=str(e))
        lifetime = self._lifetime_ms(now_ms) if self.session is not None else 0
        return Answer(message=SaslAuthenticateResponse(auth_bytes=said, session_lifetime_ms=lifetime))

    def token(self, data: bytes, now_ms: int) -> Answer:
        """Answers a bare message of the mechanism. A failure has no answer, as there is no room for one."""
        try:
            return Answer(message=self._step(data, now_ms))
        except LoginRefused as e:
            self.state = State.NOTHING
            return Answer(message=None, failed=str(e))

    def _step(self, data: bytes, now_ms: int) -> bytes:
        if self._wrong_mechanism:
            raise LoginRefused(self._wrong_mechanism, told=self._wrong_mechanism)
        said = self._server.step(data, now_ms)
        identity = self._server.identity
        if identity is not None:
            self._check_same_user(identity)
            self.state = State.NOTHING
            self.session = self._session(identity, now_ms)
        return said

    def _check_same_user(self, identity: Identity) -> None:
        if self._renewed is not None and self._renewed.identity.name != identity.name:
            was = self._renewed.identity.name
            why = f"Cannot change principals during re-authentication from User.{was}: User.{identity.name}"
            raise LoginRefused(why, told=why)

    def _session(self, identity: Identity, now_ms: int) -> Session:
        ends = [] if identity.expires_ms is None else [max(identity.expires_ms, now_ms)]
        if limit := self._offers[self.mechanism].session_ms:
            ends.append(now_ms + limit)
        return Session(mechanism=self.mechanism, identity=identity, expires_ms=min(ends, default=None))

    def _lifetime_ms(self, now_ms: int) -> int:
        assert self.session is not None
        expires = self.session.expires_ms
        return 0 if expires is None else expires - now_ms

    def _general(self) -> str:
        again = "authentication" if self._renewed is None else "re-authentication"
        return (
            f"Authentication failed during {again} due to invalid credentials "
            f"with SASL mechanism {self.mechanism}"
        )
