"""Replaces the ids of schemas in a partition's records by those of the target's registry.

The ids of an answer are looked up before its records are changed, in a thread, because the registries are asked. Records
end before the first one that has no translation; a partition that begins with such a record is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from klamm_kafka.wire.batch import BatchHeader, Record
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.origins import Verdict
from klamm_mirror.raw import Counts, Rewrite, convert
from klamm_mirror.schemas.prefix import SchemaId, translate
from klamm_mirror.schemas.translation import RefusedError, Translation
from klamm_plugins.errors import RetriableError

log = logging.getLogger(__name__)

Change = Callable[[list[Record]], list[Record]]
_NONE: Final[list[Record]] = []


class RecordRefusedError(Exception):
    """The first record at a partition's position cannot be copied."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"offset {offset}: {why}")
        self.offset = offset


class RegistryAwayError(Exception):
    """A registry does not answer, so nobody knows the translation of a record's schema."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The change to the records of an answer; None: there is none. `end`: only records before this offset can be copied now."""

    change: Change | None
    end: int | None = None


class SchemaRewriter:
    """The translation of one task's records."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._one_at_a_time = asyncio.Lock()
        self._why: str | None = None

    def close(self) -> None:
        self._translation.close()

    async def prepare(
        self, partition: MirrorPartition, records: Buffer, aborted: Sequence[tuple[int, int]] | None,
        lens: Callable[[BatchHeader], Verdict] | None,
    ) -> Prepared:  # fmt: skip
        """Looks up the schemas of an answer's records. Raises RecordRefusedError, RegistryAwayError."""
        await asyncio.sleep(0)  # to decode takes long; answers of the target come in between
        found = _schemas_in(partition, records, aborted, lens)
        ids = {schema: self._translation.known(partition.topic, schema) for schema in found}
        missing = {schema: offset for schema, offset in found.items() if ids[schema] is None}
        end = None
        if missing:
            refused = await self._asked(partition.topic, missing, ids)
            if refused is not None:
                end = refused.offset
                if end <= partition.position:
                    raise refused
        if end is None and all(schema.name == name for schema, name in ids.items()):
            return Prepared(None)
        return Prepared(partial(_change, ids, end), end)

    async def _asked(
        self, topic: str, missing: Mapping[SchemaId, int], ids: dict[SchemaId, int | str | None]
    ) -> RecordRefusedError | None:
        async with self._one_at_a_time:
            try:
                refused = await asyncio.to_thread(self._look_up, topic, missing, ids)
            except RetriableError as e:
                if self._why is None:
                    log.warning("records wait for their schemas: %s", e)
                self._why = str(e)
                raise RegistryAwayError(self._why) from e
        self._why = None
        return refused

    def _look_up(
        self, topic: str, missing: Mapping[SchemaId, int], ids: dict[SchemaId, int | str | None]
    ) -> RecordRefusedError | None:
        """Adds translations, in the order of the records. Returns the first record without one."""
        for schema, offset in missing.items():
            try:
                ids[schema] = self._translation.find(topic, schema)
            except RefusedError as e:
                return RecordRefusedError(offset, str(e))
        return None


def _schemas_in(
    partition: MirrorPartition, records: Buffer, aborted: Sequence[tuple[int, int]] | None,
    lens: Callable[[BatchHeader], Verdict] | None,
) -> dict[SchemaId, int]:  # fmt: skip
    """Returns the schemas of the records that would be copied, with the first offset of each."""
    found: dict[SchemaId, int] = {}

    def note(offset: int, schema: SchemaId) -> int | str:
        found.setdefault(schema, offset)
        return schema.name

    def look(batch: list[Record]) -> list[Record]:
        translate(batch, note)
        return _NONE

    convert(records, partition.position, Counts(), aborted, lens, rewrite=Rewrite(change=look))
    return found


def _change(ids: Mapping[SchemaId, int | str | None], end: int | None, records: list[Record]) -> list[Record]:
    if end is not None and records[-1].offset >= end:
        records = [record for record in records if record.offset < end]

    def new(_: int, schema: SchemaId) -> int | str:
        found = ids[schema]
        assert found is not None, "looked up"
        return found

    return translate(records, new)
