"""A sink's batches in transforms whose result depends on each row: by their records where columns do not do."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_plugins.batch import SinkBatch, batches_of
from klamm_plugins.transforms._parts import KlammTransformation


def by_records(transform: KlammTransformation, batch: SinkBatch) -> Sequence[SinkBatch]:
    """Returns the batches of what the transform makes of the records."""
    made = transform.apply_many(batch.records())
    return batches_of(record for record in made if record is not None)  # type: ignore[misc]  # a sink's, as they came
