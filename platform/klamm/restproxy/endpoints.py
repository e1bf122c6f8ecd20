"""The table of the proxy's endpoints. Reading `ENDPOINTS` is reading the API."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from klamm.restproxy import (
    formats,
    shapes,
    v3,
    v3_acls,
    v3_batches,
    v3_configs,
    v3_groups,
    v3_more,
    v3_records,
)
from klamm.restproxy import v2_consumers as c
from klamm.restproxy import v2_produce as p
from klamm.restproxy import v2_topics as t
from klamm.web import openapi
from klamm.web.endpoint import NUMBER, Access, Endpoint, Handler, Query
from klamm.web.http import json_response

PRODUCE_S: Final = 150.0
"""A request to produce ends by librdkafka's delivery.timeout.ms, 120 s."""
PARTITION: Final = f"{{partition:{NUMBER}}}"
BROKER: Final = f"{{broker:{NUMBER}}}"
TOPIC_V2: Final = "/topics/{topic}"
PARTITIONS_V2: Final = TOPIC_V2 + "/partitions"
INSTANCE: Final = "/consumers/{group}/instances/{instance}"
CLUSTER: Final = "/v3/clusters/{cluster}"
TOPIC: Final = CLUSTER + "/topics/{topic}"
GROUP: Final = CLUSTER + "/consumer-groups/{group}"
VIEW, OPERATE, ADMINISTER, ANY = Access.VIEW, Access.OPERATE, Access.ADMINISTER, Access.ANY

_TEXT: Final = {"type": "string", "minLength": 1}
_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
TITLE: Final = openapi.Title(
    title="Klamm REST proxy",
    about="The REST API of Confluent's REST proxy, v2 and v3. Every answer from 400 on is an Error, whose error_code says more than the "
    "status. Roles are asked for where `rest.auth.file` is set.",
    parameters={
        "topic": ("The topic's name.", _TEXT),
        "partition": ("The partition's number.", _NUMBER),
        "group": ("The consumer group.", _TEXT),
        "instance": ("The id of a consumer instance.", _TEXT),
        "cluster": ("The cluster's id, as GET /v3/clusters tells it.", _TEXT),
        "broker": ("The broker's id.", _NUMBER),
        "name": ("The name of a setting.", _TEXT),
        "consumer": ("The id of a member of a group.", _TEXT),
    },
)
READ: Final = (
    Query(name="timeout", about="The longest time to wait for records, ms."),
    Query(name="max_bytes", about="The most bytes of keys and values."),
)
ASYNC: Final = (Query(name="async", about="true: do not wait for the commit.", values=("true", "false")),)
OFFSET_TYPE: Final = (
    Query(
        name="offset_type", about="The offsets to show.", values=("earliest", "latest", "earliest_and_latest")
    ),
)
ACLS: Final = tuple(Query(name=name, about="Only ACLs with this.") for name in v3_acls.FIELDS)


async def get_root(_request: web.Request) -> web.Response:
    """Answer an empty object, as Confluent's proxy does."""
    return json_response({})


async def get_health(_request: web.Request) -> web.Response:
    """Show that the proxy works."""
    return json_response({"status": "healthy"})


def _v2(
    method: str, path: str, handler: Handler, access: Access, answer: Any, *errors: int,
    body: Any = None, query: tuple[Query, ...] = (), status: int = 200, records: bool = False, timeout_s: float = 90.0,
) -> Endpoint:  # fmt: skip
    produces = (formats.V2, (*formats.OF_ANSWERS, *formats.OF_RECORDS))
    consumes = p.TYPES if body is shapes.Produce else formats.OF_ANSWERS
    if records:
        produces = (formats.Format.BINARY.media_type, (*formats.OF_RECORDS, *formats.OF_ANSWERS))
    return Endpoint(
        method=method, path=path, handler=handler, access=access, answers={status: answer},
        errors=(*errors, 429) if timeout_s == PRODUCE_S else errors,
        produces=produces[0], also=produces[1], body=body, query=query, consumes=consumes, timeout_s=timeout_s,
    )  # fmt: skip


def _v3(
    method: str, path: str, handler: Handler, access: Access, answer: Any, *errors: int,
    body: Any = None, query: tuple[Query, ...] = (), status: int = 200, timeout_s: float = 90.0,
) -> Endpoint:  # fmt: skip
    known = {400, 429, *errors, *((422,) if body is not None else ())}
    return Endpoint(
        method=method, path=path, handler=handler, access=access, answers={status: answer}, errors=sorted(known),
        body=body, query=query, timeout_s=timeout_s,
    )  # fmt: skip


V2_ENDPOINTS: Final = (
    _v2("GET", "/topics", t.list_names, ANY, list[str]),
    _v2("GET", TOPIC_V2, t.get_topic_v2, VIEW, shapes.TopicV2, 400),
    _v2("POST", TOPIC_V2, p.produce, OPERATE, shapes.Produced, 408, 409, 422, body=shapes.Produce, timeout_s=PRODUCE_S),
    _v2("GET", PARTITIONS_V2, t.list_partitions_v2, VIEW, list[shapes.PartitionV2], 400),
    _v2("GET", f"{PARTITIONS_V2}/{PARTITION}", t.get_partition_v2, VIEW, shapes.PartitionV2, 400),
    _v2(
        "POST", f"{PARTITIONS_V2}/{PARTITION}", p.produce_to_partition, OPERATE, shapes.Produced, 408, 409, 422,
        body=shapes.Produce, timeout_s=PRODUCE_S,
    ),
    _v2("GET", f"{PARTITIONS_V2}/{PARTITION}/offsets", t.get_offsets, VIEW, shapes.OffsetsOfPartition, 400),
    _v2("POST", "/consumers/{group}", c.create_consumer, ANY, shapes.ConsumerMade, 409, 422, 429, body=shapes.Consumer),
    _v2("DELETE", INSTANCE, c.delete_consumer, ANY, None, status=204),
    _v2("POST", INSTANCE + "/subscription", c.subscribe, ANY, None, 409, 422, body=shapes.Subscription, status=204),
    _v2("GET", INSTANCE + "/subscription", c.get_subscription, ANY, shapes.Topics),
    _v2("DELETE", INSTANCE + "/subscription", c.unsubscribe, ANY, None, status=204),
    _v2("POST", INSTANCE + "/assignments", c.assign, ANY, None, 409, 422, body=shapes.Partitions, status=204),
    _v2("GET", INSTANCE + "/assignments", c.get_assignments, ANY, shapes.Partitions),
    _v2("POST", INSTANCE + "/positions", c.seek, ANY, None, 409, 422, body=shapes.Offsets, status=204),
    _v2("POST", INSTANCE + "/positions/beginning", c.seek_to_beginning, ANY, None, 409, 422, body=shapes.Partitions, status=204),
    _v2("POST", INSTANCE + "/positions/end", c.seek_to_end, ANY, None, 409, 422, body=shapes.Partitions, status=204),
    _v2("POST", INSTANCE + "/offsets", c.commit_offsets, ANY, list[shapes.OffsetOf], 409, 422, body=shapes.Offsets, query=ASYNC),
    _v2("GET", INSTANCE + "/offsets", c.get_committed, ANY, shapes.Offsets, 400, 409, 415, 422),
    _v2("GET", INSTANCE + "/records", c.read_records, ANY, list[shapes.RecordRead], 408, 409, 422, query=READ, records=True, timeout_s=0),
)  # fmt: skip

ONE, MANY = shapes.Resource, shapes.Resources
CONFIGS: Final = TOPIC + "/configs"
OF_ALL: Final = CLUSTER + "/broker-configs"
OF_BROKER: Final = f"{CLUSTER}/brokers/{BROKER}/configs"
V3_ENDPOINTS: Final = (
    _v3("GET", "/v3/clusters", v3.list_clusters, ANY, MANY),
    _v3("GET", CLUSTER, v3.get_cluster, ANY, ONE),
    _v3("GET", CLUSTER + "/brokers", v3.list_brokers, VIEW, MANY),
    _v3("GET", f"{CLUSTER}/brokers/{BROKER}", v3.get_broker, VIEW, ONE),
    _v3("GET", OF_ALL, v3_configs.list_cluster_configs, VIEW, MANY),
    _v3("POST", OF_ALL + ":alter", v3_configs.alter_cluster_configs, ADMINISTER, None, body=shapes.Changes, status=204),
    _v3("GET", OF_ALL + "/{name}", v3_configs.get_cluster_config, VIEW, ONE),
    _v3("PUT", OF_ALL + "/{name}", v3_configs.put_cluster_config, ADMINISTER, None, body=shapes.Value, status=204),
    _v3("DELETE", OF_ALL + "/{name}", v3_configs.delete_cluster_config, ADMINISTER, None, status=204),
    _v3("GET", CLUSTER + "/brokers/-/configs", v3_configs.list_all_brokers_configs, VIEW, MANY),
    _v3("GET", f"{CLUSTER}/brokers/{BROKER}/partition-replicas", v3_more.list_replicas_of_broker, VIEW, MANY),
    _v3("GET", OF_BROKER, v3_configs.list_broker_configs, VIEW, MANY),
    _v3("POST", OF_BROKER + ":alter", v3_configs.alter_broker_configs, ADMINISTER, None, body=shapes.Changes, status=204),
    _v3("GET", OF_BROKER + "/{name}", v3_configs.get_broker_config, VIEW, ONE),
    _v3("PUT", OF_BROKER + "/{name}", v3_configs.put_broker_config, ADMINISTER, None, body=shapes.Value, status=204),
    _v3("DELETE", OF_BROKER + "/{name}", v3_configs.delete_broker_config, ADMINISTER, None, status=204),
    _v3("GET", CLUSTER + "/topics", v3.list_topics_v3, ANY, MANY),
    _v3("POST", CLUSTER + "/topics", v3.create_topic_v3, Access.NAMED, ONE, body=shapes.TopicGiven, status=201),
    _v3("GET", CLUSTER + "/topics/-/configs", v3_configs.list_all_topics_configs, ANY, MANY),
    _v3(
        "POST", CLUSTER + "/topics/-/configs:alter", v3_configs.alter_topics_configs, Access.NAMED, shapes.Failures,
        body=shapes.ChangesOfTopics, status=207,
    ),
    _v3("GET", CLUSTER + "/topics/-/partitions/-/reassignment", v3_more.list_reassignments, VIEW, MANY),
    _v3("GET", TOPIC, v3.get_topic, VIEW, ONE),
    _v3("PATCH", TOPIC, v3.update_topic, ADMINISTER, ONE, body=shapes.Count),
    _v3("DELETE", TOPIC, v3.delete_topic, ADMINISTER, None, status=204),
    _v3("POST", TOPIC + "/records", v3_records.produce_v3, OPERATE, shapes.RecordAnswered, body=shapes.RecordGiven, timeout_s=0),
    _v3(
        "POST", TOPIC + "/records:batch", v3_batches.produce_batch, OPERATE, shapes.BatchAnswered, 408, 409, body=shapes.Batch, status=207,
        timeout_s=PRODUCE_S,
    ),
    _v3("GET", TOPIC + "/partitions", v3.list_partitions, VIEW, MANY),
    _v3("GET", f"{TOPIC}/partitions/{PARTITION}", v3.get_partition, VIEW, ONE),
    _v3("GET", f"{TOPIC}/partitions/{PARTITION}/replicas", v3.list_replicas, VIEW, MANY),
    _v3("GET", f"{TOPIC}/partitions/{PARTITION}/replicas/{BROKER}", v3.get_replica, VIEW, ONE),
    _v3("GET", TOPIC + "/partitions/-/reassignment", v3_more.list_reassignments_of_topic, VIEW, MANY),
    _v3("GET", f"{TOPIC}/partitions/{PARTITION}/reassignment", v3_more.get_reassignment, VIEW, ONE),
    _v3("GET", f"{TOPIC}/partitions/{PARTITION}/offset", v3_more.get_partition_offsets, VIEW, ONE, query=OFFSET_TYPE),
    _v3("GET", CONFIGS, v3_configs.list_configs, VIEW, MANY),
    _v3("POST", CONFIGS + ":alter", v3_configs.alter_configs, ADMINISTER, None, body=shapes.Changes, status=204),
    _v3("GET", CONFIGS + "/{name}", v3_configs.get_config, VIEW, ONE),
    _v3("PUT", CONFIGS + "/{name}", v3_configs.put_config, ADMINISTER, None, body=shapes.Value, status=204),
    _v3("DELETE", CONFIGS + "/{name}", v3_configs.delete_config, ADMINISTER, None, status=204),
    _v3("GET", CLUSTER + "/consumer-groups", v3_groups.list_consumer_groups, VIEW, MANY),
    _v3("GET", GROUP, v3_groups.get_consumer_group, Access.VIEW, ONE),
    _v3("GET", GROUP + "/consumers", v3_groups.list_consumers, VIEW, MANY),
    _v3("GET", GROUP + "/consumers/{consumer}", v3_groups.get_consumer, VIEW, ONE),
    _v3("GET", GROUP + "/consumers/{consumer}/assignments", v3_groups.list_assignments, VIEW, MANY),
    _v3(
        "GET", f"{GROUP}/consumers/{{consumer}}/assignments/{{topic}}/partitions/{PARTITION}", v3_groups.get_assignment, VIEW, ONE,
    ),
    _v3("GET", GROUP + "/lags", v3_groups.list_lags, VIEW, MANY),
    _v3("GET", f"{GROUP}/lags/{{topic}}/partitions/{PARTITION}", v3_groups.get_lag, VIEW, ONE),
    _v3("GET", GROUP + "/lag-summary", v3_groups.get_lag_summary, VIEW, ONE),
    _v3("GET", CLUSTER + "/acls", v3_acls.list_acls, ADMINISTER, MANY, query=ACLS),
    _v3("POST", CLUSTER + "/acls", v3_acls.create_acl, ADMINISTER, None, body=shapes.AclGiven, status=201),
    _v3("POST", CLUSTER + "/acls:batch", v3_batches.create_acl_batch, ADMINISTER, None, body=shapes.AclsGiven, status=201),
    _v3("DELETE", CLUSTER + "/acls", v3_acls.delete_acls_v3, ADMINISTER, dict[str, Any], query=ACLS),
)  # fmt: skip

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(method="GET", path="/", handler=get_root, access=ANY, answers={200: dict[str, Any]}),
    *V2_ENDPOINTS,
    *V3_ENDPOINTS,
    Endpoint(method="GET", path="/health", handler=get_health, access=Access.OPEN, answers={200: shapes.Health}),
    Endpoint(
        method="GET", path="/openapi.json", handler=openapi.get_openapi, access=ANY, answers={200: dict[str, Any]}
    ),
)  # fmt: skip
