"""InsertHeader: adds a header of a fixed value, whose type is the one that its text looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.batch import Batch
from klamm_plugins.converters.simple_header import parse_text
from klamm_plugins.records import Header, Headers
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation
from klamm_plugins.transforms._validators import not_null


class InsertHeader(KlammTransformation):
    kafka_name = "org.apache.kafka.connect.transforms.InsertHeader"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "header",
                Type.STRING,
                validator=not_null,
                importance=Importance.HIGH,
                documentation="Name of the header.",
            )
            .define(
                "value.literal",
                Type.STRING,
                validator=not_null,
                importance=Importance.HIGH,
                documentation="Value of the header, the same for all records. 5 is a number, true a boolean, [1,2] an "
                "array, as SimpleHeaderConverter reads them.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        schema, value = parse_text(settings["value.literal"])
        self._header = Header(settings["header"], value, schema)
        self._alone = Headers((self._header,))

    def leaves_values(self) -> bool:
        return True

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if batch.headers is None:
            return [batch.replace(headers=[self._alone] * len(batch))]
        return [batch.replace(headers=[headers.with_all(self._alone) for headers in batch.headers])]

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        header, alone = self._header, self._alone
        made: list[Record | None] = []
        for record in records:
            changed = record.copy()
            changed.headers = Headers((*record.headers, header)) if record.headers else alone
            made.append(changed)
        return made
