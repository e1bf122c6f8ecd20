"""The limit on a schema's size, in a process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from support.broker import new_name, new_topic
from support.registry_process import RegistryProcess

from klamm.testing import EmbeddedBroker


def test_a_schema_that_is_too_large_is_refused_with_the_limit(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Confluent's client shows the sentence; a schema below the limit passes."""
    limit = {"size.limit.filter.max.request.body.size": "20000", "kafkastore.topic": new_name("schemas")}
    with (
        RegistryProcess(broker.bootstrap, tmp_path, **limit) as registry,
        SchemaRegistryClient({"url": registry.url}) as client,
    ):

        def enum(count: int) -> Schema:
            return Schema(
                json.dumps({"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(count)]}), "AVRO"
            )

        assert client.register_schema("small", enum(1000)) > 0
        with pytest.raises(SchemaRegistryError) as told:
            client.register_schema("large", enum(5000))
        assert (told.value.http_status_code, told.value.error_code) == (413, 41301)
        limit_told = "larger than 20000 bytes, the registry's size.limit.filter.max.request.body.size"
        assert limit_told in told.value.error_message
        assert client.get_subjects() == ["small"]


def test_a_record_that_the_topic_refuses_stops_no_other_write(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker, config={"cleanup.policy": "compact", "max.message.bytes": "20000"})
    own = {"kafkastore.topic": topic, "schema.registry.group.id": topic}
    with RegistryProcess(broker.bootstrap, tmp_path, **own) as registry:

        def register(number: int) -> tuple[int, Any]:
            size = 25_000 if number % 10 == 0 else 3_000
            schema = {"type": "enum", "name": f"E{number}", "symbols": ["A" * size]}
            return registry.ask("POST", f"/subjects/s{number}/versions", {"schema": json.dumps(schema)})

        with ThreadPoolExecutor(30) as pool:
            answers = list(pool.map(register, range(60)))
        told = [answer.get("error_code") if status != 200 else 0 for status, answer in answers]
        assert told == [42209 if number % 10 == 0 else 0 for number in range(60)]
        assert "too large" in answers[0][1]["message"]
