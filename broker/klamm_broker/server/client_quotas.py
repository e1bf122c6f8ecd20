"""Client quotas: what a filter and a change must look like, in Kafka's words. Pure.

Quotas are not enforced here. So none is stored: a change that would set one is refused with a sentence that says so,
because a limit that is accepted and ignored is worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})
EXACT, DEFAULT, ANY = range(3)
"""How a component of a filter matches: this name, the default entity, or any."""
_RATES: Final[Mapping[str, bool]] = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
"""Keys of users and client ids: whether the value is a whole number."""
_IP_RATES: Final[Mapping[str, bool]] = {"connection_creation_rate": True}
NOT_ENFORCED: Final = "Client quotas are not enforced by this broker, so none is stored."


class QuotaRefused(KlammError):
    """What is wrong with a filter or a change."""

    def __init__(self, why: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(why)
        self.code = code


def check_filter(components: Sequence[tuple[str, int, str | None]]) -> None:
    """Whether these (entity type, match type, name) make a filter. Raises QuotaRefused."""
    seen: set[str] = set()
    for entity_type, match_type, name in components:
        if not entity_type:
            raise QuotaRefused("Invalid empty entity type.")
        if entity_type in seen:
            raise QuotaRefused(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if match_type not in {EXACT, DEFAULT, ANY}:
            raise QuotaRefused(f"Unknown match type {match_type}")
        if match_type == EXACT and name is None:
            raise QuotaRefused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type != EXACT and name is not None:
            kind = "MATCH_TYPE_DEFAULT" if match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise QuotaRefused(f"Request specified {kind}, but also specified a match string.")
        if entity_type not in ENTITY_TYPES:
            raise QuotaRefused(f"Unsupported entity type {entity_type}", ErrorCode.UNSUPPORTED_VERSION)
        seen.add(entity_type)
    if IP in seen and len(seen) > 1:
        raise QuotaRefused(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )


def check_change(entity: Mapping[str, str | None], changes: Sequence[tuple[str, float | None]]) -> None:
    """Whether an entity (type to name, None for the default one) can be given these values (None: without).

    Raises QuotaRefused, also for every value that would have to be enforced.
    """
    if not entity:
        raise QuotaRefused("Invalid empty client quota entity")
    for entity_type, name in entity.items():
        if entity_type not in ENTITY_TYPES:
            raise QuotaRefused(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise QuotaRefused(f"Empty {entity_type} not supported")
    if IP in entity and len(entity) > 1:
        raise QuotaRefused(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    keys = _IP_RATES if IP in entity else _RATES
    for key, value in changes:
        if key not in keys:
            raise QuotaRefused(f"Invalid configuration key {key}")
        if value is not None:
            _check_value(key, value, whole=keys[key])
    if any(value is not None for _, value in changes):
        raise QuotaRefused(NOT_ENFORCED)


def _check_value(key: str, value: float, *, whole: bool) -> None:
    if not value > 0 or math.isinf(value):
        raise QuotaRefused(f"Quota {key} must be greater than 0")
    if whole and value != int(value):
        raise QuotaRefused(f"{key} cannot be a fractional value.")
