"""Batches in transforms whose result depends on each row: by their records where columns do not do."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_plugins.batch import Batch, batches_like
from klamm_plugins.transforms._parts import KlammTransformation


def by_records(transform: KlammTransformation, batch: Batch) -> Sequence[Batch]:
    """Returns the batches of what the transform makes of the records."""
    return batches_like(batch, transform.apply_many(batch.records()))
