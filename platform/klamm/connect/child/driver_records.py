"""The transforms and converters of a driver task: those of a source task (`source_records`), for records that the task
sends itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from klamm.connect.child.control import Control
from klamm.connect.child.dead_letters import open_dead_letters
from klamm.connect.child.origins import SourceOrigin
from klamm.connect.child.plugins import Converters, converters
from klamm.connect.child.source_records import Chunk, SourceRecords
from klamm.connect.child.tolerance import Tolerance
from klamm.connect.child.transform_chain import TransformChain, make_chain
from klamm.connect.model import TaskSpec
from klamm.connect.settings.connector_keys import CONVERTERS
from klamm_plugins.discovery import PluginManager
from klamm_plugins.record_pipeline import RawRecord, RecordPipeline
from klamm_plugins.records import SourceRecord

BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


def open_pipeline(
    control: Control, spec: TaskSpec, plugins: PluginManager, secrets: Iterable[str] = ()
) -> RecordPipeline | None:
    """Makes the pipeline of a connector's config; None where records would pass as they are. Raises ConfigError."""
    config = dict.fromkeys(CONVERTERS, BYTES) | {k: v for k, v in spec.connector_config.items() if v}
    chain = make_chain(plugins, config)
    found = converters(plugins, config, {})
    passes = plugins.find_converter(BYTES)
    if not chain and all(isinstance(each, passes) for each in (found.key, found.value, found.header)):
        return None
    tolerance = Tolerance(
        config,
        control=control,
        task=spec.id,
        dead_letters=open_dead_letters(control, spec, secrets),
        origin=SourceOrigin(found),
    )
    return DriverRecords(chain, found, tolerance)


class DriverRecords:
    """A RecordPipeline."""

    def __init__(self, chain: TransformChain, found: Converters, tolerance: Tolerance) -> None:
        self._chain = chain
        self._tolerance = tolerance
        self._records = SourceRecords(converters=found, chain=chain, tolerance=tolerance, records=True)

    def convert(self, records: Sequence[SourceRecord]) -> list[RawRecord | None]:
        made: dict[int, RawRecord] = {}
        for chunk in self._records.chunks(records) if records else ():
            made |= _raw(chunk)
        self._tolerance.serve()
        return [made.get(id(record)) for record in records]

    def settle(self, within_s: float) -> bool:
        return self._tolerance.settle(within_s)

    def close(self) -> None:
        self._chain.close()


def _raw(chunk: Chunk) -> Mapping[int, RawRecord]:
    """Returns the chunk's records by the identity of the record that each was made of."""
    return {
        id(original): RawRecord(
            chunk.topic,
            chunk.partition,
            chunk.keys[i] if chunk.keys is not None else None,
            chunk.values[i],
            (chunk.headers[i] if chunk.headers is not None else None) or (),
            chunk.timestamps[i] if chunk.timestamps is not None else None,
        )
        for i, original in enumerate(chunk.sent)
    }
