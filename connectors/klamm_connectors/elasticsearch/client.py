"""The official client's transport. Each request ends in a `Reply`; nothing is raised.

Bodies and answers are bytes: the client's helpers and its parsing of answers cost several times as much as
the request itself.
"""

from __future__ import annotations

import logging
import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any, Final

import orjson
import urllib3
from elastic_transport import ConnectionTimeout, Serializer, TlsError, TransportError
from elasticsearch import ApiError, Elasticsearch, UnsupportedProductError

from klamm_connectors.elasticsearch.config import Settings, Ssl
from klamm_plugins.errors import ConnectError

NO_ANSWER: Final = 0
_PREFIX: Final = "application/vnd.elasticsearch+"
_REASON_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP status (NO_ANSWER: none arrived) and the body. `reason` says what went wrong.

    `fatal`: the task cannot continue, whatever the status is.
    """

    status: int
    body: bytes = b""
    reason: str = ""
    timed_out: bool = False
    fatal: bool = False


class _Raw(Serializer):
    """A serializer that leaves bodies and answers as bytes."""

    mimetype = "application/json"

    def loads(self, data: bytes) -> Any:
        return bytes(data)

    def dumps(self, data: Any) -> bytes:
        return bytes(data)


class Client:
    """A client for several threads. Call `close` when they have ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        transport = logging.getLogger("elastic_transport")
        if not transport.isEnabledFor(logging.DEBUG):
            transport.setLevel(
                logging.ERROR
            )  # it logs every request, and every failure that the sender logs once
        raw = _Raw()
        secret: dict[str, Any] = {}
        if settings.username and settings.password is not None:
            secret["basic_auth"] = (settings.username, settings.password.value)
        if settings.ssl is not None and any(u.startswith("https:") for u in settings.urls):
            secret["ssl_context"] = ssl_context(settings.ssl)
        self._client = Elasticsearch(
            [_with_port(url) for url in settings.urls],
            connections_per_node=settings.in_flight,
            http_compress=settings.compression,
            max_retries=0,
            retry_on_timeout=False,
            retry_on_status=(),
            serializers={f"{_PREFIX}{kind}": raw for kind in ("json", "x-ndjson")}
            | {"application/json": raw},
            **secret,
        )

    def bulk(self, body: bytes, read_timeout_s: float) -> Reply:
        """Sends POST /_bulk."""
        return self._ask("POST", "/_bulk", body, "x-ndjson", read_timeout_s)

    def exists(self, name: str) -> Reply:
        """Asks for an index, alias or data stream of this name: 200 or 404."""
        # GET, not HEAD: a refusal without a body would give no reason.
        return self._ask("GET", f"/{urllib.parse.quote(name, safe='')}/_alias", None, "json")

    def create_index(self, name: str, mapping: dict[str, Any] | None) -> Reply:
        """Creates an index. Returns 200 when the index exists afterwards, whoever made it."""
        body = orjson.dumps({"mappings": mapping} if mapping else {})
        reply = self._ask("PUT", f"/{urllib.parse.quote(name, safe='')}", body, "json")
        if reply.status == 400 and b"resource_already_exists_exception" in reply.body:
            return Reply(200)
        return reply

    def close(self) -> None:
        self._client.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, kind: str, read_timeout_s: float | None = None
    ) -> Reply:
        timeout: Any = urllib3.Timeout(
            connect=self._settings.connect_timeout_s, read=read_timeout_s or self._settings.read_timeout_s
        )
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = f"application/{kind}"
        try:
            answer = self._client.options(request_timeout=timeout).perform_request(
                method, path, headers=headers, body=body
            )
        except ApiError as e:
            answered = e.body if isinstance(e.body, bytes) else str(e.body).encode()
            return Reply(e.meta.status, answered, f"status {e.meta.status}: {_shown(answered)}")
        except UnsupportedProductError as e:
            return Reply(NO_ANSWER, reason=str(e.args[0]), fatal=True)
        except ConnectionTimeout:
            return Reply(NO_ANSWER, reason="it did not answer in time", timed_out=True)
        except TlsError as e:
            return Reply(NO_ANSWER, reason=f"TLS failed: {e.message}", fatal=True)
        except TransportError as e:
            return Reply(NO_ANSWER, reason=str(e.message)[:_REASON_MAX])
        return Reply(answer.meta.status, answer.body if isinstance(answer.body, bytes) else b"")


def _shown(answer: bytes) -> str:
    """Returns the reason in an answer that reports an error."""
    try:
        error = orjson.loads(answer)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return answer[:_REASON_MAX].decode("utf-8", "replace")
    return (
        f"{error.get('type')}: {error.get('reason')}"[:_REASON_MAX] if isinstance(error, dict) else str(error)
    )


def _with_port(url: str) -> str:
    """Adds the default port of http or https: the client requires a port."""
    parts = urllib.parse.urlsplit(url)
    if parts.port is not None:
        return url
    port = 443 if parts.scheme == "https" else 80
    return urllib.parse.urlunsplit(parts._replace(netloc=f"{parts.netloc}:{port}"))


class _Sealed(ssl.SSLContext):
    """A context that ignores further authorities: the transport would add the well-known ones to the configured one."""

    def load_verify_locations(self, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        return None


def ssl_context(settings: Ssl) -> ssl.SSLContext:
    """Returns a context with the configured trust, client certificate and host name check.

    Raises ConnectError, which names the file that cannot be loaded.
    """
    context = ssl.create_default_context()
    password = settings.key_password.value if settings.key_password else None
    try:
        if settings.trust:
            context = _Sealed(ssl.PROTOCOL_TLS_CLIENT)
            ssl.SSLContext.load_verify_locations(context, cafile=settings.trust)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, password=password)
    except (OSError, ValueError) as e:
        files = f"{settings.trust or ''} {settings.certificate or ''}".strip()
        raise ConnectError(f"certificates cannot be loaded ({files}): {e}") from e
    if not settings.check_host:
        context.check_hostname = False
    return context
