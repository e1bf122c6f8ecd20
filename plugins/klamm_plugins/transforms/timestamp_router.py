"""TimestampRouter: a topic made of the record's topic and its timestamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_plugins.batch import Batch
from klamm_plugins.date_format import DateFormat, PatternError
from klamm_plugins.errors import DataError
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation


class TimestampRouter(KlammTransformation):
    kafka_name = "org.apache.kafka.connect.transforms.TimestampRouter"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "topic.format",
                Type.STRING,
                "${topic}-${timestamp}",
                importance=Importance.HIGH,
                documentation="The new topic: ${topic} stands for the old one, ${timestamp} for the timestamp.",
            )
            .define(
                "timestamp.format",
                Type.STRING,
                "yyyyMMdd",
                importance=Importance.HIGH,
                documentation="How the timestamp is written, in UTC: a pattern of Java's SimpleDateFormat.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._topic_format: str = settings["topic.format"]
        pattern = settings["timestamp.format"]
        try:
            self._format = DateFormat(pattern)
        except PatternError as e:
            raise invalid("timestamp.format", pattern, str(e)) from e

    def leaves_values(self) -> bool:
        return True

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        timestamps = [timestamp for timestamp in batch.timestamps if timestamp is not None]
        if len(timestamps) != len(batch):
            raise DataError("Timestamp missing on a record")
        texts = list(map(self._format.format, timestamps))
        head = self._topic_format.replace("${topic}", batch.topic)
        found: list[Batch] = []
        start = 0
        for text, run in groupby(texts):
            end = start + sum(1 for _ in run)
            found.append(batch[start:end].replace(topic=head.replace("${timestamp}", text)))
            start = end
        return found

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        write, topic_format = self._format.format, self._topic_format
        last = topic = text = ""
        made: list[Record | None] = []
        for record in records:
            if record.timestamp is None:
                raise DataError(f"Timestamp missing on record: {record!r}")
            try:
                now = write(record.timestamp)
            except OverflowError:
                raise DataError(f"Timestamp {record.timestamp} is out of range") from None
            if now is not text or record.topic != last:
                text, last = now, record.topic
                topic = topic_format.replace("${topic}", last).replace("${timestamp}", text)
            changed = record.copy()
            changed.topic = topic
            made.append(changed)
        return made
