"""A dry run: it takes sample records through a connector's converters, transforms and predicates and shows
each step.

It reads and writes no topic and makes no task. It runs in a one-shot child with the connector's plugins,
since all of these are plugin code. A sink's sample is what a topic holds (converter, then transforms); a
source's is what its task would give (transforms, then converters).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm.connect.child.plugins import Converters, connector_class, converters
from klamm.connect.child.transform_chain import TransformChain, make_chain
from klamm.records.formats import json_value
from klamm_plugins.connector import SourceConnector
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import DataError
from klamm_plugins.records import Header, Headers, SinkRecord, SourceRecord

Record = SinkRecord | SourceRecord
Json = dict[str, Any]

KEY: Final = "KEY_CONVERTER"
VALUE: Final = "VALUE_CONVERTER"
HEADER: Final = "HEADER_CONVERTER"


def dry_run(plugins: PluginManager, params: Mapping[str, Any]) -> list[Json]:
    """Returns a result for each of `records`; `config` and `worker` are as for a task. Raises ConfigError."""
    config = params["config"]
    source = issubclass(connector_class(plugins, config), SourceConnector)
    run = _DryRun(
        converters(plugins, config, params["worker"]), make_chain(plugins, config), _first_topic(config)
    )
    try:
        return [run.source(sample) if source else run.sink(sample) for sample in params["records"]]
    finally:
        run.chain.close()


class _Failed(Exception):
    """A step has raised, and its error is already among the steps."""


class _DryRun:
    def __init__(self, of_task: Converters, chain: TransformChain, topic: str) -> None:
        self.chain = chain
        self._converters = of_task
        self._topic = topic
        self._shown = JsonConverter()
        self._shown.configure(
            self._shown.config().parse({"schemas.enable": "true", "converter.type": "value"}), is_key=False
        )

    def sink(self, sample: Json) -> Json:
        steps: list[Json] = []
        try:
            record = self._step(steps, "converter", VALUE, lambda: self._from_topic(sample, steps))
            return self._transformed(record, steps, None)
        except _Failed:
            return {"outcome": "failed", "steps": steps}

    def source(self, sample: Json) -> Json:
        steps: list[Json] = []
        try:
            return self._transformed(self._from_task(sample), steps, self._to_topic)
        except _Failed:
            return {"outcome": "failed", "steps": steps}

    def _transformed(
        self, record: Record, steps: list[Json], then: Callable[[Record, list[Json]], None] | None
    ) -> Json:
        current: Record | None = record
        for step in self.chain.trace(record):
            before, current = current, step.record
            error = _words(step.error) if step.error is not None else None
            steps.append(
                self._said(
                    step.stage.alias, step.stage.class_name, current, before, error, applied=step.applied
                )
            )
            if error is not None:
                return {"outcome": "failed", "steps": steps}
        if current is None:
            return {"outcome": "dropped", "steps": steps}
        if then is not None:
            then(current, steps)
        return {"outcome": "delivered", "steps": steps}

    def _said(
        self,
        name: str,
        plugin: str,
        record: Record | None,
        before: Record | None,
        error: str | None,
        *,
        applied: bool = True,
    ) -> Json:
        shown = self._show(record) if record is not None else None
        changed = shown != (self._show(before) if before is not None else None)
        return {
            "step": name,
            "plugin": plugin,
            "applied": applied,
            "record": shown,
            "changed": changed,
            "error": error,
        }

    def _step(self, steps: list[Json], name: str, stage: str, make: Callable[[], Record]) -> Record:
        plugin = self._converters.class_name(stage)
        try:
            record = make()
        except _Failed:
            raise
        except Exception as e:
            steps.append(self._said(name, plugin, None, None, _words(e)))
            raise _Failed from e
        steps.append(self._said(name, plugin, record, None, None))
        return record

    # A sink's sample

    def _from_topic(self, sample: Json, steps: list[Json]) -> SinkRecord:
        topic = sample.get("topic") or self._topic
        stage = KEY
        try:
            key = self._converters.key.to_connect_data(topic, _bytes(sample.get("key")))
            stage = VALUE
            value = self._converters.value.to_connect_data(topic, _bytes(sample.get("value")))
            stage = HEADER
            headers = Headers(
                Header(name, found.value, found.schema)
                for name, data in (sample.get("headers") or {}).items()
                for found in [self._converters.header.to_connect_header(topic, name, _bytes(data))]
            )
        except Exception as e:
            what = stage.removesuffix("_CONVERTER").lower()
            plugin = self._converters.class_name(stage)
            steps.append(self._said("converter", plugin, None, None, f"{what}: {_words(e)}"))
            raise _Failed from e
        return SinkRecord(
            topic,
            sample.get("partition") or 0,
            key.schema,
            key.value,
            value.schema,
            value.value,
            sample.get("offset") or 0,
            sample.get("timestamp"),
            "CreateTime" if sample.get("timestamp") is not None else "NoTimestampType",
            headers,
        )

    # A source's sample

    def _from_task(self, sample: Json) -> SourceRecord:
        key = self._typed(sample, "key")
        value = self._typed(sample, "value")
        return SourceRecord(
            {},
            {},
            sample.get("topic") or self._topic,
            sample.get("partition"),
            key.schema,
            key.value,
            value.schema,
            value.value,
            sample.get("timestamp"),
            Headers(Header(name, data) for name, data in (sample.get("headers") or {}).items()),
        )

    def _typed(self, sample: Json, part: str) -> Any:
        """Returns a value with the sample's schema, read as JsonConverter reads them."""
        data = {"schema": sample.get(f"{part}_schema"), "payload": sample.get(part)}
        return self._shown.to_connect_data(self._topic, json.dumps(data).encode())

    def _to_topic(self, record: Record, steps: list[Json]) -> None:
        stage = KEY
        try:
            key = self._converters.key.from_connect_data(record.topic, record.key_schema, record.key)
            stage = VALUE
            value = self._converters.value.from_connect_data(record.topic, record.value_schema, record.value)
            stage = HEADER
            convert = self._converters.header.from_connect_header
            headers = [
                {"name": h.name, "value": json_value(convert(record.topic, h.name, h.schema, h.value))}
                for h in record.headers
            ]
        except Exception as e:
            what = stage.removesuffix("_CONVERTER").lower()
            plugin = self._converters.class_name(stage)
            steps.append(self._said("converter", plugin, None, None, f"{what}: {_words(e)}"))
            raise _Failed from e
        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "timestamp": record.timestamp,
            "key": json_value(key),
            "value": json_value(value),
            "key_schema": None,
            "value_schema": None,
            "headers": headers,
        }
        plugin = self._converters.class_name(VALUE)
        steps.append(
            {
                "step": "converter",
                "plugin": plugin,
                "applied": True,
                "record": shown,
                "changed": True,
                "error": None,
            }
        )

    # The results

    def _show(self, record: Record) -> Json:
        key, value = (
            self._plain(record.key_schema, record.key),
            self._plain(record.value_schema, record.value),
        )
        return {
            "topic": record.topic,
            "partition": record.partition,
            "timestamp": record.timestamp,
            "key": key["payload"],
            "value": value["payload"],
            "key_schema": key["schema"],
            "value_schema": value["schema"],
            "headers": [
                {"name": h.name, "value": self._plain(h.schema, h.value)["payload"]} for h in record.headers
            ],
        }

    def _plain(self, schema: Any, value: Any) -> Json:
        """Returns a value as JSON, or as Python writes it where JSON has no form for it."""
        try:
            data = self._shown.from_connect_data(self._topic, schema, value)
            found: Json = json.loads(data) if data is not None else {"schema": None, "payload": None}
        except (DataError, ValueError):
            return {"schema": None, "payload": repr(value)}
        return found


def _first_topic(config: Mapping[str, str]) -> str:
    topics = [t.strip() for t in config.get("topics", config.get("topic", "")).split(",") if t.strip()]
    return topics[0] if topics else "sample"


def _bytes(data: Any) -> bytes | None:
    """Returns the bytes of a topic: text as it is, {"base64": …} decoded, other JSON as its text."""
    match data:
        case None:
            return None
        case str():
            return data.encode()
        case {"base64": str(text)} if len(data) == 1:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as e:
                raise DataError(f"not base64: {e}") from None
    return json.dumps(data, ensure_ascii=False).encode()


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
