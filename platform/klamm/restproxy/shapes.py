"""The JSON of requests and answers, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class ProducedRecord(TypedDict):
    """A record to be sent, in the embedded format of the content type."""

    key: NotRequired[Any]
    value: NotRequired[Any]
    partition: NotRequired[int | None]


class Produce(TypedDict):
    """Records to be sent; schemas are for Avro, JSON Schema and Protobuf."""

    records: list[ProducedRecord]
    key_schema: NotRequired[str | None]
    key_schema_id: NotRequired[int | None]
    value_schema: NotRequired[str | None]
    value_schema_id: NotRequired[int | None]


class Offset(TypedDict):
    """The place of a record, or why it has none."""

    partition: int | None
    offset: int | None
    error_code: int | None
    error: str | None


class Produced(TypedDict):
    """The answer to records, in their order."""

    key_schema_id: int | None
    value_schema_id: int | None
    offsets: list[Offset]


class ReplicaV2(TypedDict):
    """A replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class PartitionV2(TypedDict):
    """A partition."""

    partition: int
    leader: int
    replicas: list[ReplicaV2]


class TopicV2(TypedDict):
    """A topic with settings and partitions."""

    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionV2]


class OffsetsOfPartition(TypedDict):
    """The first offset of a partition, and the next one."""

    beginning_offset: int
    end_offset: int


Consumer = TypedDict(
    "Consumer",
    {
        "name": NotRequired[str | None],
        "format": NotRequired[Literal["binary", "json", "avro", "jsonschema", "protobuf"]],
        "auto.offset.reset": NotRequired[Literal["earliest", "latest", "none"]],
        "auto.commit.enable": NotRequired[str | bool],
        "fetch.min.bytes": NotRequired[str | int],
        "consumer.request.timeout.ms": NotRequired[str | int],
    },
)
Consumer.__doc__ = "The settings of a consumer instance."


class ConsumerMade(TypedDict):
    """A consumer instance, and the address of all further requests."""

    instance_id: str
    base_uri: str


class Subscription(TypedDict):
    """Topics, or a pattern of them."""

    topics: NotRequired[list[str]]
    topic_pattern: NotRequired[str | None]


class Topics(TypedDict):
    """Topics of a subscription."""

    topics: list[str]


class PartitionOf(TypedDict):
    """A partition of a topic."""

    topic: str
    partition: int


class Partitions(TypedDict):
    """Partitions."""

    partitions: list[PartitionOf]


class OffsetOf(TypedDict):
    """An offset in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: NotRequired[str | None]


class Offsets(TypedDict):
    """Offsets."""

    offsets: list[OffsetOf]


class RecordRead(TypedDict):
    """A record, in the instance's format."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int


class Name(TypedDict):
    """A name and a value."""

    name: str
    value: NotRequired[str | None]


class TopicGiven(TypedDict):
    """A topic to be created."""

    topic_name: str
    partitions_count: NotRequired[int | None]
    replication_factor: NotRequired[int | None]
    configs: NotRequired[list[Name]]


class Count(TypedDict):
    """A number of partitions."""

    partitions_count: int


class Value(TypedDict):
    """The value of a setting."""

    value: str


class Change(TypedDict):
    """A change of a setting."""

    name: str
    value: NotRequired[str | None]
    operation: NotRequired[Literal["SET", "DELETE"]]


class Changes(TypedDict):
    """Changes that are made together, or only checked."""

    data: list[Change]
    validate_only: NotRequired[bool | None]


class ChangesOfTopic(TypedDict):
    """Changes of a topic's settings."""

    topic_name: str
    configs: list[Change]


class ChangesOfTopics(TypedDict):
    """Changes of several topics, or only their check."""

    data: list[ChangesOfTopic]
    validate_only: NotRequired[bool | None]


class TopicFailure(TypedDict):
    """A topic whose changes were refused."""

    topic_name: str
    error_code: int
    message: str


class Failures(TypedDict):
    """The topics whose changes were refused."""

    failures: list[TopicFailure]


class AclGiven(TypedDict):
    """An ACL."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclsGiven(TypedDict):
    """ACLs that are made together."""

    data: list[AclGiven]


class Metadata(TypedDict):
    """The address of a resource or list."""

    self: str


class Resource(TypedDict):
    """A resource: `kind` says which, more fields follow."""

    kind: str
    metadata: Metadata
    cluster_id: str


class Resources(TypedDict):
    """A list of resources."""

    kind: str
    metadata: Metadata
    data: list[Resource]


class Data(TypedDict):
    """A key or a value: type and data, or a schema and data."""

    type: NotRequired[Literal["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]]
    data: Any
    schema: NotRequired[str]
    schema_id: NotRequired[int]
    schema_version: NotRequired[int]
    subject: NotRequired[str]


class RecordGiven(TypedDict):
    """A record to be sent. Header values are base64; the timestamp is ISO 8601."""

    partition_id: NotRequired[int | None]
    headers: NotRequired[list[Name]]
    key: NotRequired[Data]
    value: NotRequired[Data]
    timestamp: NotRequired[str]


class RecordAnswered(TypedDict):
    """The place of a record (error_code 200), or why it has none."""

    error_code: int
    message: NotRequired[str]


class Entry(RecordGiven):
    """A record of a batch."""

    id: str


class Batch(TypedDict):
    """Records, each with an id of its own in the batch."""

    entries: list[Entry]


class Success(TypedDict):
    """The place of a record of a batch."""

    id: str
    partition_id: int
    offset: int


class Failure(TypedDict):
    """The error of a record of a batch."""

    id: str
    error_code: int
    message: str


class BatchAnswered(TypedDict):
    """The answers for the records of a batch."""

    successes: list[Success]
    failures: list[Failure]


class Health(TypedDict):
    """The state of the proxy."""

    status: Literal["healthy"]
