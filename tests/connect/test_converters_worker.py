"""Converters with a schema registry in a real worker, and a registry that is away while records wait."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.connect_worker import WorkerProcess, feed, lines_out, wait_for, worker_properties
from support.runtime_broker import read_all
from support.schema_registry import SchemaRegistry

AVRO = "io.confluent.connect.avro.AvroConverter"
JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
SCHEMAS = {
    AVRO: '"type":"record"',
    JSON_SCHEMA: '"type":"object"',
    PROTOBUF: "message ConnectDefault1 {\n  string line = 1;\n}\n",
}
NUMBERS = "org.apache.kafka.connect.converters.LongConverter"
KAFKA = "org.apache.kafka.connect.transforms."


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    properties = worker_properties(bootstrap, f"c{uuid.uuid4().hex[:8]}")
    worker = WorkerProcess(properties, tmp_path_factory.mktemp("worker"))
    try:
        yield worker.wait_ready()
    finally:
        worker.end()


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(user="ann:secret") as registry:
        yield registry


def converters(name: str, registry: SchemaRegistry) -> dict[str, str]:
    return {
        "value__converter": name,
        "value__converter__schema__registry__url": registry.url,
        "value__converter__basic__auth__credentials__source": "USER_INFO",
        "value__converter__basic__auth__user__info": "ann:secret",
        "key__converter": NUMBERS,
    }


def start(worker: WorkerProcess, kind: str, **config: str) -> None:
    answer = worker.create(f"{config['name']}-{kind}", **{k: v for k, v in config.items() if k != "name"})
    assert answer.status == 201, answer.body
    assert "ann:secret" not in answer.body.decode()


@pytest.mark.parametrize("converter", SCHEMAS)
def test_lines_pass_as_structs(
    worker: WorkerProcess, registry: SchemaRegistry, bootstrap: str, tmp_path: Path, converter: str
) -> None:
    name = f"c{uuid.uuid4().hex[:8]}"
    feed(tmp_path, 0, 20)
    registry.failures = 3  # it is away at first, and errors.retry.timeout waits for it
    start(
        worker,
        "src",
        name=name,
        connector__class="FileStreamSource",
        file=str(tmp_path / "in.txt"),
        topic=name,
        errors__retry__timeout="60000",
        transforms="hoist",
        transforms__hoist__type=f"{KAFKA}HoistField$Value",
        transforms__hoist__field="line",
        **converters(converter, registry),
    )
    wait_for(lambda: len(read_all(bootstrap, name)) == 20, lambda: worker.log)
    first = read_all(bootstrap, name)[0].value()
    assert first[:5] == b"\0\0\0\0\1"
    assert list(registry.subjects) == [f"{name}-value"]
    assert SCHEMAS[converter] in registry.schemas[1]["schema"]
    start(
        worker,
        "snk",
        name=name,
        connector__class="FileStreamSink",
        file=str(tmp_path / "out.txt"),
        topics=name,
        transforms="line",
        transforms__line__type=f"{KAFKA}ExtractField$Value",
        transforms__line__field="line",
        **converters(converter, registry),
    )
    wait_for(lambda: len(lines_out(tmp_path)) == 20, lambda: f"{lines_out(tmp_path)}\n{worker.log}")
    assert lines_out(tmp_path) == [f"line {i}" for i in range(20)]
    assert "ann:secret" not in worker.log


def test_a_registry_must_be_named(worker: WorkerProcess, tmp_path: Path) -> None:
    answer = worker.create(
        "no-registry",
        connector__class="FileStreamSource",
        file=str(tmp_path / "in.txt"),
        topic="t",
        value__converter=AVRO,
    )
    assert answer.status == 400
    assert 'Missing required configuration "value.converter.schema.registry.url"' in answer.message or (
        'Missing required configuration "schema.registry.url"' in answer.message
    )
