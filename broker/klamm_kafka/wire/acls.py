"""The codes of ACLs in requests and answers (API keys 29 to 31, and the bit fields of authorized operations)."""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's codes of the operations that can be authorized."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Kafka's codes of what an ACL does."""

    DENY = 2
    ALLOW = 3
