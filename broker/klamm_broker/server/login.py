"""Logins of connections: the dispatch of a SASL listener's connection until it has logged in, and of sessions that end.

Before the login there are ApiVersions, SaslHandshake and SaslAuthenticate only; afterwards the connection has the
server's own dispatch, or `SessionWatch` before it when the session ends some time. Event loop's thread only.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.api.registry import Api, RequestContext
from klamm_broker.security.principal import KafkaPrincipal
from klamm_broker.security.sasl.exchange import Exchange, OutOfOrder, Session, State
from klamm_broker.server import audit
from klamm_broker.server.connection import BadRequest, Connection
from klamm_broker.server.dispatch import dispatch, frame
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.headers import decode_request_header, frame_response

if TYPE_CHECKING:
    from klamm_broker.server.outgoing import Reply
    from klamm_broker.server.sasl_config import LoginSettings

log = logging.getLogger(__name__)

_KEY: Final = struct.Struct(">hh")
_SIZE: Final = struct.Struct(">i")
RENEW_MIN_MS: Final = 1000
"""The least time between two renewals of a session, as in Kafka."""


def no_login(conn: Connection, view: memoryview, pos: int, end: int) -> Reply | None:
    """Refuses every request: what a connection begins with until its `Login` is there."""
    raise BadRequest(f"a request before the login could begin ({end - pos} bytes)")


class Login:
    """One login, as the connection's dispatch. `renewed` is the session that it takes the place of."""

    is_login = True

    def __init__(self, conn: Connection, settings: LoginSettings, renewed: Session | None = None) -> None:
        self._settings = settings
        self._exchange = Exchange(settings.offers, renewed)
        self._renewed = renewed
        self._began_ms = 0 if renewed is None else conn.broker.now_ms()
        self._usual_max = conn.max_frame
        conn.max_frame = min(conn.max_frame, settings.max_frame)
        self._timer = conn.loop.call_later(settings.timeout_s, self._too_late, conn)
        conn.on_close = self._timer.cancel

    def __call__(self, conn: Connection, view: memoryview, pos: int, end: int) -> Reply | None:
        if self._exchange.state is State.TOKENS:
            return self._bare_token(conn, bytes(view[pos:end]))
        if end - pos < _KEY.size:
            raise BadRequest(f"truncated request header before login: {end - pos} bytes")
        key, version = _KEY.unpack_from(view, pos)
        if key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            raise BadRequest(f"api key {key} before login ({end - pos} bytes)")
        api = conn.server.apis[key]
        try:
            if key == ApiKey.API_VERSIONS:
                return self._versions(conn, api, view, pos, end)
            if not api.min_version <= version <= api.max_version:
                raise BadRequest(f"{api.name} version {version} is not served before login")
            conn.metrics = conn.server.metrics.apis[key]
            conn.metrics.requests[version] += 1
            header, body = decode_request_header(view, pos, end)
            message, _ = api.request_type.decode(bytes(view[body:end]), version, 0, api.elements_max)
            context = RequestContext(
                api_key=key, api_version=version, correlation_id=header.correlation_id, client_id=header.client_id,
                host=conn.host, port=conn.port, listener=conn.listener,
            )  # fmt: skip
            return self._take(conn, api, context, message)
        except (OutOfOrder, ProtocolError) as e:
            raise BadRequest(f"{api.name} version {version} before login: {e}") from e

    def _versions(self, conn: Connection, api: Api, view: memoryview, pos: int, end: int) -> Reply | None:
        """Answers ApiVersions as after the login; only one that was answered without an error counts."""
        errors = conn.server.metrics.apis[api.key].errors
        refused = sum(errors.values())
        version = _KEY.unpack_from(view, pos)[1]
        served = api.min_version <= version <= api.max_version
        out_of_place = self._exchange.versions(valid=False)
        if out_of_place is not None and out_of_place.failed is not None:
            if not served:
                raise BadRequest(f"{api.name} version {version} in a login")
            header, _ = decode_request_header(view, pos, end)
            conn.metrics = conn.server.metrics.apis[api.key]
            answer = frame_response(header.correlation_id, api.key, version, out_of_place.message)
            self._fail(conn, (answer,), out_of_place.failed)
            return None
        reply = dispatch(conn, view, pos, end, on_account=False)
        self._exchange.versions(valid=served and sum(errors.values()) == refused)
        return reply

    def _take(self, conn: Connection, api: Api, context: RequestContext, message: Any) -> Reply | None:
        if api.key == ApiKey.SASL_HANDSHAKE:
            answer = self._exchange.handshake(message.mechanism, context.api_version)
        else:
            answer = self._exchange.authenticate(message.auth_bytes, conn.broker.now_ms())
        reply = frame(api, context, answer.message)
        if answer.failed is not None:
            self._fail(conn, reply, answer.failed)
            return None
        self._finish(conn)
        return reply

    def _bare_token(self, conn: Connection, data: bytes) -> Reply | None:
        conn.metrics = conn.server.metrics.apis[ApiKey.SASL_AUTHENTICATE]
        answer = self._exchange.token(data, conn.broker.now_ms())
        if answer.failed is not None:
            self._fail(conn, None, answer.failed)
            return None
        assert isinstance(answer.message, bytes)
        self._finish(conn)
        return (_SIZE.pack(len(answer.message)) + answer.message,)

    def _finish(self, conn: Connection) -> None:
        """Open the connection to all requests once the login has succeeded."""
        session = self._exchange.session
        if session is None:
            return
        self._timer.cancel()
        conn.on_close = None
        conn.max_frame = self._usual_max
        conn.server.metrics.logins += 1
        self._report(conn, session.identity.name, None)
        conn.principal = KafkaPrincipal(
            "User", session.identity.name, token_authenticated=session.identity.token_authenticated
        )
        conn.dispatch = conn.server.dispatch
        if session.expires_ms is not None:
            conn.dispatch = SessionWatch(session, self._began_ms)

    def _fail(self, conn: Connection, reply: Reply | None, why: str) -> None:
        """Answer and close after the delay that slows down guessing."""
        conn.server.metrics.logins_failed += 1
        self._report(conn, None, why)
        self._timer.cancel()
        slot = conn.park()
        conn.hold()

        def end() -> None:
            if reply is not None and not slot.closed:
                slot.resolve(reply)
            level = conn.server.refusals.level(conn.loop, logging.INFO)
            conn.close(f"login failed: {audit.cut(why)}", level=level)

        timer = conn.loop.call_later(self._settings.failure_delay_s, end)
        conn.on_close = timer.cancel

    def _report(self, conn: Connection, user: str | None, failed: str | None) -> None:
        event = "login" if self._renewed is None else "login renewed"
        where = {"mechanism": self._exchange.mechanism, "listener": conn.listener, "peer": str(conn)}
        if failed is None:
            audit.write(event, outcome="ok", **where, principal=f"User:{user}")
        else:
            conn.server.refused_logins(conn.host, event, **where, why=audit.cut(failed))

    def _too_late(self, conn: Connection) -> None:
        why = f"no login within klamm.login.timeout.ms={self._settings.timeout_s * 1000:.0f}"
        conn.close(why, level=conn.server.refusals.level(conn.loop))


class SessionWatch:
    """The dispatch of a session that ends: takes its renewal, and no other request once it has ended.

    `renewed_ms` is when it was renewed the last time, 0 if it never was. A renewal is a login by the configuration of now.
    """

    __slots__ = ("_expires_ms", "_renewed_ms", "_session")

    def __init__(self, session: Session, renewed_ms: int) -> None:
        assert session.expires_ms is not None
        self._session = session
        self._expires_ms = session.expires_ms
        self._renewed_ms = renewed_ms

    def __call__(self, conn: Connection, view: memoryview, pos: int, end: int) -> Reply | None:
        now_ms = conn.broker.now_ms()
        handshake = end - pos >= _KEY.size and _KEY.unpack_from(view, pos)[0] == ApiKey.SASL_HANDSHAKE
        if handshake and now_ms - self._renewed_ms >= RENEW_MIN_MS:
            settings = conn.server.login_settings(conn.listener)
            conn.dispatch = login = Login(conn, settings, self._session)
            return login(conn, view, pos, end)
        if now_ms > self._expires_ms:
            raise BadRequest(f"the session of {conn.principal} has ended and was not renewed")
        return dispatch(conn, view, pos, end)
