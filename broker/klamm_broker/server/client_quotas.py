"""Client quotas: the checks of filters and changes, in Kafka's words. Pure.

The broker does not enforce quotas, so it stores none. A change that would set a quota is refused with a sentence that
says so: a limit that is accepted and ignored is worse than none.
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
"""The ways in which a component of a filter matches: this name, the default entity, or any."""
_RATES: Final[Mapping[str, bool]] = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
"""Keys of users and client ids, each with whether its value is a whole number."""
_IP_RATES: Final[Mapping[str, bool]] = {"connection_creation_rate": True}
NOT_ENFORCED: Final = "Client quotas are not enforced by this broker, so none is stored."


class QuotaRefused(KlammError):
    """A filter or a change that is not possible, with the reason."""

    def __init__(self, why: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(why)
        self.code = code


def check_filter(components: Sequence[tuple[str, int, str | None]]) -> None:
    """Raises QuotaRefused unless these (entity type, match type, name) make a filter."""
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
    """Raises QuotaRefused unless an entity (type to name, None for the default one) can get these values (None: remove).

    Every value that would have to be enforced is refused as well.
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
