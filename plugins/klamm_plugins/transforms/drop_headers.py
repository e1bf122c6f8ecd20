"""DropHeaders: removes the headers of some names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.batch import Batch
from klamm_plugins.records import Headers
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation
from klamm_plugins.transforms._validators import some_distinct


class DropHeaders(KlammTransformation):
    kafka_name = "org.apache.kafka.connect.transforms.DropHeaders"

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "headers",
            Type.LIST,
            validator=some_distinct,
            importance=Importance.HIGH,
            documentation="Names of the headers to remove.",
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        self._names = frozenset(self.config().parse(props)["headers"])

    def leaves_values(self) -> bool:
        return True

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if batch.headers is None:
            return [batch]
        kept = [Headers(h for h in headers if h.name not in self._names) for headers in batch.headers]
        return [batch.replace(headers=kept)]

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        names = self._names
        made: list[Record | None] = []
        for record in records:
            if any(h.name in names for h in record.headers):
                changed = record.copy()
                changed.headers = Headers(h for h in record.headers if h.name not in names)
                made.append(changed)
            else:
                made.append(record)
        return made
