"""The quotas of users and clients: which one holds for a connection, and who shares it. Pure.

Of the eight kinds of entities that may match, the most specific one that has a value of this quota decides:
user and client, user and any client, user, any user and client, any user and any client, any user, client, any client.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type (`user`, `client-id` or `ip`) and name, sorted by type. A name of None is the default of its type."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"

NAME_MAX: Final = 249
"""Characters of a client id that is remembered as it is. A client may come with ids of 32 KB."""


class QuotaKey(StrEnum):
    """The keys of quotas."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


Tags = tuple[str, str]
"""User and client id of those who share a quota, "" for any."""
_Place = tuple[str, str]
"""User and client id of an entity: a name, `_DEFAULT`, or `_NONE` if the entity does not have that part."""
_NONE, _DEFAULT = "", "\0"


class Limits:
    """The values of one quota, by entity."""

    __slots__ = ("_found", "_values")

    FOUND_MAX: Final = 10_000
    """Answers that are remembered. A client may come with any number of client ids."""

    def __init__(self, key: QuotaKey, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        self._values: dict[_Place, float] = {}
        for entity, values in quotas.items():
            if key in values and IP not in (parts := dict(entity)):
                user, client_id = (
                    _NONE if kind not in parts else _DEFAULT if parts[kind] is None else str(parts[kind])
                    for kind in (USER, CLIENT_ID)
                )
                self._values[user, client_id] = values[key]
        self._found: dict[Tags, tuple[Tags, float] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> tuple[Tags, float] | None:
        """Returns who shares the quota of this user and client, and its value; None if they have none."""
        asked = (user, client_id)
        try:
            return self._found[asked]
        except KeyError:
            found = self._search(user, client_id)
            if len(client_id) <= NAME_MAX:
                if len(self._found) >= self.FOUND_MAX:
                    self._found.clear()
                self._found[asked] = found
            return found

    def _search(self, user: str, client_id: str) -> tuple[Tags, float] | None:
        # Those without a client id have no share in any quota of clients, not even in that of any client (as in Kafka).
        of_client = ((client_id, client_id), (_DEFAULT, client_id)) if client_id else ()
        for owner in (user, _DEFAULT):
            for place, shared_by in (*of_client, (_NONE, "")):
                if (owner, place) in self._values:
                    return (user, shared_by), self._values[owner, place]
        for place, shared_by in of_client:
            if (_NONE, place) in self._values:
                return ("", shared_by), self._values[_NONE, place]
        return None
