"""The operations that a client may do with a topic, a group or the cluster, as the bit fields of answers.

There is no authorizer, so everybody may do everything that applies to the kind of resource. Numbers: Kafka's
AclOperation codes, one bit each.
"""

from __future__ import annotations

from typing import Final

from klamm_kafka.wire.acls import AclOperation


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_A = AclOperation
TOPIC: Final = _bits(
    _A.READ, _A.WRITE, _A.CREATE, _A.DELETE, _A.ALTER, _A.DESCRIBE, _A.DESCRIBE_CONFIGS, _A.ALTER_CONFIGS
)
GROUP: Final = _bits(_A.READ, _A.DELETE, _A.DESCRIBE, _A.DESCRIBE_CONFIGS, _A.ALTER_CONFIGS)
CLUSTER: Final = _bits(
    _A.CREATE, _A.ALTER, _A.DESCRIBE, _A.CLUSTER_ACTION, _A.DESCRIBE_CONFIGS, _A.ALTER_CONFIGS, _A.IDEMPOTENT_WRITE
)  # fmt: skip
NOT_ASKED: Final = -(1 << 31)
