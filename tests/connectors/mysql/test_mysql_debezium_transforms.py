"""JSON for Debezium with its transforms, run by a worker: MariaDB's changes as topics have them at the end."""

import json
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from support.broker import broker, new_name  # noqa: F401
from support.connect_worker import WorkerProcess, wait_for, worker_properties

pytestmark = pytest.mark.usefixtures("mariadb_server")

OUTBOX = """CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
    type VARCHAR(255) NOT NULL, payload JSON, at TIMESTAMP(6) NULL)"""
TRANSFORMS = {
    "transforms": "shards,visible,moved,outbox,row",
    "transforms.shards.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.shards.topic.regex": "(.*)items_shard(.*)",
    "transforms.shards.topic.replacement": "$1items",
    "transforms.shards.key.field.name": "shard",
    "transforms.shards.key.field.regex": "(.*)items_shard(.*)",
    "transforms.shards.key.field.replacement": "$2",
    "transforms.visible.type": "io.debezium.transforms.Filter",
    "transforms.visible.language": "jsr223.groovy",
    "transforms.visible.condition": "value.op == 'd' || value.after.name != 'hidden'",
    "transforms.visible.topic.regex": ".*[.]items",
    "transforms.moved.type": "io.debezium.transforms.ContentBasedRouter",
    "transforms.moved.language": "jsr223.graal.js",
    "transforms.moved.topic.expression": "value.source.table === 'items_shard2' && value.op == 'u' ? topic + '.updates' : null",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.predicate": "outbox",
    "transforms.outbox.table.expand.json.payload": "true",
    "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
    "transforms.outbox.table.field.event.type": "type",
    "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.row.delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "transforms.row.add.fields": "op,table",
    "transforms.row.add.headers": "op",
    "predicates": "outbox",
    "predicates.outbox.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.outbox.pattern": ".*[.]outbox",
}


@pytest.fixture
def worker(broker, tmp_path):  # noqa: F811
    started = WorkerProcess(worker_properties(broker.bootstrap, new_name("group")), tmp_path).wait_ready()
    yield started
    started.end()


def test_tables_reach_topics_as_the_transforms_say(worker, broker, mariadb, mariadb_database):  # noqa: F811
    def sql(statement):
        return mariadb.sql(statement, database=mariadb_database)

    for shard in (1, 2):
        sql(f"CREATE TABLE items_shard{shard} (id INT PRIMARY KEY, name VARCHAR(20))")
    sql(OUTBOX)
    sql("INSERT INTO items_shard1 VALUES (1, 'ann')")
    prefix = new_name("p")
    config = TRANSFORMS | {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(mariadb.port),
        "database.user": "root",
        "database.password": "",
        "database.server.id": str(30_000 + mariadb.port % 10_000),
        "database.include.list": mariadb_database,
        "topic.prefix": prefix,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    refused = worker.request(
        "PUT", f"/connectors/{prefix}/config", config | {"transforms.row.operation.header": "true"}
    )
    assert (refused.status, "write add.headers=op" in refused.message) == (400, True)
    assert "is not a setting" not in worker.log, "it is an error, and no unknown key beside that"
    answer = worker.request("PUT", f"/connectors/{prefix}/config", config)
    assert answer.status == 201, answer.content
    assert "warnings" not in answer.json, "also the column of the type has Debezium's value"
    worker.wait_state(prefix, "RUNNING", "RUNNING")
    items = f"{prefix}.{mariadb_database}.items"
    topics = [items, f"{items}.updates", "outbox.event.Order"]
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": prefix})) as consumer:
        # Its first record is that of the snapshot. What comes later is in the binlog.
        wait_for(lambda: items in consumer.list_topics(timeout=20).topics, lambda: worker.log[-3000:])
    for statement in (
        "INSERT INTO items_shard2 VALUES (1, 'bob'), (2, 'hidden')",
        "UPDATE items_shard2 SET name = 'eve' WHERE id = 1",
        "DELETE FROM items_shard1",
        """INSERT INTO outbox VALUES ('e1', 'Order', '7', 'OrderCreated', '{"id": 7, "lines": [{"n": 1}, {"n": 2, "x": true}]}', NOW(6))""",
        "DELETE FROM outbox",
    ):
        sql(statement)
    found = consumed(broker, worker, topics, 6)
    one, two = {"id": 1, "shard": "1"}, {"id": 1, "shard": "2"}
    assert found[items] == [
        (
            one,
            {"id": 1, "name": "ann", "__deleted": "false", "__op": "r", "__table": "items_shard1"},
            {"__op": "r"},
        ),
        (
            two,
            {"id": 1, "name": "bob", "__deleted": "false", "__op": "c", "__table": "items_shard2"},
            {"__op": "c"},
        ),
        (
            one,
            {"id": 1, "name": "ann", "__deleted": "true", "__op": "d", "__table": "items_shard1"},
            {"__op": "d"},
        ),
        (one, None, {"__op": "d"}),
    ]
    assert found[f"{items}.updates"] == [
        (
            two,
            {"id": 1, "name": "eve", "__deleted": "false", "__op": "u", "__table": "items_shard2"},
            {"__op": "u"},
        )
    ]
    event = {"id": 7, "lines": [{"n": 1, "x": None}, {"n": 2, "x": True}]}
    assert found["outbox.event.Order"] == [("7", event, {"id": "e1", "eventType": "OrderCreated"})]


def consumed(broker, worker, topics, count):  # noqa: F811
    """Returns key, value and headers of the records of these topics, when there are `count`."""
    found = {topic: [] for topic in topics}
    group = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": new_name("group"),
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(group)) as consumer:
        wait_for(
            lambda: set(topics) <= set(consumer.list_topics(timeout=20).topics), lambda: worker.log[-3000:]
        )
        consumer.subscribe(topics)

        def all_there():
            for message in consumer.consume(20, timeout=0.5):
                assert message.error() is None, message.error()
                value = None if message.value() is None else json.loads(message.value())
                headers = {name: text.decode() for name, text in message.headers() or ()}
                found[message.topic()].append((json.loads(message.key()), value, headers))
            return sum(map(len, found.values())) >= count

        wait_for(all_there, lambda: f"{found} {worker.log[-3000:]}")
    return found
