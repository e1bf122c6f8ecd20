"""An endpoint: a row of the table in `app`. Routes, access control and the OpenAPI document are made of these
rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from aiohttp import web

REQUEST_TIMEOUT_S: Final = 90.0  # Kafka's

NUMBER: Final = "[0-9]{1,9}"
"""The pattern of a task's number in a path. As in Kafka, a path with anything else does not exist."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(StrEnum):
    """The right that a caller needs. The first three hold for the connector in the path; without a connector
    they hold for the worker, that is for every connector.
    """

    VIEW = "view"
    OPERATE = "operate"
    ADMINISTER = "administer"
    ANY = "any"  # any role; the handler shows what the role may see
    NAMED = "named"  # the connector is named in the body: the handler asks
    OPEN = "open"  # no credentials needed
    WORKER = "worker"  # other workers, who sign their requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query parameter. `values` are those with a meaning; any other value means the default."""

    name: str
    about: str
    values: Sequence[str] = ()
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    `answers` gives the shape (a TypedDict or another type; None: no body) of each success, `errors` the
    statuses that this endpoint has beside those of all (401, 403, 406, 413, 415, 500, 503). `produces` is the
    answer's content type, and `also` are other names of it that clients accept; `consumes` are those of the body. `admin`: served by `admin.listeners`. `early`: answers before the worker has read
    its topics. `timeout_s`: a request is answered 500 after this time; 0 for answers that go on.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    answers: Mapping[int, Any]
    errors: Sequence[int] = ()
    body: Any = None
    query: Sequence[Query] = field(default=())
    produces: str = "application/json"
    consumes: Sequence[str] = ("application/json",)
    also: Sequence[str] = ()
    admin: bool = False
    early: bool = False
    timeout_s: float = REQUEST_TIMEOUT_S

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it, without the patterns of parameters."""
        return self.path.replace(f":{NUMBER}", "")


BOOLEAN: Final = ("true", "false")
