"""Leads a frame to its handler: request header, version check, decoding, the answer's frame.

Produce and Fetch register as `raw` handlers and read the receive buffer themselves. All other messages are decoded
from a copy. Answers that may be large are encoded in steps. A `BadRequest` says in one line what is wrong and closes the connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_broker.api.registry import Api, RequestContext
from klamm_broker.log.steps import Steps
from klamm_broker.server import heavy, metering
from klamm_broker.server.connection import BadRequest, Connection, Slot
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.headers import RequestHeader, decode_request_header, frame_pieces, frame_response
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from klamm_broker.server.outgoing import Reply

log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_I32: Final = struct.Struct(">i")
_ALONE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)
"""Changes of topics and configurations: later requests of the connection wait for them, and see what they have changed."""


class _Encoded(NamedTuple):
    """An answer with its body in pieces."""

    message: Any
    pieces: list[bytes]


def dispatch(
    conn: Connection, view: memoryview, pos: int, end: int, *, on_account: bool = True
) -> Reply | None:
    """Handle the request in `view[pos:end]`. Returns the answer, or None if there is none or the request is parked.

    Before a login it is on nobody's account: all strangers would share one.
    """
    if end - pos < _HEAD.size:
        raise BadRequest(f"truncated request header: {end - pos} bytes, at least {_HEAD.size} are needed")
    key, version, correlation_id, client_len = _HEAD.unpack_from(view, pos)
    api = conn.server.apis.get(key)
    if api is None:
        raise BadRequest(f"api key {key} version {version} is not served ({end - pos} bytes)")
    metrics = conn.metrics = conn.server.metrics.apis[key]
    if not api.min_version <= version <= api.max_version:
        if key == ApiKey.API_VERSIONS:
            return _unsupported_version(api, correlation_id)
        served = f"{api.min_version} to {api.max_version}"
        raise BadRequest(f"{api.name} version {version} is not served, {served} are ({end - pos} bytes)")
    try:
        if on_account and conn.broker.quotas.active and conn.charge is None:
            return metering.handle(dispatch, conn, view, pos, end)
        metrics.requests[version] += 1
        if api.raw is not None:
            body = pos + _HEAD.size + (max(0, client_len))
            if version < api.flexible_from and client_len >= -1 and body <= end:
                pass
            elif body < end and client_len >= -1 and view[body] == 0:
                body += 1
            else:
                _, body = decode_request_header(view, pos, end)
            return api.raw(conn, view[body:end], version, correlation_id)  # type: ignore[no-any-return]
        header, body = decode_request_header(view, pos, end)
        if end - body >= heavy.LARGE_BYTES:
            _call_later(conn, api, _context(conn, api, version, header), bytes(view[body:end]))
            return None
        message, _ = api.request_type.decode(bytes(view[body:end]), version, 0, api.elements_max)
    except ProtocolError as e:
        raise BadRequest(f"{api.name} version {version} ({end - pos} bytes): {e}") from e
    # Bytes behind the last field are ignored, as in Kafka: librdkafka sends some with Metadata.
    if isinstance(message, ApiVersionsRequest) and version >= 3:
        conn.software = message.client_software_name, message.client_software_version
    return _call(conn, api, _context(conn, api, version, header), message)


def _context(conn: Connection, api: Api, version: int, header: RequestHeader) -> RequestContext:
    return RequestContext(
        api_key=api.key,
        api_version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        host=conn.host,
        port=conn.port,
        listener=conn.listener,
        principal=conn.principal,
        charge=conn.charge,
        software=conn.software,
        connection=conn,
        access=conn.access,
    )


def _call_later(conn: Connection, api: Api, context: RequestContext, body: bytes) -> None:
    """Decode a large request in slices, then call its handler. Later requests of the connection wait until then."""
    slot = conn.park()
    conn.hold()

    def decoded(found: tuple[Any, int]) -> None:
        result = api.handler(conn.broker, context, found[0])
        heavy.run(slot, what, _encoding(context, result), lambda result: _handled(slot, api, context, result))

    what = f"{api.name} version {context.api_version} ({len(body)} bytes)"
    steps = api.request_type.decode_steps(body, context.api_version, 0, api.elements_max)
    heavy.run(slot, what, steps, decoded)


def _encoding(context: RequestContext, result: Any) -> Steps[Any]:
    """Does the steps of a handler, if its result are steps, and encodes the answer in steps. Returns what is no answer yet as it is."""
    if type(result) is GeneratorType:
        result = yield from result
    if result is None or isinstance(result, asyncio.Future):
        return result
    return _Encoded(result, (yield from result.encode_steps(context.api_version)))


def _handled(slot: Slot, api: Api, context: RequestContext, result: Any) -> None:
    """Answer a request for which the connection was held, and let its later requests go on."""
    if isinstance(result, asyncio.Future):
        _when_done(slot, api, context, result)
        if api.key not in _ALONE:
            slot.connection.go_on()
        return
    try:
        if result is not None:
            _answer(slot, api, context, result)
    finally:
        slot.connection.go_on()


def _call(conn: Connection, api: Api, context: RequestContext, message: Any) -> Reply | None:
    result = api.handler(conn.broker, context, message)
    if result is None:
        return None
    if type(result) is GeneratorType:
        steps = _encoding(context, result)
        done, result, job = heavy.one_slice(steps)
        if not done:  # a small request for very much: that goes on as a large one does
            slot = conn.park()
            conn.hold()
            what = f"{api.name} version {context.api_version}"

            def handled(result: Any) -> None:
                _handled(slot, api, context, result)

            if job is None:
                heavy.run(slot, what, steps, handled)
            else:
                heavy.beside(slot, what, steps, job, handled)
            return None
    if not isinstance(result, asyncio.Future):
        return _settled(conn, api, context, result)
    slot = conn.park()
    if api.key in _ALONE:
        conn.hold()
    _when_done(slot, api, context, result)
    return None


def _when_done(slot: Slot, api: Api, context: RequestContext, result: asyncio.Future[Any]) -> None:
    result.add_done_callback(lambda done: _settle(slot, api, context, done))


def _settle(slot: Slot, api: Api, context: RequestContext, done: asyncio.Future[Any]) -> None:
    if done.cancelled():
        slot.fail(f"{api.name} was given up")
        return
    error = done.exception()
    if error is not None:
        log.error("%s version %d failed", api.name, context.api_version, exc_info=error)
        slot.fail(f"{api.name} version {context.api_version} failed here: {error!r}")
    elif slot.closed:
        pass
    elif api.key in _ALONE:
        what = f"the answer to {api.name} version {context.api_version}"
        steps = _encoding(context, done.result())
        heavy.run(slot, what, steps, lambda result: _handled(slot, api, context, result))
    else:
        _answer(slot, api, context, done.result())


def _answer(slot: Slot, api: Api, context: RequestContext, result: Any) -> None:
    slot.resolve(_settled(slot.connection, api, context, result))


def _settled(conn: Connection, api: Api, context: RequestContext, result: Any) -> Reply:
    """Settle the account of a request. Returns the framed answer; `result` is the message, or has it encoded already."""
    encoded = result if isinstance(result, _Encoded) else None
    message = result if encoded is None else encoded.message
    count_error(conn, api, message)
    if context.charge is not None:
        context.charge.settle_message(message)
    if encoded is None:
        return frame(api, context, message)
    pieces = encoded.pieces
    throttle_ms = getattr(message, "throttle_time_ms", 0)  # it was not known yet
    if throttle_ms and message.first_field(context.api_version) == "throttle_time_ms":
        pieces[0] = _I32.pack(throttle_ms) + pieces[0][4:]
    elif throttle_ms:  # a few small answers tell it elsewhere
        return frame(api, context, message)
    return frame_pieces(context.correlation_id, api.key, context.api_version, pieces)


def count_error(conn: Connection, api: Api, message: Any) -> None:
    """Count the error code of the whole answer. Errors of its parts are counted elsewhere."""
    code = getattr(message, "error_code", 0)
    if code:
        errors = conn.server.metrics.apis[api.key].errors
        errors[code] = errors.get(code, 0) + 1


def frame(api: Api, context: RequestContext, message: Any) -> Reply:
    """Returns an answer with its size and header."""
    return (frame_response(context.correlation_id, api.key, context.api_version, message),)


def _unsupported_version(api: Api, correlation_id: int) -> Reply:
    """Returns the answer to an unknown version of ApiVersions: version 0, error 35, and the versions that we have."""
    body = struct.pack(">hihhh", ErrorCode.UNSUPPORTED_VERSION, 1, api.key, api.min_version, api.max_version)
    return (struct.pack(">ii", len(body) + 4, correlation_id) + body,)
