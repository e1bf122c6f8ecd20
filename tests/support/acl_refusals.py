"""Requests that make, tell or delete ACLs with odd values, for our broker and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.acl_cases import Case, ask

from klamm_kafka.wire.api_keys import ApiKey as K

_GOOD: dict[str, Any] = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:zoe", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
_ANY: dict[str, Any] = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None, "host_filter": None,
    "operation": 1, "permission_type": 1,
}  # fmt: skip
ODD_ACLS: list[dict[str, Any]] = [
    {},
    {"resource_name": ""},
    {"resource_type": 0},
    {"resource_type": 99},
    {"resource_type": 4, "resource_name": "t"},
    {"resource_type": 4, "resource_name": "kafka-cluster", "resource_pattern_type": 4},
    {"resource_type": 4, "resource_name": ""},
    {"resource_type": 6},
    {"resource_type": 7, "resource_name": "User:x", "operation": 13},
    {"resource_pattern_type": 0},
    {"resource_pattern_type": 77},
    {"resource_name": "*", "resource_pattern_type": 4},
    {"operation": 0},
    {"operation": 15},
    {"operation": 16},
    {"operation": 99},
    {"operation": 9},
    {"permission_type": 0},
    {"permission_type": 2},
    {"principal": "zoe"},
    {"principal": ""},
    {"principal": ":"},
    {"principal": "User:"},
    {"principal": ":zoe"},
    {"principal": "Group:zoe"},
    {"principal": "*"},
    {"host": ""},
    {"host": "example.org"},
    {"host": "::1"},
    {"host": "127.0.0.0/8"},
    {"resource_name": "a/b c"},
    {"resource_name": "x" * 300},
]
ANY_ACLS: list[dict[str, Any]] = [
    {"resource_type": 1},
    {"resource_pattern_type": 1},
    {"resource_pattern_type": 2},
    {"operation": 1},
    {"permission_type": 1},
]
"""Codes for filters. Kafka refuses the whole request with UNKNOWN_SERVER_ERROR; we refuse the one ACL."""
ODD_FILTERS: list[dict[str, Any]] = [
    {},
    {"resource_type_filter": 0},
    {"resource_type_filter": 99},
    {"pattern_type_filter": 0},
    {"pattern_type_filter": 9},
    {"operation": 0},
    {"operation": 77},
    {"permission_type": 0},
    {"principal_filter": "zoe"},
    {"principal_filter": ""},
    {"resource_name_filter": ""},
    {"resource_name_filter": "t", "pattern_type_filter": 2},
    {"resource_name_filter": "*", "pattern_type_filter": 3},
    {"resource_type_filter": 4, "resource_name_filter": "t"},
    {"host_filter": "example.org"},
    {"operation": 2},
    {"permission_type": 2},
]


def with_any() -> Iterator[Case]:
    """Yields requests for one ACL that cannot be and one that can."""
    for odd in ANY_ACLS:
        yield ask(K.CREATE_ACLS, 3, str(odd), creations=[_GOOD | odd, _GOOD | {"resource_name": "good"}])


def requests() -> Iterator[Case]:
    for odd in ODD_ACLS:
        for version in (1, 3):
            yield ask(
                K.CREATE_ACLS, version, str(odd), creations=[_GOOD | odd, _GOOD | {"resource_name": "good"}]
            )
    yield ask(K.CREATE_ACLS, 3, "none", creations=[])
    yield ask(K.CREATE_ACLS, 3, "the same twice", creations=[_GOOD, _GOOD])
    for odd in ODD_FILTERS:
        for version in (1, 3):
            yield ask(K.DESCRIBE_ACLS, version, str(odd), **(_ANY | odd))
    for odd in ODD_FILTERS[1:]:
        yield ask(K.DELETE_ACLS, 3, str(odd), filters=[_ANY | {"principal_filter": "User:zoe"} | odd])
    yield ask(K.DELETE_ACLS, 3, "one of them twice", filters=[_ANY | {"host_filter": "::1"}] * 2)
    yield ask(K.DELETE_ACLS, 2, "none", filters=[])
    yield ask(K.DESCRIBE_ACLS, 2, "what is left", **_ANY)
