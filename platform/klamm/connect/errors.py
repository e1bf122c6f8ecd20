"""The errors of requests to the worker: each carries the HTTP status of the REST answer."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_base.errors import KlammError


class RequestError(KlammError):
    """A request that cannot be done. The message is written for the user."""

    status = 500
    warnings: Sequence[str] = ()
    """Sentences beside the error, which the answer has in a field of their own."""


class BadRequest(RequestError):
    status = 400


class Forbidden(RequestError):
    status = 403


class NotFound(RequestError):
    status = 404


class AlreadyExists(RequestError):
    status = 409


class Conflict(RequestError):
    """Something else is happening to the target of the request now; the client may try again."""

    status = 409


class Starting(RequestError):
    """The worker is still starting and cannot answer yet."""

    status = 503


class RequestTarget(RequestError):
    """Another worker must do this; `url` is its address, None while it is unknown."""

    status = 409

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class NotTheLeader(RequestTarget):
    """Only the leader of the group does this."""


class NotAssigned(RequestTarget):
    """Only the worker that runs the connector or task does this."""
