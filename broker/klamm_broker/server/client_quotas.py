"""Client quotas (KIP-546): the checks of filters and changes in Kafka's words, filters and changes themselves. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from klamm_base.errors import KlammError
from klamm_broker.quota.limits import CLIENT_ID, IP, USER, Entity, QuotaKey
from klamm_kafka.wire.errors import ErrorCode

ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})
EXACT, DEFAULT, ANY = range(3)
"""The ways in which a component of a filter matches: this name, the default entity, or any."""
_RATES: Final[Mapping[str, int | None]] = {
    QuotaKey.PRODUCE: (1 << 63) - 1,
    QuotaKey.FETCH: (1 << 63) - 1,
    QuotaKey.REQUEST: None,
    QuotaKey.MUTATION: None,
}
"""Keys of users and client ids, each with its greatest value if it is a whole number."""
_IP_RATES: Final[Mapping[str, int | None]] = {QuotaKey.CONNECTION: (1 << 31) - 1}
Component = tuple[str, int, str | None]
"""A part of a filter: type of entity, way of matching, name."""
Change = tuple[str, float | None]
"""A key and its new value; None removes it."""
Quotas = Mapping[Entity, Mapping[str, float]]


class QuotaRefused(KlammError):
    """A filter or a change that is not possible, with the reason."""

    def __init__(self, why: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(why)
        self.code = code


def check_filter(components: Sequence[Component]) -> None:
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


def selected(quotas: Quotas, components: Sequence[Component], *, strict: bool) -> Iterator[Entity]:
    """Yields the entities that a checked filter selects. `strict`: they have no other parts than those of the filter."""
    for entity in quotas:
        parts = dict(entity)
        if strict and len(parts) != len(components):
            continue
        if all(kind in parts and (how == ANY or parts[kind] == name) for kind, how, name in components):
            yield entity


def check_entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Returns the entity of these (type, name) pairs; a name of None is the default. Raises QuotaRefused."""
    if not parts:
        raise QuotaRefused("Invalid empty client quota entity")
    entity = dict(parts)
    for entity_type, name in entity.items():
        if entity_type not in ENTITY_TYPES:
            raise QuotaRefused(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise QuotaRefused(f"Empty {entity_type} not supported")
    if IP in entity and len(entity) > 1:
        raise QuotaRefused(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    return tuple(sorted(entity.items()))


def check_changes(entity: Entity, changes: Sequence[Change]) -> None:
    """Raises QuotaRefused unless an entity can get these values."""
    known = _IP_RATES if IP in dict(entity) else _RATES
    if len({key for key, _ in changes}) < len(changes):
        raise QuotaRefused(duplicate(entity))
    for key, value in changes:
        if value is not None:
            if key not in known:
                raise QuotaRefused(f"Invalid configuration key {key}")
            _check_value(key, value, most=known[key])


def changed(own: Mapping[str, float], changes: Iterable[Change]) -> dict[str, float]:
    """Returns an entity's values after checked changes."""
    after = dict(own)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def address_of(entity: Entity) -> str | None:
    """Returns the name of an address that has to be looked up; None for an address as such and for other entities."""
    name = dict(entity).get(IP)
    if name is None:
        return None
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    return None


def duplicate(entity: Entity) -> str:
    """Returns what an entity is told that has one quota twice in a request, or is there twice itself."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{parts}}})"


def _check_value(key: str, value: float, *, most: int | None) -> None:
    if not value > 0:
        raise QuotaRefused(f"Quota {key} must be greater than 0")
    if most is None:
        return
    if value > most:
        raise QuotaRefused(
            f"Proposed value for {key} is too large for {'an INT' if most < 1 << 32 else 'a LONG'}."
        )
    if value % 1.0 > 1e-6:
        raise QuotaRefused(f"{key} cannot be a fractional value.")
