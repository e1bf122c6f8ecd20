"""AlterClientQuotas, key 49: versions 0 to 1.

Behaviour: sets and removes quotas of users, clients, both together, and addresses; an error is per entity. Changes are on the
disk when they are answered, and hold from the next request on. The name of a host is looked up once, when its quota is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.quota.limits import Entity
from klamm_broker.server import audit
from klamm_broker.server.client_quotas import (
    Change,
    QuotaRefused,
    address_of,
    changed,
    check_changes,
    check_entity,
    duplicate,
)
from klamm_broker.server.host_names import look_up
from klamm_broker.server.slices import drive
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

Parts = tuple[tuple[str, str | None], ...]
Refusal = tuple[ErrorCode, str]
STEP: Final = 64
"""Entries in one step: half a millisecond."""


@handles(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    needs=[
        Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
    ],
)
def alter_client_quotas(
    broker: BrokerState, ctx: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse | asyncio.Future[AlterClientQuotasResponse]:
    if not ctx.may_cluster(AclOperation.ALTER_CONFIGS):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = [_answer(_parts(entry), (denied, denied.message)) for entry in request.entries]
        return AlterClientQuotasResponse(entries=refused)
    hosts = {name for entry in request.entries if (name := address_of(_parts(entry))) is not None}
    if not hosts:
        return drive(broker.loop, _altering(broker, ctx, request, {}))

    async def looked_up() -> AlterClientQuotasResponse:
        found = await asyncio.gather(*(broker.loop.run_in_executor(None, _address, host) for host in hosts))
        result = drive(broker.loop, _altering(broker, ctx, request, dict(zip(hosts, found, strict=True))))
        return await result if isinstance(result, asyncio.Future) else result

    return broker.loop.create_task(looked_up())


def _altering(
    broker: BrokerState,
    ctx: RequestContext,
    request: AlterClientQuotasRequest,
    addresses: dict[str, str | None],
) -> Steps[AlterClientQuotasResponse]:
    wanted: dict[Entity, Sequence[Change]] = {}
    results: dict[Parts, Refusal | None] = {}  # by the entity as it was asked for
    seen: set[Parts] = set()
    for number, entry in enumerate(request.entries, 1):
        if not number % STEP:
            yield None
        parts = _parts(entry)
        named_before = (ordered := tuple(sorted(parts))) in seen
        seen.add(ordered)
        try:
            entity = check_entity(parts)
            host = address_of(entity)
            if host is not None and addresses.get(host) is None:
                raise QuotaRefused(f"{host} is not a valid IP or resolvable host.")
            if named_before:
                raise QuotaRefused(duplicate(entity))
            changes: Sequence[Change] = [(op.key, None if op.remove else op.value) for op in entry.ops]
            check_changes(entity, changes)
        except QuotaRefused as e:
            results[parts] = e.code, str(e)
            continue
        results[parts] = None
        wanted[entity] = changes
    yield None
    quotas = dict(broker.quotas.all)
    for entity, changes in wanted.items():
        quotas[entity] = changed(quotas.get(entity, {}), changes)
    kept = {entity: values for entity, values in quotas.items() if values}
    if not request.validate_only and kept != broker.quotas.all:
        failed = _store(broker, kept, {host: found for host, found in addresses.items() if found is not None})
        results = {parts: refusal or failed for parts, refusal in results.items()}
        if failed is None:
            entities = [dict(parts) for parts, refusal in results.items() if refusal is None]
            audit.changed(ctx, "quotas", entities=entities)
    answers = []
    for number, (parts, refusal) in enumerate(results.items()):
        if not number % STEP:
            yield None
        answers.append(_answer(parts, refusal))
    return AlterClientQuotasResponse(entries=answers)


def _store(
    broker: BrokerState, quotas: dict[Entity, dict[str, float]], addresses: dict[str, str]
) -> Refusal | None:
    try:
        broker.quotas.replace(quotas, addresses)
    except OSError as e:
        log.error("quotas could not be stored: %s", e)  # noqa: TRY400
        return ErrorCode.KAFKA_STORAGE_ERROR, str(e)
    return None


def _parts(entry: AlterClientQuotasRequestEntryData) -> Parts:
    return tuple({part.entity_type: part.entity_name for part in entry.entity}.items())


def _answer(parts: Parts, refusal: Refusal | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=refusal[0] if refusal else ErrorCode.NONE,
        error_message=refusal[1] if refusal else None,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in parts
        ],
    )


def _address(host: str) -> str | None:
    """Returns the address of a host; None if it has none."""
    found = look_up(host)
    return None if isinstance(found, OSError) else found[0][1]
