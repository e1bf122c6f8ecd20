"""Questions for transforms, predicates and converters as JSON, answered by ours as TransformOracle.java answers by Kafka's.

An envelope is what the JsonConverter writes with schemas; None stands for neither a schema nor a value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.kafka_oracle import KafkaOracle, write_log4j

from klamm_plugins.connector import Plugin
from klamm_plugins.converter import Converter, SchemaAndValue
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.discovery import PluginManager
from klamm_plugins.records import Header, Headers, SinkRecord, SourceRecord
from klamm_plugins.transform import Predicate, Record, Transformation

JAVA_SOURCE = Path(__file__).with_name("TransformOracle.java")
DEBEZIUM = Path.home() / ".cache/klamm-debezium"
TRANSFORMS = "org.apache.kafka.connect.transforms."

PLUGINS = PluginManager.load()
_VALUES = JsonConverter()
_VALUES.configure({"schemas.enable": "true", "replace.null.with.default": "false"}, is_key=False)

Question = dict[str, Any]
Answer = dict[str, Any]


def ask_kafka(oracle: KafkaOracle, questions: list[Question], jars: Sequence[str] = ()) -> list[Answer]:
    """Returns the answers of Kafka, and of the plugins in `jars`, all by one JVM."""
    text = "".join(json.dumps(q) + "\n" for q in questions)
    with tempfile.TemporaryDirectory() as directory:
        command = oracle.command(str(JAVA_SOURCE), log4j=write_log4j(Path(directory)))
        command[command.index("-cp") + 1] = ":".join([f"{oracle.home}/libs/*", *jars])
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(questions)
    return answers


def debezium_jars() -> list[str]:
    """Returns the jars of Debezium's transforms, with Groovy; empty when not all are here."""
    parts = [sorted(DEBEZIUM.glob(f"{part}/*.jar")) for part in ("mysql", "scripting")]
    return [str(jar) for part in parts for jar in part] if all(parts) else []


def ask_ours(question: Question) -> Answer:
    """Returns our answers, in the same words; errors are `{"error": class, "message": text}`."""
    try:
        match question:
            case {"transform": name}:
                return _transform(_made(PLUGINS.find_transformation(name), question), question["record"])
            case {"predicate": name}:
                predicate: Predicate = _made(PLUGINS.find_predicate(name), question)
                return {"test": predicate.test_many([record_of(question["record"])])[0]}
            case {"validate": name}:
                values = PLUGINS.find_plugin(name).cls.config().validate(question.get("config", {}))
                return {"errors": {v.name: v.errors for v in values if v.errors}}
            case {"converter": name}:
                return _convert(PLUGINS.find_converter(name)(), question)
    except Exception as e:
        return {"error": type(e).__name__, "message": str(e)}
    raise ValueError(question)


def _made(cls: type[Plugin], question: Question) -> Any:
    plugin: Any = cls()
    plugin.configure(cls.config().parse(question.get("config", {})))
    return plugin


def _transform(transform: Transformation, record: dict[str, Any]) -> Answer:
    before = record_of(record)
    (out,) = transform.apply_many([before])
    assert written(before) == written(record_of(record)), "the record that came in is changed"
    transform.close()
    return {"dropped": True} if out is None else {"record": written(out)}


def _convert(converter: Converter, question: Question) -> Answer:
    converter.configure(question.get("config", {}), is_key=False)
    if "bytes" in question:
        raw = None if question["bytes"] is None else base64.b64decode(question["bytes"])
        return {"data": envelope(*converter.to_connect_data("t", raw))}
    data = data_of(question["data"])
    made = converter.from_connect_data("t", data.schema, data.value)
    return {"bytes": None if made is None else base64.b64encode(made).decode()}


def record_of(record: dict[str, Any]) -> Record:
    """Returns the record of a question: a sink's, if it has an offset."""
    key, value = data_of(record.get("key")), data_of(record.get("value"))
    headers = Headers(Header(name, *reversed(data_of(data))) for name, data in record.get("headers", ()))
    topic, partition, timestamp = record["topic"], record.get("partition"), record.get("timestamp")
    if "offset" in record:
        return SinkRecord(
            topic,
            partition,
            key.schema,
            key.value,
            value.schema,
            value.value,
            record["offset"],
            timestamp,
            "CreateTime",
            headers,
        )
    return SourceRecord(
        {}, {}, topic, partition, key.schema, key.value, value.schema, value.value, timestamp, headers
    )


def written(record: Record) -> dict[str, Any]:
    out = {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": envelope(record.key_schema, record.key),
        "value": envelope(record.value_schema, record.value),
        "headers": [[h.name, envelope(h.schema, h.value)] for h in record.headers],
    }
    if isinstance(record, SinkRecord):
        original = [record.original_topic, record.original_kafka_partition, record.original_kafka_offset]
        out |= {"offset": record.offset, "original": original}
    return out


def data_of(data: Any) -> SchemaAndValue:
    return _VALUES.to_connect_data("t", None if data is None else json.dumps(data).encode())


def envelope(schema: Any, value: Any) -> Any:
    made = _VALUES.from_connect_data("t", schema, value)
    return None if made is None else json.loads(made)


def comparable(answer: Answer) -> Answer:
    """Returns what both must agree on: of an error, that there is one; of a map without text keys, not its order."""
    return {"error": True} if "error" in answer else _ordered(answer)


def shortened(question: Question, answer: Answer) -> Answer:
    """Returns an answer without the record, where it is the question's."""
    same = answer.get("record") == written(record_of(question["record"]))
    return {"unchanged": True} if same else answer


def _ordered(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: _ordered(v) for k, v in data.items()}
    if isinstance(data, list):
        made = [_ordered(v) for v in data]
        pairs = all(isinstance(v, list) and len(v) == 2 for v in made)
        return sorted(made, key=json.dumps) if pairs else made
    return data


def digest(question: Question) -> str:
    """Returns what a recorded answer is known by."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]
