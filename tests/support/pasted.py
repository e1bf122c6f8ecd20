"""Effects of pasted configurations: a function for each.

Each function gets the place and the configuration as it is documented. One called `before_EFFECT` prepares the servers.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from support.connect_worker import wait_for
from support.elasticsearch import call
from support.pasted_place import ROWS, Config, Place

TUTORIAL = {
    "name": "source", "connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.hostname": "mysql",
    "database.port": "3306", "database.user": "debezium", "database.password": "dbz", "topic.prefix": "dbserver1",
    "database.include.list": "inventory",
}  # fmt: skip
ROUTED = {
    "transforms": "route", "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "([^.]+)\\.([^.]+)\\.([^.]+)", "transforms.route.replacement": "$3",
}  # fmt: skip
CUSTOMERS = "dbserver1.inventory.customers"
ORDERS = "dbserver1.inventory.orders"


def rows_of(envelopes: list[Any]) -> list[Any]:
    return [(e["op"], *e["after"].values()) for e in envelopes]


def captured(place: Place, config: Config) -> None:
    """Rows become envelopes, first those that are there, then each change."""
    topic = f"{config['topic.prefix']}.inventory.customers"
    assert rows_of(place.values(topic, 2)) == [("r", *row) for row in ROWS]
    place.sql("INSERT INTO customers VALUES (1003, 'Ada', NULL)")
    place.sql("UPDATE customers SET email = 'a@example.org' WHERE id = 1003")
    place.sql("DELETE FROM customers WHERE id = 1001")
    found = place.values(topic, 6)
    assert [e and e["op"] for e in found] == ["r", "r", "c", "u", "d", None]
    assert (found[3]["before"]["email"], found[3]["after"]["email"]) == (None, "a@example.org")
    assert {e["source"]["connector"] for e in found if e} <= {"mysql", "mariadb"}


def captured_with_ddl(place: Place, config: Config) -> None:
    captured(place, config)
    place.sql("ALTER TABLE customers ADD middle_name VARCHAR(20)")
    wait_for(lambda: b"middle_name" in b"".join(place.all(config["topic.prefix"])))


def avro(place: Place, config: Config) -> None:
    found = place.messages(CUSTOMERS, 2)
    assert {m.value()[0] for m in found} == {0}, "Confluent's wire format"
    assert {f"{CUSTOMERS}-key", f"{CUSTOMERS}-value"} <= place.registry.subjects.keys()


def routed_to_customers(place: Place, config: Config) -> None:
    assert rows_of(place.values("customers", 2)) == [("r", *row) for row in ROWS]
    assert {"customers", "orders"} <= place.topics()


def before_documents_of_customers(place: Place) -> None:
    place.paste(TUTORIAL | ROUTED)


def documents_of_customers(place: Place, config: Config) -> None:
    def found() -> Any:
        call(place.elasticsearch, "POST", "customers/_refresh")
        _, answer = call(place.elasticsearch, "GET", "customers/_search")
        return {h["_id"]: h["_source"]["first_name"] for h in answer["hits"]["hits"]}

    place.until(found, {"1001": "Sally", "1002": "George"})
    place.sql("DELETE FROM customers WHERE id = 1001")
    place.sql("UPDATE customers SET first_name = 'Georg' WHERE id = 1002")
    place.until(found, {"1002": "Georg"})


def decimals_as_text(place: Place, config: Config) -> None:
    assert [e["after"]["price"] for e in place.values(ORDERS, 3)] == ["9.90", "19.80", "1.25"]
    assert CUSTOMERS not in place.topics()


def flat_without_schema(place: Place, config: Config) -> None:
    found = [
        json.loads(m.value()) for m in place.messages(f"{config['topic.prefix']}.inventory.customers", 2)
    ]
    assert [tuple(row.values()) for row in found] == ROWS


def flat(place: Place, config: Config) -> None:
    assert [tuple(row.values()) for row in place.values(CUSTOMERS, 2)] == ROWS
    place.sql("DELETE FROM customers WHERE id = 1001")
    assert place.values(CUSTOMERS, 3)[2] is None


def rewritten(place: Place, config: Config) -> None:
    place.values(CUSTOMERS, 2)
    place.sql("DELETE FROM customers WHERE id = 1001")
    first, _, gone = place.values(CUSTOMERS, 3)
    assert (first["__deleted"], first["__table"], first.get("__lsn")) == ("false", "customers", None)
    assert (gone["id"], gone["__deleted"]) == (1001, "true")


def headers(place: Place, config: Config) -> None:
    first, _ = place.messages(CUSTOMERS, 2)
    assert dict(first.headers())["__db"] == b"inventory"
    row = json.loads(first.value())["payload"]
    assert (row["__op"], row["__table"]) == ("r", "customers")
    assert row["__source_ts_ms"] > 0


def updates_apart(place: Place, config: Config) -> None:
    place.values(CUSTOMERS, 2)
    place.sql("UPDATE customers SET first_name = 'Georg' WHERE id = 1002")
    (update,) = place.values("updates", 1)
    assert update["after"]["first_name"] == "Georg"
    place.sql("INSERT INTO customers VALUES (1003, 'Ada', NULL)")
    assert [e["op"] for e in place.values(CUSTOMERS, 3)] == ["r", "r", "c"]


def one_update(place: Place, config: Config) -> None:
    place.past_snapshot(config["name"])
    for number in (1, 2, 3):
        place.sql(f"UPDATE orders SET quantity = 7 WHERE id = {number}")
    (update,) = place.values(ORDERS, 1)
    assert (update["op"], update["after"]["id"]) == ("u", 2)
    assert CUSTOMERS not in place.topics()


def before_shards_together(place: Place) -> None:
    for number in (1, 2):
        place.sql(f"CREATE TABLE customers_shard{number} (id INT PRIMARY KEY)")
        place.sql(f"INSERT INTO customers_shard{number} VALUES (1)")


def _keys(place: Place) -> list[Any]:
    found = place.messages("dbserver1.inventory.customers_all_shards", 2)
    return [json.loads(m.key())["payload"] for m in found]


def shards_together(place: Place, config: Config) -> None:
    whole = [f"dbserver1.inventory.customers_shard{n}" for n in (1, 2)]
    assert sorted(k["__dbz__physicalTableIdentifier"] for k in _keys(place)) == whole


before_shards_by_number = before_shards_together


def shards_by_number(place: Place, config: Config) -> None:
    assert sorted(k["shard_id"] for k in _keys(place)) == ["1", "2"]


def before_outbox_events(place: Place) -> None:
    place.sql("DROP TABLE customers")
    place.sql("DROP TABLE orders")
    columns = "id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(20), aggregateid VARCHAR(20), type VARCHAR(20), payload JSON"
    place.sql(f"CREATE TABLE outboxevent ({columns})")


def outbox_events(place: Place, config: Config) -> None:
    place.past_snapshot(config["name"])
    place.sql("INSERT INTO outboxevent VALUES ('406c07f3', 'Order', '1', 'OrderCreated', '{\"id\": 1}')")
    (event,) = place.messages("outbox.event.Order", 1)
    assert json.loads(json.loads(event.value())["payload"]) == {"id": 1}
    assert json.loads(event.key())["payload"] == "1"
    assert b"406c07f3" in dict(event.headers())["id"]


def before_signal_by_table(place: Place) -> None:
    place.sql(
        "CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
    )


def signal_by_table(place: Place, config: Config) -> None:
    place.values(CUSTOMERS, 2)
    data = json.dumps({"data-collections": ["inventory.customers"], "type": "incremental"})
    place.sql(
        f"INSERT INTO debezium_signal (id, type, data) VALUES ('ad-hoc-1', 'execute-snapshot', '{data}')"
    )
    found = place.values(CUSTOMERS, 4)
    assert [e["source"]["snapshot"] for e in found[2:]] == ["incremental"] * 2


before_signal_by_topic = before_signal_by_table


def signal_by_topic(place: Place, config: Config) -> None:
    place.values(CUSTOMERS, 2)
    data = {"data-collections": ["inventory.customers"], "type": "INCREMENTAL"}
    place.produce("dbserver1-signal", ("dbserver1", {"type": "execute-snapshot", "data": data}))
    found = place.values(CUSTOMERS, 4)
    assert [e["source"]["snapshot"] for e in found[2:]] == ["incremental"] * 2


def some_orders(place: Place, config: Config) -> None:
    found = [e["after"]["id"] for e in place.values(ORDERS, 2)]
    assert found == [3, 2], found


def before_rows_in_postgresql(place: Place) -> None:
    database = place.postgresql_database
    place.postgresql.sql("CREATE SCHEMA inventorysink", database)
    place.postgresql.sql(
        "CREATE TABLE inventorysink.customers (id INT PRIMARY KEY, first_name TEXT, email TEXT)", database
    )
    place.paste(TUTORIAL)


def rows_in_postgresql(place: Place, config: Config) -> None:
    def found() -> Any:
        return place.postgresql.sql(
            "SELECT * FROM inventorysink.customers ORDER BY id", place.postgresql_database
        )

    place.until(found, ROWS)
    place.sql("DELETE FROM customers WHERE id = 1001")
    place.until(found, ROWS[1:])


ORDER = {
    "schema": {
        "type": "struct", "optional": False,
        "fields": [
            {"field": "id", "type": "int32", "optional": False},
            {"field": "product", "type": "string", "optional": True},
            {"field": "quantity", "type": "int32", "optional": True},
        ],
    },
    "payload": {"id": 999, "product": "foo", "quantity": 100},
}  # fmt: skip
"""The record of the JDBC sink's quick start, which has it in Avro."""


def before_rows_in_sqlite(place: Place) -> None:
    place.produce("orders", (None, ORDER))


before_rows_in_mariadb = before_rows_by_coordinates = before_rows_in_sqlite


def rows_in_sqlite(place: Place, config: Config) -> None:
    def found() -> Any:
        with closing(sqlite3.connect(place.directory / "test.db", timeout=30)) as connection:
            return connection.execute("SELECT id, product, quantity FROM orders").fetchall()

    place.until(found, [(999, "foo", 100)])


def rows_in_mariadb(place: Place, config: Config) -> None:
    place.until(lambda: place.sql("SELECT id, product, quantity FROM kafka_orders"), [(999, "foo", 100)])
    changed = ORDER | {"payload": {"id": 999, "product": "bar", "quantity": 1}}
    place.produce("orders", (None, changed))
    place.until(lambda: place.sql("SELECT id, product, quantity FROM kafka_orders"), [(999, "bar", 1)])


def rows_by_coordinates(place: Place, config: Config) -> None:
    wanted = [("orders", 0, 0, "foo", 100)]
    columns = "__connect_topic, __connect_partition, __connect_offset, product, quantity"
    place.until(
        lambda: place.postgresql.sql(f"SELECT {columns} FROM orders", place.postgresql_database), wanted
    )


def _documents(place: Place, index: str) -> Any:
    call(place.elasticsearch, "POST", f"{index}/_refresh")
    _, answer = call(place.elasticsearch, "GET", f"{index}/_search")
    return {h["_id"]: h["_source"] for h in answer["hits"]["hits"]}


def before_documents_by_offset(place: Place) -> None:
    place.produce("test-elasticsearch-sink", (None, ORDER))


def documents_by_offset(place: Place, config: Config) -> None:
    wanted = {"test-elasticsearch-sink+0+0": ORDER["payload"]}
    place.until(lambda: _documents(place, "test-elasticsearch-sink"), wanted)


def before_documents_by_key(place: Place) -> None:
    place.produce("orders", ("a", {"n": 1, "m": 1}), ("b", {"n": 2}), ("a", {"n": 3}), ("b", None))


def documents_by_key(place: Place, config: Config) -> None:
    place.until(lambda: _documents(place, "orders"), {"a": {"n": 3, "m": 1}})


def before_lines_in(place: Place) -> None:
    (place.directory / "test.txt").write_text("foo\nbar\n")


before_lines_as_maps = before_lines_in


def lines_in(place: Place, config: Config) -> None:
    assert place.values("connect-test", 2) == ["foo", "bar"]


def lines_as_maps(place: Place, config: Config) -> None:
    wanted = [{"line": line, "data_source": "test-file-source"} for line in ("foo", "bar")]
    assert place.values("connect-test", 2) == wanted


def before_lines_out(place: Place) -> None:
    text = {"schema": {"type": "string", "optional": False}}
    place.produce("connect-test", *((None, text | {"payload": line}) for line in ("foo", "bar")))


def lines_out(place: Place, config: Config) -> None:
    place.until((place.directory / "test.sink.txt").read_text, "foo\nbar\n")
