"""The errors of requests to the worker: each carries the HTTP status of the REST answer."""

from __future__ import annotations

from klamm.web.errors import BadRequest, Conflict, Forbidden, NotFound, RequestError

__all__ = (
    "AlreadyExists", "BadRequest", "Conflict", "Forbidden", "NotAssigned", "NotFound", "NotTheLeader", "RequestError",
    "RequestTarget", "Starting",
)  # fmt: skip


class AlreadyExists(RequestError):
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
