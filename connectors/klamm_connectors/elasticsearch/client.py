"""The requests that the sink makes. Each ends in a `Reply`; nothing is raised.

Bodies and answers are bytes, and the HTTP client is the standard library's: the official client's imports cost a task
more than sending half a million documents, and its parsing of answers several times as much as a request. The headers are
those of the official client of 8.x, to which servers of 8 and 9 answer alike.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any, Final

import orjson

from klamm_base.version import __version__
from klamm_connectors.elasticsearch.config import Settings, Ssl
from klamm_connectors.elasticsearch.nodes import Nodes
from klamm_plugins.errors import ConnectError

NO_ANSWER: Final = 0
_TYPE: Final = "application/vnd.elasticsearch+{}; compatible-with=8"
_BULK: Final = "/_bulk?filter_path=errors,items.*.status,items.*.error"
_PRODUCT: Final = "Elasticsearch"
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


class Client:
    """A client for several threads. After `close`, a thread that still waits for its answer may end its request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._verified = False
        headers = {"Accept": _TYPE.format("json"), "User-Agent": f"klamm/{__version__}"}
        if settings.username and settings.password is not None:
            pair = f"{settings.username}:{settings.password.value}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        context = None
        if any(url.startswith("https:") for url in settings.urls):
            context = ssl.create_default_context() if settings.ssl is None else ssl_context(settings.ssl)
        self._nodes = Nodes(
            settings.urls, context=context, connect_timeout_s=settings.connect_timeout_s, headers=headers
        )

    def bulk(self, body: bytes, read_timeout_s: float) -> Reply:
        """Sends POST /_bulk. The answer says of each document only its status and its error."""
        return self._ask("POST", _BULK, body, "x-ndjson", read_timeout_s)

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
        self._nodes.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, kind: str, read_timeout_s: float | None = None
    ) -> Reply:
        headers = {} if body is None else {"Content-Type": _TYPE.format(kind)}
        if body is not None and self._settings.compression:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body)
        try:
            answer = self._nodes.ask(
                method, path, body, headers, read_timeout_s or self._settings.read_timeout_s
            )
        except TimeoutError:
            return Reply(NO_ANSWER, reason="it did not answer in time", timed_out=True)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as e:  # the node went away meanwhile
            return Reply(NO_ANSWER, reason=f"the connection broke: {e}")
        except ssl.SSLError as e:
            return Reply(NO_ANSWER, reason=f"TLS failed: {e}", fatal=True)
        except (OSError, http.client.HTTPException) as e:
            return Reply(NO_ANSWER, reason=f"the connection failed: {e!r}"[:_REASON_MAX])
        if not 200 <= answer.status < 300:
            return Reply(answer.status, answer.body, f"status {answer.status}: {_shown(answer.body)}")
        if not self._verified and answer.product != _PRODUCT:
            said = f"it says to be {answer.product!r}" if answer.product else "it does not say so"
            return Reply(NO_ANSWER, reason=f"connection.url is not Elasticsearch's: {said}", fatal=True)
        self._verified = True
        return Reply(answer.status, answer.body)


def _shown(answer: bytes) -> str:
    """Returns the reason in an answer that reports an error."""
    try:
        error = orjson.loads(answer)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return answer[:_REASON_MAX].decode("utf-8", "replace")
    return (
        f"{error.get('type')}: {error.get('reason')}"[:_REASON_MAX] if isinstance(error, dict) else str(error)
    )


def ssl_context(settings: Ssl) -> ssl.SSLContext:
    """Returns a context with the configured trust, client certificate and host name check.

    Raises ConnectError, which names the file that cannot be loaded.
    """
    context = (
        ssl.create_default_context() if settings.trust is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    password = settings.key_password.value if settings.key_password else None
    try:
        if settings.trust:
            context.load_verify_locations(cafile=settings.trust)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, password=password)
    except (OSError, ValueError) as e:
        files = f"{settings.trust or ''} {settings.certificate or ''}".strip()
        raise ConnectError(f"certificates cannot be loaded ({files}): {e}") from e
    if not settings.check_host:
        context.check_hostname = False
    return context
