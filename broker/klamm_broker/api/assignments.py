"""The check of a replica assignment on a single node. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def why_not_assignable(replicas: Sequence[int], node_id: int) -> str | None:
    """Returns what is wrong with a partition's replicas, in Kafka's words; None for this node alone."""
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    for position, replica in enumerate(replicas):
        if replica in replicas[:position]:
            return f"The manual partition assignment includes the broker {replica} more than once."
    for replica in replicas:
        if replica != node_id:
            return f"The manual partition assignment includes broker {replica}, but no such broker is registered."
    return None
