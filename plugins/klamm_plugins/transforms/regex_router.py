"""RegexRouter: another topic for records whose topic a regular expression matches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_plugins.batch import Batch
from klamm_plugins.java_regex import compile_java, java_replacement
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation
from klamm_plugins.transforms._validators import regex

_TOPICS_MAX: Final = 10_000  # remembered; a topic costs a match


class RegexRouter(KlammTransformation):
    kafka_name = "org.apache.kafka.connect.transforms.RegexRouter"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "regex",
                Type.STRING,
                validator=regex,
                importance=Importance.HIGH,
                documentation="Regular expression (Java's syntax) that the whole topic must match.",
            )
            .define(
                "replacement",
                Type.STRING,
                importance=Importance.HIGH,
                documentation="What takes the place of the first match: $1 or ${name} is a group of the expression.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._pattern = compile_java(settings["regex"])
        try:
            self._replacement = java_replacement(settings["replacement"], self._pattern)
        except re.error as e:
            raise invalid("replacement", settings["replacement"], str(e)) from e
        self._known: dict[str, str] = {}

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        known = self._known
        made: list[Record | None] = []
        for record in records:
            topic = known.get(record.topic) or self._route(record.topic)
            if topic == record.topic:
                made.append(record)
            else:
                changed = record.copy()
                changed.topic = topic
                made.append(changed)
        return made

    def leaves_values(self) -> bool:
        return True

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        topic = self._known.get(batch.topic) or self._route(batch.topic)
        return [batch if topic == batch.topic else batch.replace(topic=topic)]

    def _route(self, topic: str) -> str:
        # Java tests the whole topic, and then replaces the first match that it finds, which may be less.
        routed = (
            self._pattern.sub(self._replacement, topic, count=1) if self._pattern.fullmatch(topic) else topic
        )
        if len(self._known) >= _TOPICS_MAX:
            self._known.clear()
        self._known[topic] = routed
        return routed
