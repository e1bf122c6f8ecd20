"""The errors of requests: each carries the HTTP status of its answer. Servers have subclasses with words of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm_base.errors import KlammError


class RequestError(KlammError):
    """A request that cannot be done. The message is written for the user."""

    status = 500
    code: int | None = None
    """The `error_code` of the answer's body; None: the status."""
    headers: Mapping[str, str] | None = None
    """More headers of the answer."""
    warnings: Sequence[str] = ()
    """Sentences beside the error, which the answer has in a field of their own."""


class BadRequest(RequestError):
    status = 400


class Unauthorized(RequestError):
    """The caller is unknown; `headers` ask for credentials."""

    status = 401


class Forbidden(RequestError):
    status = 403


class NotFound(RequestError):
    status = 404


class Conflict(RequestError):
    """Something else is happening to the target of the request now; the client may try again."""

    status = 409


class Unavailable(RequestError):
    """The server cannot do it now; the client may try again."""

    status = 503
