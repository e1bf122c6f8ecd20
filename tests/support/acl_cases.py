"""Users, their ACLs, and the requests that each of them sends to a broker with an authorizer.

`requests_of(user, topic_ids)` are the cases of one user. None changes what another finds: what it deletes or creates has the
user's name in it, or does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from support.raw import batch

from klamm_kafka.wire.acls import AclOperation as O
from klamm_kafka.wire.acls import AclPermissionType as P
from klamm_kafka.wire.acls import PatternType, ResourceType
from klamm_kafka.wire.api_keys import ApiKey as K
from klamm_kafka.wire.api_keys import message_types
from klamm_kafka.wire.messages.create_acls import AclCreation
from klamm_kafka.wire.struct import Message, Struct

ADMIN: Final = "admin"
"""The super user."""
USERS: Final = (ADMIN, "alice", "bob", "carol", "dave", "eve", "frank", "gina")
"""alice reads and writes single resources, bob has prefixes and a denial, carol describes, dave has no rights of his own, eve
administers the cluster, frank changes configurations and deletes, gina's rights are of another host and denials."""
TOPICS: Final = ("orders", "payments", "app-one", "app-two", "public", *(f"del-{user}" for user in USERS))
GROUPS: Final = ("g-orders", "g-other")
UNKNOWN_ID: Final = bytes(range(16))
T, G, C, X, U, D = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID,
                    ResourceType.USER, ResourceType.DELEGATION_TOKEN)  # fmt: skip
_CLUSTER: Final = "kafka-cluster"
_RULES: Final[tuple[tuple[str, str, ResourceType, str, tuple[O, ...]], ...]] = (
    # who, allowed (+) or denied (-) and how (= literal, * prefixed), type, name, operations
    ("alice", "+=", T, "orders", (O.READ,)),
    ("alice", "+=", T, "payments", (O.WRITE,)),
    ("alice", "+=", G, "g-orders", (O.READ,)),
    ("alice", "+=", X, "t-orders", (O.WRITE,)),
    ("alice", "+=", U, "User:bob", (O.CREATE_TOKENS,)),
    ("bob", "+*", T, "app-", (O.ALL,)),
    ("bob", "-=", T, "app-two", (O.WRITE,)),
    ("bob", "+*", T, "del-bob", (O.ALL,)),
    ("bob", "+*", G, "g-", (O.ALL,)),
    ("bob", "+*", G, "s", (O.ALL,)),
    ("bob", "+=", X, "*", (O.ALL,)),
    ("bob", "+=", U, "User:alice", (O.DESCRIBE_TOKENS,)),
    ("alice", "+=", G, "g-share", (O.READ,)),
    ("alice", "+*", G, "share-alice", (O.READ,)),
    ("alice", "+*", G, "streams-alice", (O.READ,)),
    ("carol", "+*", G, "streams-carol", (O.READ,)),
    ("carol", "+=", T, "*", (O.DESCRIBE, O.DESCRIBE_CONFIGS)),
    ("carol", "+=", G, "*", (O.DESCRIBE,)),
    ("carol", "+=", C, _CLUSTER, (O.DESCRIBE,)),
    ("carol", "+=", X, "*", (O.DESCRIBE,)),
    ("eve", "+=", C, _CLUSTER, (O.ALTER, O.CLUSTER_ACTION, O.CREATE)),
    ("eve", "+*", G, "streams-eve", (O.READ,)),
    ("eve", "+*", T, "inner-eve", (O.DESCRIBE,)),
    ("frank", "+=", C, _CLUSTER, (O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS, O.IDEMPOTENT_WRITE)),
    ("frank", "+=", T, "orders", (O.DELETE, O.ALTER, O.ALTER_CONFIGS)),
    ("frank", "+=", T, "del-frank", (O.DELETE,)),
    ("frank", "+=", G, "g-orders", (O.DELETE, O.ALTER_CONFIGS)),
    ("frank", "+*", T, "new-", (O.CREATE, O.DESCRIBE)),
    ("frank", "+*", T, "other-frank", (O.DESCRIBE,)),
    ("frank", "+*", G, "share-frank", (O.READ, O.DELETE)),
    ("frank", "+*", G, "streams-frank", (O.READ,)),
    ("gina", "-=", T, "*", (O.WRITE,)),
    ("gina", "-*", T, "pub", (O.READ,)),
    ("gina", "+=", T, "public", (O.ALL,)),
    ("*", "+=", T, "public", (O.READ,)),
)
ACLS: Final = [
    AclCreation(
        resource_type=kind, resource_name=name, principal=f"User:{who}", host="*", operation=operation,
        resource_pattern_type=PatternType.LITERAL if how[1] == "=" else PatternType.PREFIXED,
        permission_type=P.ALLOW if how[0] == "+" else P.DENY,
    )
    for who, how, kind, name, operations in _RULES
    for operation in operations
] + [
    AclCreation(resource_type=kind, resource_name=name, principal="User:gina", host="10.1.1.1", operation=O.ALL,
                resource_pattern_type=PatternType.LITERAL, permission_type=P.ALLOW)
    for kind, name in ((T, "*"), (G, "*"), (C, _CLUSTER))
]  # fmt: skip

Case = tuple[str, Message, int]
"""A name among those of a user, the request, its version."""


def make(kind: type[Struct], values: Mapping[str, Any]) -> Any:
    """Returns a message, with structs for mappings."""
    types = {spec.name: spec.type for spec in kind.FIELDS}

    def value(name: str, given: Any) -> Any:
        inner = types[name]
        if isinstance(given, Mapping):
            return make(inner, given)
        return [make(inner, v) if isinstance(v, Mapping) else v for v in given] if isinstance(given, list) else given  # fmt: skip

    return kind(**{name: value(name, given) for name, given in values.items()})


def ask(key: K, version: int, what: str = "", /, **values: Any) -> Case:
    return f"{key.name}.v{version} {what}".strip(), make(message_types(key)[0], values), version


def requests_of(user: str, ids: Mapping[str, bytes]) -> Iterator[Case]:
    yield from _records(ids)
    yield from _metadata(user, ids)
    yield from _groups(ids)
    yield from _transactions(user)
    yield from _topics(user, ids)
    yield from _configs()
    yield from _cluster(user)
    yield from _users(user)


NAMES: Final = ("orders", "payments", "app-one", "app-two", "public", "missing")


def _records(ids: Mapping[str, bytes]) -> Iterator[Case]:
    one = batch(b"x")
    for acks in (1, -1):
        for name in NAMES:
            part = [{"index": 0, "records": one}]
            yield ask(K.PRODUCE, 9, f"{name} acks={acks}", acks=acks, timeout_ms=5000, topic_data=[{"name": name, "partition_data": part}])  # fmt: skip
    many = [{"name": n, "partition_data": [{"index": 0, "records": one}]} for n in NAMES]
    yield ask(K.PRODUCE, 9, "all", acks=1, timeout_ms=5000, topic_data=many)
    by_id = [{"topic_id": i, "partition_data": [{"index": 0, "records": one}]} for i in (ids["orders"], ids["public"], UNKNOWN_ID)]  # fmt: skip
    yield ask(K.PRODUCE, 13, "ids", acks=1, timeout_ms=5000, topic_data=by_id)
    yield ask(K.PRODUCE, 9, "transactional", acks=-1, timeout_ms=5000, transactional_id="t-none",
              topic_data=[{"name": "app-one", "partition_data": [{"index": 0, "records": batch(b"x", producer_id=4000, producer_epoch=0, base_sequence=0, is_transactional=True)}]}])  # fmt: skip
    for version in (11, 12):
        for name in NAMES:
            yield ask(K.FETCH, version, name, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                      topics=[{"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}])  # fmt: skip
    yield ask(K.FETCH, 12, "all", min_bytes=1, max_bytes=1 << 20, session_epoch=0, max_wait_ms=50,
              topics=[{"topic": n, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]} for n in NAMES])  # fmt: skip
    yield ask(K.FETCH, 13, "ids", min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
              topics=[{"topic_id": i, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
                      for i in (ids["orders"], ids["public"], UNKNOWN_ID)])  # fmt: skip
    yield ask(K.FETCH, 12, "as a follower", replica_id=1, min_bytes=0, max_bytes=1 << 20, session_epoch=-1,
              topics=[{"topic": "missing", "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}])  # fmt: skip
    listed = [{"name": n, "partitions": [{"partition_index": 0, "timestamp": -1}]} for n in NAMES]
    yield ask(K.LIST_OFFSETS, 5, replica_id=-1, topics=listed)
    epochs = [{"topic": n, "partitions": [{"partition": 0, "leader_epoch": 0}]} for n in NAMES]
    yield ask(K.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=epochs)
    records = [{"name": n, "partitions": [{"partition_index": 0, "offset": 0}]} for n in NAMES]
    yield ask(K.DELETE_RECORDS, 2, topics=records, timeout_ms=5000)
    yield ask(K.DESCRIBE_PRODUCERS, 0, topics=[{"name": n, "partition_indexes": [0]} for n in NAMES])


def _metadata(user: str, ids: Mapping[str, bytes]) -> Iterator[Case]:
    asked = [{"name": n} for n in NAMES]
    yield ask(K.METADATA, 9, "named", topics=asked, allow_auto_topic_creation=False,
              include_cluster_authorized_operations=True, include_topic_authorized_operations=True)  # fmt: skip
    yield ask(K.METADATA, 12, "all", topics=None, include_topic_authorized_operations=True)
    yield ask(K.METADATA, 1, "all", topics=None)
    yield ask(K.METADATA, 0, "all", topics=[])
    yield ask(K.METADATA, 12, "ids", topics=[{"topic_id": i, "name": None} for i in (ids["orders"], ids["payments"], UNKNOWN_ID)])  # fmt: skip
    for name in (f"new-{user}", f"auto-{user}", f"app-{user}"):
        yield ask(K.METADATA, 9, f"to be created {name.partition('-')[0]}", topics=[{"name": name}], allow_auto_topic_creation=True)  # fmt: skip
    yield ask(K.DESCRIBE_TOPIC_PARTITIONS, 0, "named", topics=[{"name": n} for n in NAMES], response_partition_limit=100)  # fmt: skip
    yield ask(K.DESCRIBE_TOPIC_PARTITIONS, 0, "first", topics=[], response_partition_limit=2)
    yield ask(K.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True)
    yield ask(K.FIND_COORDINATOR, 4, "groups", key_type=0, coordinator_keys=[*GROUPS, "other"])
    yield ask(K.FIND_COORDINATOR, 4, "transactions", key_type=1, coordinator_keys=["t-orders", "other"])
    yield ask(K.FIND_COORDINATOR, 3, "group", key_type=0, key="g-orders")
    yield ask(K.FIND_COORDINATOR, 3, "transaction", key_type=1, key="t-orders")


def _groups(ids: Mapping[str, bytes]) -> Iterator[Case]:
    committed = [{"name": n, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]} for n in NAMES]  # fmt: skip
    by_id = [{"topic_id": i, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}
             for i in (ids["orders"], ids["payments"], UNKNOWN_ID)]  # fmt: skip
    named = [{"name": n, "partition_indexes": [0]} for n in NAMES]
    for group in (*GROUPS, "other"):
        yield ask(K.OFFSET_COMMIT, 8, group, group_id=group, topics=committed)
        yield ask(K.OFFSET_COMMIT, 10, group, group_id=group, topics=by_id)
        yield ask(K.OFFSET_FETCH, 5, f"{group} named", group_id=group, topics=named)
        yield ask(K.OFFSET_FETCH, 5, f"{group} all", group_id=group, topics=None)
        yield ask(K.JOIN_GROUP, 5, group, group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}])  # fmt: skip
        yield ask(K.SYNC_GROUP, 3, group, group_id=group, generation_id=1, member_id="m")
        yield ask(K.HEARTBEAT, 3, group, group_id=group, generation_id=1, member_id="m")
        yield ask(K.LEAVE_GROUP, 3, group, group_id=group, members=[{"member_id": "m"}])
        yield ask(K.LEAVE_GROUP, 2, group, group_id=group, member_id="m")
        yield ask(K.OFFSET_DELETE, 0, group, group_id=f"{group}-not-there" if group == "other" else group,
                  topics=[{"name": n, "partitions": [{"partition_index": 7}]} for n in NAMES])  # fmt: skip
        yield ask(
            K.CONSUMER_GROUP_HEARTBEAT, 1, group, group_id=f"{group}-new", member_id="m", member_epoch=3
        )
    yield ask(K.CONSUMER_GROUP_HEARTBEAT, 1, "to join", group_id="g-next", member_id="m", member_epoch=0,
              rebalance_timeout_ms=1000, subscribed_topic_names=["orders"], topic_partitions=[])  # fmt: skip
    yield ask(
        K.OFFSET_FETCH, 8, "groups", groups=[{"group_id": g, "topics": named} for g in (*GROUPS, "other")]
    )
    yield ask(K.OFFSET_FETCH, 8, "groups, all topics", groups=[{"group_id": g, "topics": None} for g in (*GROUPS, "other")])  # fmt: skip
    yield ask(K.OFFSET_FETCH, 10, "ids", groups=[{"group_id": "g-orders", "topics": [{"topic_id": i, "partition_indexes": [0]} for i in (ids["orders"], ids["payments"], UNKNOWN_ID)]}])  # fmt: skip
    yield ask(K.DESCRIBE_GROUPS, 5, groups=[*GROUPS, "other"], include_authorized_operations=True)
    yield ask(K.DESCRIBE_GROUPS, 6, groups=[*GROUPS, "other"], include_authorized_operations=True)
    yield ask(
        K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[*GROUPS, "other", ""], include_authorized_operations=True
    )
    yield ask(K.LIST_GROUPS, 4)
    yield ask(K.DELETE_GROUPS, 2, groups_names=["g-not-there", "not-there"])


def _transactions(user: str) -> Iterator[Case]:
    yield ask(K.INIT_PRODUCER_ID, 4, "idempotent", transactional_id=None, transaction_timeout_ms=1000)
    for name in ("t-orders", "t-other"):
        yield ask(
            K.INIT_PRODUCER_ID, 4, f"{name} of another", transactional_id=name, transaction_timeout_ms=-5
        )
        yield ask(K.ADD_PARTITIONS_TO_TXN, 3, name, v3_and_below_transactional_id=name, v3_and_below_producer_id=7000,
                  v3_and_below_topics=[{"name": n, "partitions": [0]} for n in NAMES])  # fmt: skip
        yield ask(K.ADD_PARTITIONS_TO_TXN, 3, f"{name} one", v3_and_below_transactional_id=name, v3_and_below_producer_id=7000,
                  v3_and_below_topics=[{"name": "payments", "partitions": [0]}])  # fmt: skip
        yield ask(K.ADD_OFFSETS_TO_TXN, 3, name, transactional_id=name, producer_id=7000, group_id="g-orders")
        yield ask(
            K.ADD_OFFSETS_TO_TXN,
            3,
            f"{name} other",
            transactional_id=name,
            producer_id=7000,
            group_id="other",
        )
        yield ask(K.END_TXN, 3, name, transactional_id=name, producer_id=7000, committed=True)
        for group in ("g-orders", "other"):
            yield ask(K.TXN_OFFSET_COMMIT, 3, f"{name} {group}", transactional_id=name, group_id=group, producer_id=7000,
                      topics=[{"name": n, "partitions": [{"partition_index": 0, "committed_metadata": ""}]} for n in NAMES])  # fmt: skip
    yield ask(K.ADD_PARTITIONS_TO_TXN, 5, "of brokers", transactions=[
        {"transactional_id": "t-orders", "producer_id": 7000, "verify_only": True, "topics": [{"name": "orders", "partitions": [0]}]}])  # fmt: skip
    yield ask(K.WRITE_TXN_MARKERS, 1, markers=[{"producer_id": 7000, "topics": [{"name": "missing", "partition_indexes": [0]}]}])  # fmt: skip
    yield ask(K.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t-orders", "other"])
    yield ask(K.LIST_TRANSACTIONS, 1)


def _topics(user: str, ids: Mapping[str, bytes]) -> Iterator[Case]:
    names = (f"new-{user}-made", f"app-{user}-made", f"other-{user}-made", "orders")
    new = [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in names]
    for version in (4, 7):
        yield ask(K.CREATE_TOPICS, version, topics=new, timeout_ms=5000, validate_only=True)
    grown = [{"name": n, "count": 5, "assignments": None} for n in NAMES]
    yield ask(K.CREATE_PARTITIONS, 3, topics=grown, timeout_ms=5000, validate_only=True)
    yield ask(K.DELETE_TOPICS, 5, "missing", topic_names=["missing", "app-missing"], timeout_ms=5000)
    yield ask(K.DELETE_TOPICS, 6, "ids", topics=[{"name": None, "topic_id": UNKNOWN_ID}], timeout_ms=5000)
    if user != ADMIN:  # who would delete it
        yield ask(K.DELETE_TOPICS, 6, "known id", topics=[{"name": None, "topic_id": ids["payments"]}], timeout_ms=5000)  # fmt: skip
    yield ask(K.DELETE_TOPICS, 6, "its own", topics=[{"name": f"del-{user}"}], timeout_ms=5000)
    yield ask(K.ELECT_LEADERS, 2, topic_partitions=[{"topic": "orders", "partitions": [0]}])
    yield ask(K.ELECT_LEADERS, 0, topic_partitions=[{"topic": "orders", "partitions": [0]}])
    yield ask(K.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}])  # fmt: skip
    yield ask(K.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)


def _configs() -> Iterator[Case]:
    resources = [{"resource_type": kind, "resource_name": name} for kind, name in (
        (2, "orders"), (2, "public"), (2, "missing"), (4, "1"), (4, ""), (8, "1"), (16, "metrics"), (32, "g-orders"), (32, "other"))]  # fmt: skip
    for r in resources:
        kind, name = r["resource_type"], r["resource_name"]
        yield ask(K.DESCRIBE_CONFIGS, 4, f"{kind} {name}", resources=[r | {"configuration_keys": ["none"]}])
        if kind == 8:
            continue  # Kafka's loggers are others
        yield ask(K.INCREMENTAL_ALTER_CONFIGS, 1, f"{kind} {name}", resources=[r | {"configs": []}], validate_only=True)  # fmt: skip
        yield ask(K.ALTER_CONFIGS, 2, f"{kind} {name}", resources=[r | {"configs": []}], validate_only=True)
    some = [r | {"configuration_keys": ["none"]} for r in resources if r["resource_type"] != 8]
    yield ask(K.DESCRIBE_CONFIGS, 4, "all", resources=some)
    yield ask(K.LIST_CONFIG_RESOURCES, 0)


def _cluster(user: str) -> Iterator[Case]:
    everything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
                  "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
    yield ask(K.DESCRIBE_ACLS, 3, **everything)
    yield ask(K.CREATE_ACLS, 3, creations=[
        {"resource_type": 3, "resource_name": "same", "principal": "User:zoe", "host": "*", "operation": 3, "permission_type": 3}])  # fmt: skip
    yield ask(K.DELETE_ACLS, 3, filters=[everything | {"principal_filter": "User:nobody"}])
    yield ask(K.DESCRIBE_QUORUM, 0, topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}])  # fmt: skip
    yield ask(K.UPDATE_FEATURES, 1, feature_updates=[{"feature": "no.such", "max_version_level": 1}], validate_only=True)  # fmt: skip
    yield ask(K.UNREGISTER_BROKER, 0, broker_id=99)
    yield ask(K.DESCRIBE_LOG_DIRS, 4, topics=[{"topic": "orders", "partitions": [0]}])
    yield ask(K.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}])  # fmt: skip
    yield ask(K.DESCRIBE_CLIENT_QUOTAS, 1, components=[])
    yield ask(K.ALTER_CLIENT_QUOTAS, 1, validate_only=True, entries=[
        {"entity": [{"entity_type": "user", "entity_name": "zoe"}], "ops": [{"key": "producer_byte_rate", "remove": True}]}])  # fmt: skip


def _users(user: str) -> Iterator[Case]:
    yield ask(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "zoe"}])
    yield ask(K.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[{"name": "zoe", "mechanism": 1}])
    for owner in (user, "alice", "bob"):
        whose = {"owner_principal_type": "User", "owner_principal_name": owner}
        yield ask(K.CREATE_DELEGATION_TOKEN, 3, f"for {'itself' if owner == user else owner}", max_lifetime_ms=-1, **whose)  # fmt: skip
    yield ask(K.DESCRIBE_DELEGATION_TOKEN, 3, "all", owners=None)
    yield ask(K.DESCRIBE_DELEGATION_TOKEN, 3, "alice's", owners=[{"principal_type": "User", "principal_name": "alice"}])  # fmt: skip
    yield ask(K.RENEW_DELEGATION_TOKEN, 2, hmac=b"none", renew_period_ms=-1)
    yield ask(K.EXPIRE_DELEGATION_TOKEN, 2, hmac=b"none", expiry_time_period_ms=-1)
