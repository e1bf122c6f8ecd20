"""Notices that another cluster answers for a flow's source than the one whose topics it has copied. Pure.

A cluster that was lost, and replaced by an empty one at the same address, has not deleted its topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from klamm_kafka.client import ClientError
from klamm_mirror.gaps.entries import Known


class OtherSource(ClientError):
    """Another cluster answers for the source. The flow waits until the right one does, or somebody says that it is."""

    retriable = True


def check_source(topics: Iterable[Known], cluster_id: str | None, flow: str) -> None:
    """Raises OtherSource if one of these topics was copied from another cluster than the one with this id."""
    for known in sorted(topics, key=lambda known: known.topic):
        if None not in {cluster_id, known.cluster} and known.cluster != cluster_id:
            raise OtherSource(
                f"the source is cluster {cluster_id} now, and {known.topic} was copied from cluster {known.cluster}. If that is "
                f"right: klamm mirror resolve FILE '{flow}' --new-source"
            )


def moved_to(topics: Iterable[Known], cluster_id: str) -> list[Known]:
    """Returns the entries to write for topics that are to be copied from this cluster from now on.

    Their copies no longer count as made by the flow: those of topics that the new cluster lacks must stay.
    """
    return [replace(k, cluster=cluster_id, made=None) for k in topics if k.cluster not in {None, cluster_id}]
