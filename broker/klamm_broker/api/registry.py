"""The table of served APIs: key, versions, handler.

`@handles` on a function in `api/api_NN_*.py` is the only place where an API's versions are written down:
ApiVersions, request dispatch and the ledger test all read this table. Thread rule: `load` fills the table once at
start-up; it is read-only afterwards.
"""

from __future__ import annotations

import importlib
import pkgutil
from asyncio import Future
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from klamm_broker.security.principal import ANONYMOUS, KafkaPrincipal
from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey, message_types

if TYPE_CHECKING:
    from klamm_broker.security.authorizer import Access
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.state import BrokerState
    from klamm_kafka.wire.struct import Message

Handler = Callable[
    ["BrokerState", "RequestContext", Any], "Any | Future[Any] | Generator[None, None, Any] | None"
]
STEP: Final = 256
"""Partitions in one step of a handler that is a generator."""
_H = TypeVar("_H", bound=Callable[..., Any])

REQUEST_MAX: Final = 512 * 1024
"""Bytes of a request. Requests are handled one at a time, and each takes a microsecond or a few for every element of its
arrays: a request of 26 MB that named one partition a million times held everybody up for seconds. The limit is room for
10,000 topics with names of 50 characters, which take some 50 ms; with names of three characters it is 0.3 s at worst.
"""
LARGE_REQUEST_MAX: Final = 1024 * 1024
"""For requests with larger elements: a fetch or commit of 30,000 partitions, a subscription to as many."""
ASSIGNMENT_MAX: Final = 4 * 1024 * 1024
"""For a SyncGroup, in which the leader sends the assignment of every member: few elements, each of any size."""

ELEMENTS_MAX: Final = 12_500
"""Elements of all arrays of a request, tagged fields included. Each takes some microseconds to read, look up and answer;
with names of three characters 512 KiB hold 130,000. The limit is room for 10,000 topics.
"""
LARGE_ELEMENTS_MAX: Final = 25_000
"""For requests that name partitions, which take less each: 20,000 of them, or 10,000 that are assigned."""
OVER_QUOTA: Final = "The throttling quota has been exceeded."
"""The message for a topic that a client may not create or delete now."""
_OF_PARTITIONS: Final = frozenset(
    {
        ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH,
        ApiKey.CREATE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CREATE_PARTITIONS, ApiKey.OFFSET_DELETE,
    }
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """The sender of a request and its header: all that a handler may need beside the request itself."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    host: str
    port: int
    listener: str
    principal: KafkaPrincipal = ANONYMOUS
    software: tuple[str, str] = ("unknown", "unknown")
    """Name and version of the client's software, as ApiVersions told them."""
    connection: Hashable = None
    """Tells the connection from others while it is open."""
    access: Access | None = None
    """The sender's rights; None where there is no authorizer, and everybody may do everything."""
    charge: Charge | None = None
    """The request's account, if clients have quotas."""

    def may(self, operation: AclOperation, kind: ResourceType, name: str, *, tell: bool = True) -> bool:
        """Decides whether the sender may do this with a resource. `tell` the audit log of a denial: False where it only filters."""
        access = self.access
        return access is None or access.may(operation, kind, name, ApiKey(self.api_key).name, tell=tell)

    def may_cluster(self, operation: AclOperation, *, tell: bool = True) -> bool:
        """Decides whether the sender may do this with the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, tell=tell)

    def may_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Decides whether the sender may do this with some resource of a kind, existing or not."""
        return self.access is None or self.access.may_any(operation, kind)

    def may_mutate(self, partitions: int, *, strict_since: int) -> bool:
        """Charge the client for partitions that it creates or deletes (KIP-599). Returns False if it must not do so now.

        From version `strict_since` on a client over its quota is refused; older ones are only slowed down.
        """
        strict = self.api_version >= strict_since
        return self.charge is None or self.charge.mutate(partitions, strict=strict)


class Need(NamedTuple):
    """A right that an API asks for. The table in docs/security.md is made of these; `note` says when, and what its lack means."""

    operation: AclOperation
    kind: ResourceType
    note: str = ""


class Api:
    """One served API. `advertised_min` differs from `min_version` only where a client's bug requires it.

    `request_max` limits the bytes of a request (None: `socket.request.max.bytes`), `elements_max` the elements of all its
    arrays together.

    A `raw` handler reads the receive buffer itself: `(connection, body, version, correlation_id)` with a view of the body.
    It returns the framed answer, or None after parking it.
    """

    __slots__ = (
        "advertised_min", "elements_max", "flexible_from", "handler", "key", "max_version", "min_version", "module",
        "name", "needs", "raw", "request_max", "request_type",
    )  # fmt: skip

    def __init__(
        self,
        key: ApiKey,
        *,
        versions: tuple[int, int],
        advertised_min: int | None,
        handler: Handler,
        raw: bool,
        request_max: int | None = REQUEST_MAX,
        needs: Sequence[Need] | None = None,
    ) -> None:
        self.key = key
        self.needs = needs
        self.name = key.name
        self.min_version, self.max_version = versions
        self.advertised_min = self.min_version if advertised_min is None else advertised_min
        self.handler = handler
        self.raw: Callable[..., Any] | None = handler if raw else None
        self.request_max = request_max
        self.elements_max = LARGE_ELEMENTS_MAX if key in _OF_PARTITIONS else ELEMENTS_MAX
        self.module = handler.__module__
        self.request_type: type[Message] = message_types(key)[0]
        self.flexible_from = self.request_type.FLEXIBLE_FROM


_apis: Final[dict[int, Api]] = {}


def handles(
    key: ApiKey,
    *,
    versions: tuple[int, int],
    advertised_min: int | None = None,
    raw: bool = False,
    request_max: int | None = REQUEST_MAX,
    needs: Sequence[Need] | None = None,
) -> Callable[[_H], _H]:
    """Register a function `(broker, ctx, request)` as the handler of an API, for these versions (inclusive).

    `needs` are the rights that the handler asks for, by `ctx.may`; () for an API that everybody may use.

    The handler returns the response message, or an `asyncio.Future` of it (a parked request), or None if the protocol wants
    no answer (Produce with acks=0). A handler whose work may be long is a generator: it yields None after some thousandths
    of a second, so that others are served, and returns the response. It finds the broker changed then.
    """

    def register(handler: _H) -> _H:
        if key in _apis:
            raise ValueError(f"{key.name} is registered by {_apis[key].module} and by {handler.__module__}")
        _apis[key] = Api(
            key,
            versions=versions,
            advertised_min=advertised_min,
            handler=handler,
            raw=raw,
            request_max=request_max,
            needs=needs,
        )
        return handler

    return register


def load() -> dict[int, Api]:
    """Import every `api_NN_*` module beside this one and return the table, by key. Idempotent."""
    package = importlib.import_module("klamm_broker.api")
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("api_"):
            importlib.import_module(f"klamm_broker.api.{info.name}")
    for key in sorted(_apis):
        _apis[key] = _apis.pop(key)
    return _apis


def table() -> dict[int, Api]:
    """Returns the registered APIs by key, as `load` left them."""
    return _apis


def too_large(api: Api | None, key: int, size: int) -> str | None:
    """Returns why a request of this size is not read; None if its API takes it."""
    name, limit = (f"api key {key}", REQUEST_MAX) if api is None else (api.name, api.request_max)
    return None if limit is None or size <= limit else f"{name} of {size} bytes: at most {limit} are taken"
