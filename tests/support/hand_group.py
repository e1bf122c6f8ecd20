"""A membership in the test's hand."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.connect.model import TaskId


class HandGroup:
    """Leads, and lives, until the test says something else."""

    def __init__(self) -> None:
        self.is_leader, self.leader_url, self.generation = True, "http://me", 5
        self.alive, self.protocol_version = True, 1
        self.owners: dict[object, str] = {}

    def owner_url(self, item: str | TaskId) -> str | None:
        return self.owners.get(item)

    def has_tasks_of(self, connector: str) -> bool:
        return any(isinstance(each, TaskId) and each.connector == connector for each in self.owners)

    async def members(self) -> Mapping[str, str]:
        return {}

    def request_rejoin(self, reason: str) -> None:
        """Does nothing: the test says when the group meets."""
