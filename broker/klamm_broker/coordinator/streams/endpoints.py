"""Tells which partitions the endpoints of a group have, so that applications find each other's state (interactive queries)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.streams.member import StreamsMember
from klamm_broker.coordinator.streams.model import EndpointPartitions, NamedPartitions
from klamm_broker.coordinator.streams.tasks import EpochTasks, Tasks
from klamm_broker.coordinator.streams.topology import Configured


def partitions_of(
    members: Iterable[StreamsMember], configured: Configured, count: Callable[[str], int | None]
) -> list[EndpointPartitions]:
    """Returns the partitions of all members with an endpoint, active and standby."""
    return [
        EndpointPartitions(
            member.endpoint,
            _named(member.assigned.active, configured, count),
            _named(member.assigned.standby, configured, count),
        )
        for member in members
        if member.endpoint is not None
    ]


def _named(
    tasks: EpochTasks | Tasks, configured: Configured, count: Callable[[str], int | None]
) -> list[NamedPartitions]:
    found = []
    for subtopology_id, partitions in tasks.items():
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None:
            continue  # its topics are missing at the moment
        topics = java_order.strings((*subtopology.sources, *subtopology.repartition_sources))
        # A task of a wider topic reads nothing from a narrower one beside it.
        found += [NamedPartitions(t, sorted(partitions)[: count(t) or 0]) for t in topics]
    return found
