"""Requests to the coordinator of a group, and the errors of its answers.

Raises ClientError. After a coordinator has moved, the next call looks for it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from klamm_kafka.client import Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.struct import Message

_COORDINATOR_ERRORS: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset (of the next record to read) and the consumer's metadata for it.

    A share group has start offsets: -1 where it has none yet. `lag` is the number of records from there on that it has
    not finished, where the cluster tells it.
    """

    offset: int
    metadata: str = ""
    lag: int | None = None


async def ask(cluster: Cluster, group: str, request: Message, version_max: int) -> Any:
    """Sends a request to a group's coordinator, in the highest version up to `version_max`. Returns the answer."""
    connection = await cluster.coordinator(group)
    return await connection.request(request, min(connection.version_for(type(request)), version_max))


def check(cluster: Cluster, group: str | None, code: int, what: str) -> None:
    """Raises BrokerError for an error code. `group`: its coordinator is looked for again where it has moved."""
    if code == ErrorCode.NONE:
        return
    if group is not None and code in _COORDINATOR_ERRORS:
        cluster.forget_coordinator(group)
    raise broker_error(code, what)
