"""A connector's transforms and converters, as a step for driver tasks, which move records themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from klamm_plugins.records import SourceRecord


class RawRecord(NamedTuple):
    """A record as it goes to a topic: bytes. `partition` and `timestamp` None: left to the producer."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int | None


class RecordPipeline(Protocol):
    """Transforms and converts as the runtime does for source tasks, with the connector's error handling
    (`errors.tolerance` and so on). Use it from the task's thread.
    """

    def convert(self, records: Sequence[SourceRecord]) -> list[RawRecord | None]:
        """Returns one record for each given one, in order; None for one that a transform dropped, or that is bad and
        tolerated. Raises ConnectError for a bad record that is not.
        """
        ...

    def settle(self, within_s: float) -> bool:
        """Waits until all dead letters of bad records are stored, and returns whether they are: offsets behind these records
        may be committed only then. Raises ConnectError for a dead letter that was refused.
        """
        ...

    def close(self) -> None:
        """Closes the transforms."""
        ...
