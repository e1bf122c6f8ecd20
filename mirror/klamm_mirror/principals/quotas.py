"""Client quotas (KIP-546): those of the source are set at the target.

`changes` decides, and is pure. A quota that the target alone has stays, unless the flow deletes such ones; a quota with
another value gets the source's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm_kafka.client import ClientError, Cluster, UnsupportedApi, broker_error
from klamm_kafka.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from klamm_kafka.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from klamm_mirror.principals.config import PrincipalSettings
from klamm_mirror.target_admin import ask_controller
from klamm_mirror.upkeep import Upkeep, shown

log = logging.getLogger(__name__)

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, sorted, such as (("client-id", "app"), ("user", None)). None is the default of a type."""
Quotas = Mapping[Entity, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """A quota to set, or to remove (`new` None)."""

    entity: Entity
    key: str
    old: float | None
    new: float | None


def changes(
    ours: Quotas, theirs: Quotas, wants: Callable[[str], bool], *, deletes: bool
) -> list[QuotaChange]:
    """Returns how the target's quotas become the source's. `wants` selects entities by their names."""
    return [
        QuotaChange(entity=entity, key=key, old=old.get(key), new=new.get(key))
        for entity in sorted({*ours, *theirs}, key=name_of) if wants(name_of(entity))
        for new, old in [(ours.get(entity, {}), theirs.get(entity, {}))]
        for key in sorted({*new, *old} if deletes else new) if new.get(key) != old.get(key)
    ]  # fmt: skip


def name_of(entity: Entity) -> str:
    """Returns a text such as `user=ann/client-id=<default>`."""
    users_first = sorted(entity, key=lambda part: part[0], reverse=True)
    return "/".join(f"{kind}={'<default>' if name is None else name}" for kind, name in users_first)


async def list_quotas(cluster: Cluster) -> dict[Entity, dict[str, float]]:
    """Returns all quotas of a cluster. Raises ClientError."""
    answer: DescribeClientQuotasResponse = await cluster.request(
        DescribeClientQuotasRequest(components=[], strict=False)
    )
    if answer.error_code:
        said = f" ({answer.error_message})" if answer.error_message else ""
        raise broker_error(answer.error_code, f"reading client quotas{said}")
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }


async def plan(settings: PrincipalSettings, source: Cluster, target: Cluster) -> list[QuotaChange]:
    """Returns what a pass would change. Raises ClientError, which names the side."""
    ours = await _of_side(source, "source")
    theirs = await _of_side(target, "target")
    return changes(ours, theirs, settings.quotas.wants, deletes=settings.deletes)


async def _of_side(cluster: Cluster, side: str) -> dict[Entity, dict[str, float]]:
    try:
        return await list_quotas(cluster)
    except UnsupportedApi as e:
        raise QuotasUnsupported(f"the {side} has no client quotas (KIP-546): {e}") from e


async def carry_out(target: Cluster, wanted: Sequence[QuotaChange]) -> dict[str, str]:
    """Changes quotas at the target. Returns refusals by entity. Raises ClientError."""
    if not wanted:
        return {}
    by_entity: dict[Entity, list[QuotaChange]] = {}
    for change in wanted:
        by_entity.setdefault(change.entity, []).append(change)
    request = AlterClientQuotasRequest(
        entries=[_entry(entity, own) for entity, own in by_entity.items()], validate_only=False
    )
    answer: AlterClientQuotasResponse = await ask_controller(target, request)
    refused = {}
    for entry in answer.entries:
        if entry.error_code:
            name = name_of(tuple((part.entity_type, part.entity_name) for part in entry.entity))
            error = broker_error(entry.error_code, f"quotas of {name}")
            if error.retriable:
                raise error
            refused[name] = f"{error.name}: {entry.error_message or error}"
    return refused


def _entry(entity: Entity, own: Sequence[QuotaChange]) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity
        ],
        ops=[OpData(key=c.key, value=c.new or 0.0, remove=c.new is None) for c in own],
    )


class QuotasUnsupported(ClientError):
    """A cluster whose brokers do not serve quotas."""


class QuotaSync(Upkeep):
    """The copies of one flow's quotas."""

    def __init__(self, settings: PrincipalSettings) -> None:
        assert settings.quotas_s is not None, "enabled"
        super().__init__("quotas", settings.quotas_s)
        self._settings = settings
        self._changed = 0
        self._refused: dict[str, str] = {}

    def figures(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {"changed": self._changed, "conflicts": len(self._refused)}
        if self._refused:
            found["conflicting"] = shown(self._refused)
        return found

    def look(self) -> None:
        asyncio.run(self._look())

    async def _look(self) -> None:
        source, target = self._settings.clients
        async with source.cluster() as ours, target.cluster() as theirs:
            wanted = await plan(self._settings, ours, theirs)
            refused = await carry_out(theirs, wanted)
        done = [change for change in wanted if name_of(change.entity) not in refused]
        if done:
            log.info("%d quotas at the target were changed, such as %s", len(done), name_of(done[0].entity))
        for name, why in refused.items():
            if self._refused.get(name) != why:
                log.error("the target refuses the quotas of %s: %s", name, why)
        self._changed += len(done)
        self._refused = refused
