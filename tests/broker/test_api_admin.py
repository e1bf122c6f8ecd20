"""Topics, configuration and cluster: what the admin APIs answer, version by version, on raw sockets."""

from __future__ import annotations

import pytest
from support.admin_cases import (
    ALTER_REFUSED,
    APPEND,
    BROKER,
    CREATE_REFUSED,
    DELETE,
    DESCRIBE_REFUSED,
    GROWTH,
    SET,
    SUBTRACT,
    TOPIC,
    assigned,
    creatable,
    replicas,
)
from support.broker import new_name, new_topic
from support.raw import RawClient, batch, produce_request

from klamm.testing import BrokerFailed, EmbeddedBroker
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from klamm_kafka.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture
def client(broker):
    with RawClient(broker.port) as connection:
        yield connection


def create(client, name=None, *, version=7, validate_only=False, **fields):
    topic = creatable(new_name() if name is None else name, **fields)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    return client.request(request, version).topics[0]


def metadata(client, *topics, version=12, create=False):
    asked = [MetadataRequestTopic(name=name) for name in topics]
    create = create or version < 4  # before version 4 there is no saying no
    return client.request(MetadataRequest(topics=asked, allow_auto_topic_creation=create), version)


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(broker, client, version):
    name = new_topic(broker, partitions=3)
    answer = metadata(client, name, version=version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", broker.port)]
    topic = answer.topics[0]
    assert (topic.error_code, topic.name, [p.partition_index for p in topic.partitions]) == (
        0,
        name,
        [0, 1, 2],
    )
    assert all(p.leader_id == 1 and p.isr_nodes == [1] and p.replica_nodes == [1] for p in topic.partitions)
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 1:
        assert answer.controller_id == 1
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert name in [t.name for t in client.request(everything, version).topics]
    if version >= 1:
        assert metadata(client, version=version).topics == []


def test_metadata_by_id(broker, client):
    name = new_topic(broker)
    topic_id = metadata(client, name).topics[0].topic_id
    assert topic_id != bytes(16)
    for asked, expected in ((topic_id, (0, name)), (bytes(range(16)), (E.UNKNOWN_TOPIC_ID, None))):
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=asked, name=None)])
        topic = client.request(request, 12).topics[0]
        assert (topic.error_code, topic.name) == expected


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_refused_where_the_answer_cannot_say_it(broker, client, version):
    """KIP-516: the request has the field from version 10, the answer may leave the name out from version 12."""
    name = new_topic(broker)
    topic_id = metadata(client, name).topics[0].topic_id
    for asked in (None, topic_id), (None, bytes(16)), (name, topic_id):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=asked[0], topic_id=asked[1])])
        topic = client.request(request, version).topics[0]
        assert (topic.error_code, topic.name) == (E.INVALID_REQUEST, asked[0] or "")


def test_auto_creation_needs_both_sides_to_agree(tmp_path, client):
    name = new_name()
    assert metadata(client, name).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    created = metadata(client, name, create=True).topics[0]
    assert (created.error_code, len(created.partitions)) == (0, 4)
    assert metadata(client, "bad name", create=True).topics[0].error_code == E.INVALID_TOPIC_EXCEPTION
    config = {"auto.create.topics.enable": "false"}
    with EmbeddedBroker(tmp_path / "data", config=config) as own, RawClient(own.port) as other:
        assert metadata(other, name, create=True).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topic_in_every_version(client, version):
    name = new_name()
    counts = {"num_partitions": 2, "replication_factor": 1}
    made = create(client, name, version=version, **counts)
    assert (made.name, made.error_code) == (name, 0)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        configs = {c.name: (c.value, c.config_source, c.read_only) for c in made.configs}
        assert configs["segment.bytes"] == ("1073741824", 5, False)
        assert set(configs) == {key.name for key in TOPIC_CONFIGS if not key.internal}
    if version >= 7:
        assert made.topic_id == metadata(client, name).topics[0].topic_id
    again = create(client, name, version=version, **counts)
    assert (again.error_code, again.error_message) == (
        E.TOPIC_ALREADY_EXISTS,
        f"Topic '{name}' already exists.",
    )
    assert len(metadata(client, name).topics[0].partitions) == 2


OURS = [({"num_partitions": 1_000_000}, E.INVALID_PARTITIONS, "at most")]


@pytest.mark.parametrize(("fields", "code", "text"), CREATE_REFUSED + OURS)
def test_create_topic_refuses(client, fields, code, text):
    fields = {"name": new_name()} | fields
    refused = create(client, **fields)
    assert refused.error_code == code
    assert text in refused.error_message
    assert fields["name"] not in [t.name for t in client.request(MetadataRequest(topics=None), 12).topics]


def test_create_topic_with_assignment_and_validate_only(client):
    name = new_name()
    assert create(client, name, validate_only=True).error_code == 0
    assert metadata(client, name).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert create(client, name, **assigned([1], [1], [1])).num_partitions == 3


def test_colliding_names_and_duplicates_in_a_request(client):
    name = new_name("a.b")
    create(client, name)
    collision = create(client, name.replace(".", "_"))
    assert (collision.error_code, "collides" in collision.error_message) == (E.INVALID_TOPIC_EXCEPTION, True)
    topic = CreatableTopic(name=new_name(), num_partitions=1, replication_factor=1)
    answer = client.request(CreateTopicsRequest(topics=[topic, topic]), 7).topics
    assert [(t.name, t.error_code) for t in answer] == [(topic.name, E.INVALID_REQUEST)]


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topic_in_every_version(broker, client, version):
    name = new_topic(broker)

    def delete(*names):
        states = [DeleteTopicState(name=each) for each in names]
        asked = {"topics": states} if version >= 6 else {"topic_names": list(names)}
        answer = client.request(DeleteTopicsRequest(timeout_ms=1000, **asked), version).responses
        return [r.error_code for r in answer]

    assert delete(name, name) == [E.INVALID_REQUEST], "who says it twice may mean another one"
    assert delete(name, new_name()) == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert metadata(client, name).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert create(client, name).error_code == 0, "the name is free again"


def test_delete_topic_by_id(broker, client):
    name = new_topic(broker)
    topic_id = metadata(client, name).topics[0].topic_id

    def delete(*states):
        request = DeleteTopicsRequest(topics=list(states), timeout_ms=1000)
        return [(r.name, r.error_code) for r in client.request(request, 6).responses]

    by_id, by_name = DeleteTopicState(topic_id=topic_id), DeleteTopicState(name=name)
    both = DeleteTopicState(name=name, topic_id=topic_id)
    assert delete(by_id, by_id) == [(None, E.INVALID_REQUEST)]
    assert delete(by_name, by_name) == [(name, E.INVALID_REQUEST)]
    assert delete(by_name, by_id) == [(name, E.INVALID_REQUEST)]
    assert delete(both, DeleteTopicState()) == [(name, E.INVALID_REQUEST), (None, E.INVALID_REQUEST)]
    assert delete(by_id) == [(name, 0)]
    assert delete(by_id) == [(None, E.UNKNOWN_TOPIC_ID)]


def test_recreated_topic_is_empty_and_has_another_id(broker, client):
    name = new_topic(broker)
    client.request(produce_request(name, batch(b"old")), 9)
    before = metadata(client, name).topics[0].topic_id
    client.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
    new_topic(broker, name=name)
    assert metadata(client, name).topics[0].topic_id != before
    done = client.request(produce_request(name, batch(b"new")), 9).responses[0].partition_responses[0]
    assert done.base_offset == 0
    stale = client.request(produce_request(before, batch(b"x")), 13).responses[0].partition_responses[0]
    assert stale.error_code == E.UNKNOWN_TOPIC_ID


@pytest.mark.usefixtures("processes")
def test_topics_and_their_configuration_survive_restart_and_kill(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as own:
        kept = new_topic(own, partitions=2, config={"retention.ms": "12345"})
        gone = new_topic(own)
        with RawClient(own.port) as client:
            before = metadata(client, kept).topics[0].topic_id
            client.request(DeleteTopicsRequest(topic_names=[gone], timeout_ms=1000), 5)
            alter(client, kept, ("segment.bytes", SET, "2000000"))
        for stop in (own.kill, own.stop):
            stop()
            own.start()
            with RawClient(own.port) as client:
                found, missing = metadata(client, kept, gone).topics
                assert (found.topic_id, len(found.partitions)) == (before, 2)
                assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
                values = described(client, TOPIC, kept)
                assert (values["retention.ms"].value, values["segment.bytes"].value) == ("12345", "2000000")


def describe(client, type_, name, *, keys=None, version=4, **more):
    resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=keys)
    return client.request(DescribeConfigsRequest(resources=[resource], **more), version).results[0]


def described(client, type_, name, **more):
    result = describe(client, type_, name, **more)
    assert result.error_code == 0, result.error_message
    return {c.name: c for c in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_topic_configs_in_every_version(broker, client, version):
    name = new_topic(broker, config={"retention.ms": "60000"})
    values = described(client, TOPIC, name, version=version, include_synonyms=True)
    own = values["retention.ms"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("60000", 1, False, False)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [("retention.ms", "60000", 1)]
    policy = values["cleanup.policy"].synonyms
    assert [(s.name, s.value, s.source) for s in policy] == [("log.cleanup.policy", "delete", 5)]
    assert values["cleanup.policy"].config_source == 5
    if version >= 3:
        assert (own.config_type, values["cleanup.policy"].config_type) == (5, 7)
        documented = described(client, TOPIC, name, version=version, include_documentation=True)
        assert all(c.documentation for c in documented.values())
    assert set(described(client, TOPIC, name, version=version, keys=["segment.ms", "nothing"])) == {
        "segment.ms"
    }


@pytest.mark.usefixtures("processes")
def test_broker_properties_show_as_topic_defaults(tmp_path):
    config = {"log.retention.hours": "2", "log.segment.bytes": "3000000"}
    with EmbeddedBroker(tmp_path / "data", config=config) as own, RawClient(own.port) as client:
        values = described(client, TOPIC, new_topic(own), include_synonyms=True)
        hours = values["retention.ms"]
        assert (hours.value, hours.config_source) == ("7200000", 4)
        assert [(s.name, s.source) for s in hours.synonyms] == [
            ("log.retention.hours", 4),
            ("log.retention.hours", 5),
        ]
        assert values["segment.bytes"].value == "3000000"
        mine = described(client, BROKER, "1")
        assert (mine["log.retention.hours"].value, mine["log.retention.hours"].config_source) == ("2", 4)
        assert mine["num.partitions"].read_only


def test_describe_configs_errors(client):
    assert [describe(client, kind, name).error_code for kind, name, _ in DESCRIBE_REFUSED] == [
        code for *_, code in DESCRIBE_REFUSED
    ]
    assert set(described(client, BROKER, "")) == {"min.insync.replicas"}


def alter(client, topic, *changes, validate_only=False, version=1, type_=TOPIC):
    rows = [AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes]
    resource = AlterConfigsResource(resource_type=type_, resource_name=topic, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = client.request(request, version).responses[0]
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", [0, 1])
def test_alter_configs(broker, client, version):
    name = new_topic(broker, config={"retention.ms": "1000"})

    def value(key):
        return described(client, TOPIC, name)[key].value

    assert alter(client, name, ("max.message.bytes", SET, "100"), version=version) == (0, None)
    assert (value("max.message.bytes"), value("retention.ms")) == ("100", "1000")
    refused = client.request(produce_request(name, batch(bytes(200))), 9).responses[0].partition_responses[0]
    assert refused.error_code == E.MESSAGE_TOO_LARGE, "in force at once"
    assert alter(client, name, ("retention.ms", DELETE, None), ("cleanup.policy", APPEND, "compact")) == (
        0,
        None,
    )
    assert (value("retention.ms"), value("cleanup.policy")) == ("604800000", "delete,compact")
    assert alter(client, name, ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert value("cleanup.policy") == "compact"
    assert alter(client, name, ("segment.ms", SET, "5"), validate_only=True) == (0, None)
    assert value("segment.ms") == "604800000"


@pytest.mark.parametrize(("changes", "code", "text"), ALTER_REFUSED)
def test_alter_configs_refuses_as_a_whole(broker, client, changes, code, text):
    name = new_topic(broker)
    got, message = alter(client, name, ("segment.ms", SET, "5000"), *changes)
    assert got == code
    assert text in message
    assert described(client, TOPIC, name)["segment.ms"].value == "604800000"


def test_alter_configs_of_other_resources(client):
    assert alter(client, "1", ("num.partitions", SET, "1"), type_=BROKER)[0] == E.INVALID_REQUEST
    assert alter(client, new_name(), ("segment.ms", SET, "5"))[0] == E.UNKNOWN_TOPIC_OR_PARTITION


def grow(client, topic, count, *, assignments=None, validate_only=False, version=3):
    asked = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=[asked], timeout_ms=1000, validate_only=validate_only)
    return client.request(request, version).results[0].error_code


def test_create_partitions(broker, client):
    name = new_topic(broker, partitions=2)
    assert grow(client, name, 3, validate_only=True) == 0
    for count, assignments, code in GROWTH:
        assert grow(client, name, count, assignments=assignments, validate_only=True) == code
        if code:
            assert grow(client, name, count, assignments=assignments) == code
    assert grow(client, new_name(), 3) == E.UNKNOWN_TOPIC_OR_PARTITION
    two = replicas([1], [1])
    assert grow(client, name, 3, assignments=two) == E.INVALID_REPLICA_ASSIGNMENT
    assert grow(client, name, 4, assignments=two, version=0) == 0
    assert len(metadata(client, name).topics[0].partitions) == 4
    done = (
        client.request(produce_request(name, batch(b"a"), partition=3), 9).responses[0].partition_responses[0]
    )
    assert done.error_code == 0


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(broker, client, version):
    answer = client.request(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.controller_id, answer.brokers[0].port) == (0, 1, broker.port)
    if version >= 1:
        assert (
            client.request(DescribeClusterRequest(endpoint_type=2), version).error_code
            == E.MISMATCHED_ENDPOINT_TYPE
        )


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs(broker, client, version):
    name = new_topic(broker, partitions=2)
    client.request(produce_request(name, batch(bytes(5000))), 9)
    asked = [DescribableLogDirTopic(topic=name, partitions=[0, 1, 7])]
    result = client.request(DescribeLogDirsRequest(topics=asked), version).results[0]
    sizes = {p.partition_index: p.partition_size for p in result.topics[0].partitions}
    assert sizes.keys() == {0, 1}
    assert (sizes[0] > 5000, sizes[1]) == (True, 0)
    assert result.log_dir == str(broker.data_dir)
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0


def test_describe_topic_partitions_pages(broker, client):
    names = sorted(new_topic(broker, partitions=3) for _ in range(2))
    cursor, seen = None, []
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=n) for n in names], response_partition_limit=2, cursor=cursor
        )
        answer = client.request(request, 0)
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        if answer.next_cursor is None:
            break
        after = answer.next_cursor
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=after.topic_name, partition_index=after.partition_index
        )
    assert seen == [(name, index) for name in names for index in range(3)]
    missing = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=new_name())])
    assert client.request(missing, 0).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_taken_port_and_a_taken_directory_are_named(broker, tmp_path):
    with pytest.raises(BrokerFailed, match=f"port {broker.port} is in use"):
        EmbeddedBroker(tmp_path / "data", port=broker.port).start()
    with pytest.raises(BrokerFailed, match=f"in use by process {broker.pid}"):
        EmbeddedBroker(broker.data_dir).start()
