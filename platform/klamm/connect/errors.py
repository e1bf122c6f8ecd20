"""The errors of requests to the worker: each carries the HTTP status that REST answers."""

from __future__ import annotations

from klamm_base.errors import KlammError


class RequestError(KlammError):
    """A request that cannot be done; the message is what the user reads."""

    status = 500


class BadRequest(RequestError):
    status = 400


class Forbidden(RequestError):
    status = 403


class NotFound(RequestError):
    status = 404


class AlreadyExists(RequestError):
    status = 409


class Conflict(RequestError):
    """Something else happens to it just now; it may be asked again."""

    status = 409


class Starting(RequestError):
    """The worker cannot answer yet."""

    status = 503


class RequestTarget(RequestError):
    """Another worker must do this; `url` is its address, None when it is not known now."""

    status = 409

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class NotTheLeader(RequestTarget):
    """Only the leader of the group does this."""


class NotAssigned(RequestTarget):
    """The worker that runs it does this."""
