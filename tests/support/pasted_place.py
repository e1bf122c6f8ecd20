"""The servers around a pasted configuration: a broker and a worker of ours, databases, Elasticsearch, a schema registry.

`Place.paste` exchanges addresses, users, passwords and paths, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from support.connect_worker import wait_for
from support.elasticsearch import call
from support.klamm import Server, up_words
from support.schema_registry import SchemaRegistry

Config = Mapping[str, str]

TABLES = (
    "CREATE TABLE customers (id INT PRIMARY KEY, first_name VARCHAR(40) NOT NULL, email VARCHAR(60))",
    "INSERT INTO customers VALUES (1001, 'Sally', 's@example.org'), (1002, 'George', 'g@example.org')",
    "CREATE TABLE orders (id INT PRIMARY KEY, quantity INT NOT NULL, price DECIMAL(8,2))",
    "INSERT INTO orders VALUES (1, 1, 9.90), (2, 2, 19.80), (3, 5, 1.25)",
)
ROWS = [(1001, "Sally", "s@example.org"), (1002, "George", "g@example.org")]


@dataclass(slots=True)
class Up:
    """A broker and a worker of ours."""

    rest: str
    bootstrap: str

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Returns status and decoded answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.rest + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read() or b"null")


@contextlib.contextmanager
def up(directory: Path) -> Iterator[Up]:
    """Yields a broker and a worker with data of their own."""
    with Server(*up_words(directory / "data"), cwd=directory) as server:
        yield Up(server.ready["rest"], server.ready["broker"])


@dataclass(slots=True, kw_only=True)
class Place:
    """The servers around a pasted configuration. The database `inventory` of MariaDB is its own."""

    up: Up
    directory: Path
    mariadb: Any
    postgresql: Any
    postgresql_database: str
    elasticsearch: Any
    registry: SchemaRegistry
    consumers: list[Any] = field(default_factory=list)

    def paste(self, config: Config) -> dict[str, Any]:
        """Creates the connector, with addresses, users, passwords and paths exchanged. Returns the answer."""
        given = {key: self._exchanged(key, value) for key, value in config.items()}
        if "connection.user" in given:
            given["connection.user"] = "klamm" if ":postgresql:" in given["connection.url"] else "root"
        name = given.pop("name", "pasted")
        status, answer = self.up.request("POST", "/connectors", {"name": name, "config": given})
        assert status == 201, answer
        return answer  # type: ignore[no-any-return]

    def _exchanged(self, key: str, value: str) -> str:
        mysql = {
            "database.hostname": "127.0.0.1", "database.port": str(self.mariadb.port), "database.user": "root",
            "database.password": "",
        }  # fmt: skip
        if key in mysql:
            return mysql[key]
        if value == "kafka:9092":
            return self.up.bootstrap
        if key.endswith("schema.registry.url"):
            return self.registry.url
        if value in {"http://elastic:9200", "http://localhost:9200"}:
            return str(self.elasticsearch.url)
        if key == "connection.password":
            return ""
        if key == "file":
            return str(self.directory / value)
        return self._url(value)

    def _url(self, value: str) -> str:
        query = "?currentSchema=inventorysink&user=klamm" if "currentSchema=inventorysink" in value else ""
        if value.startswith("jdbc:postgresql:"):
            return f"jdbc:postgresql://127.0.0.1:{self.postgresql.port}/{self.postgresql_database}{query}"
        if value.startswith("jdbc:mysql:"):
            return f"jdbc:mysql://127.0.0.1:{self.mariadb.port}/inventory"
        return value.replace("jdbc:sqlite:test.db", f"jdbc:sqlite:{self.directory}/test.db")

    def status(self, name: str) -> Any:
        return self.up.request("GET", f"/connectors/{name}/status")[1]

    def states(self, name: str) -> list[str]:
        found = self.status(name)
        return (
            [found["connector"]["state"], *(t["state"] for t in found["tasks"])]
            if "connector" in found
            else []
        )

    def past_snapshot(self, name: str) -> None:
        """Waits until a source of MySQL follows the binlog: its lag is known from there on."""
        wait_for(
            lambda: self.status(name)["tasks"][0].get("progress", {}).get("lag") is not None,
            lambda: str(self.status(name)),
        )

    def sql(self, statement: str) -> Any:
        return self.mariadb.sql(statement, database="inventory")

    def produce(self, topic: str, *records: tuple[str | None, Any]) -> None:
        producer = Producer({"bootstrap.servers": self.up.bootstrap})
        for key, value in records:
            producer.produce(
                topic, value if isinstance(value, str) or value is None else json.dumps(value), key
            )
        assert producer.flush(60) == 0

    def messages(self, topic: str, count: int) -> list[Any]:
        """Returns the first records of a topic, once there are so many."""
        consumer = Consumer({
            "bootstrap.servers": self.up.bootstrap, "group.id": "tests", "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        })  # fmt: skip
        with closing(consumer):
            wait_for(
                lambda: topic in consumer.list_topics(timeout=20).topics,
                lambda: f"no topic {topic}: {self.topics()}",
            )
            consumer.subscribe([topic])
            found: list[Any] = []

            def enough() -> bool:
                found.extend(m for m in consumer.consume(100, timeout=0.5) if m.error() is None)
                return len(found) >= count

            wait_for(enough, lambda: f"{topic}: {[m.value() for m in found]}")
            assert len(found) == count, [m.value() for m in found]
            return found

    def all(self, topic: str) -> list[bytes]:
        """Returns the values that a topic of one partition has now."""
        consumer = Consumer({"bootstrap.servers": self.up.bootstrap, "group.id": "tests"})
        with closing(consumer):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found: list[Any] = []
            while len(found) < end:
                found += consumer.consume(end - len(found), timeout=1)
            return [m.value() for m in found]

    def topics(self) -> set[str]:
        consumer = Consumer({"bootstrap.servers": self.up.bootstrap, "group.id": "tests"})
        with closing(consumer):
            return {t for t in consumer.list_topics(timeout=20).topics if not t.startswith("_")}

    def values(self, topic: str, count: int) -> list[Any]:
        """Returns payloads of records that the JSON converter wrote with their schemas."""
        return [json.loads(m.value())["payload"] if m.value() else None for m in self.messages(topic, count)]

    def until(self, what: Callable[[], Any], wanted: Any) -> None:
        """Waits for an answer."""
        seen: list[Any] = [None]

        def same() -> bool:
            with suppress(Exception):  # a table or an index that is not there yet
                seen[0] = what()
            return bool(seen[0] == wanted)

        wait_for(same, lambda: f"{seen[0]} instead of {wanted}")


@contextlib.contextmanager
def surroundings(
    directory: Path, mariadb: Any, postgresql: Any, postgresql_database: str, elasticsearch: Any
) -> Iterator[Place]:
    """Yields the servers, with the tables of the tutorial; removes what a case has left."""
    mariadb.sql("DROP DATABASE IF EXISTS inventory")
    mariadb.sql("CREATE DATABASE inventory")
    for statement in TABLES:
        mariadb.sql(statement, database="inventory")
    try:
        with up(directory) as worker, SchemaRegistry() as registry:
            yield Place(
                up=worker, directory=directory, mariadb=mariadb, postgresql=postgresql,
                postgresql_database=postgresql_database, elasticsearch=elasticsearch, registry=registry,
            )  # fmt: skip
    finally:
        mariadb.sql("DROP DATABASE inventory")
        for index in ("customers", "orders", "test-elasticsearch-sink"):
            call(elasticsearch, "DELETE", index)
