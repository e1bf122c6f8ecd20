"""Filter: drops every record it gets, so it is used with a predicate that says which those are."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_plugins.batch import Batch
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation


class Filter(KlammTransformation):
    kafka_name = "org.apache.kafka.connect.transforms.Filter"

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        return [None] * len(records)

    def leaves_values(self) -> bool:
        return True

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        return ()
