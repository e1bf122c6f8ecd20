"""Keeps records from going in circles, and from coming twice, by the marks of `klamm_mirror.provenance.marks`.

A task looks at the producer id in the header of each batch that it reads. It leaves out a batch that first was at the
target, and a batch whose origin has another way to the target. It copies all others with a producer id of its own for
each origin, and marks these ids at the target with that origin.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster
from klamm_kafka.wire.batch import BatchHeader
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.origins import LeftOut, Origin, Verdict
from klamm_mirror.provenance.config import ProvenanceSettings
from klamm_mirror.provenance.marks import MarkReader, MarkWriter
from klamm_mirror.provenance.opposite import RECENT_MS, copied_back_unmarked
from klamm_mirror.provenance.strangers import first_stranger
from klamm_mirror.raw import last_epoch, producer_ids
from klamm_mirror.topics.mirror_states import Foreign, foreign_parts
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

Lens = Callable[[BatchHeader], Verdict]
LOOK_S: Final = 10.0
"""Seconds between two looks at whether the topic of marks is still there, and whether a flow back has begun."""


class Provenance:
    """Decides about batches and marks producers, for one task. Clients of both clusters are its own. `topics` are those
    that the task reads.
    """

    def __init__(
        self, settings: ProvenanceSettings, source: Cluster, target: Cluster, topics: Collection[str] = ()
    ) -> None:
        self.why: str | None = None
        self._topics = sorted(topics)
        self._foreign: Mapping[str, Foreign] = {}
        """The source's mirror topics: batches in them have producer ids of another cluster, of which marks say nothing."""
        self._epochs: dict[str, int] = {}
        """The leader epochs of mirror topics up to which `_foreign` holds."""
        self._settings = settings
        self._clusters = (source, target)
        self._reader = MarkReader(source)
        self._target_reader = MarkReader(target, "target")
        flow = f"{settings.source_alias}->{settings.target_alias}"
        self._writer = MarkWriter(target, flow, settings.replication_factor)
        self._ids: tuple[str, str] | None = None
        self._lenses: dict[str, Lens] = {}

    async def learn(self, topic: str, records: Buffer) -> None:
        """Makes it possible to decide about these batches of a topic. Raises ClientError, ConnectError.

        A mirror topic's own records have a higher leader epoch than all before: whoever sees a new one asks whether the
        topic was promoted.
        """
        await self._identify()
        await self._reader.learn(producer_ids(records))
        if topic in self._foreign and (epoch := last_epoch(records, -1)) > self._epochs.get(topic, -1):
            await self._find_foreign()
            self._epochs[topic] = epoch

    def lens(self, topic: str) -> Lens:
        """Returns the function that decides about a batch of the topic by its producer id, which `learn` must know, or by
        the cluster that a mirror topic names.
        """
        found = self._lenses.get(topic)
        if found is None:
            found = self._lenses[topic] = self._make_lens(topic)
        return found

    async def mark(self, producer_id: int, origin: Origin | None) -> None:
        """Marks a producer id that is to write records of this origin (None: the source). Waits for the clusters."""

        async def write() -> None:
            source, _ = await self._identify()
            await self._writer.write(producer_id, origin or Origin(source, self._settings.source_alias))

        await self._patiently(write)

    async def mark_lasting(self, producer_id: int, owner: str) -> None:
        """Marks a producer id that `owner`, a transactional id, keeps across starts and configurations. Raises ConnectError
        where it has written records of another cluster than the source.
        """

        async def check() -> None:
            source, _ = await self._identify()
            await self._target_reader.learn([producer_id])
            known = self._target_reader.origin(producer_id)
            if known is not None and known.cluster != source:
                raise ConnectError(
                    f"The transactional id {owner} has written records of cluster {known.cluster} ({known.alias}) at the "
                    f"target, and records of {source} could not be told from them: give the connector another name"
                )

        await self._patiently(check)
        await self.mark(producer_id, None)

    async def first_stranger(self, topic: str, partition: int) -> int | None:
        """Returns the first offset at the target whose record was not first written at the source; None: there is none.

        Raises ClientError, ConnectError.
        """
        source, _ = await self._identify()
        return await first_stranger(self._clusters[1], self._target_reader, source, topic, partition)

    async def first_for_target(self, topic: str, partition: int) -> int | None:
        """Returns the first offset at the source whose record was not first written at the target; None: there is none.

        Raises ClientError, ConnectError.
        """
        _, target = await self._identify()
        return await first_stranger(self._clusters[0], self._reader, target, topic, partition)

    async def run(self) -> None:
        """Looks after the marks until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._patiently(self._look)

    # ---- inside

    async def _identify(self) -> tuple[str, str]:
        """Returns the ids of source and target. Raises ClientError."""
        if self._ids is None:
            ids = await self._ask_ids()
            await self._refuse_blind_flow_back()
            await self._find_foreign()
            self._ids = ids
        return self._ids

    async def _ask_ids(self) -> tuple[str, str]:
        aliases = self._settings.source_alias, self._settings.target_alias
        source, target = [
            (await cluster.refresh([])).cluster_id or f"alias:{alias}"
            for cluster, alias in zip(self._clusters, aliases, strict=True)
        ]
        return source, target

    async def _look(self) -> None:
        await self._writer.look()
        ids = await self._ask_ids()
        if self._ids is not None and ids != self._ids:
            raise ConnectError(f"Another cluster has taken the place of one: ids {self._ids} became {ids}")
        await self._refuse_blind_flow_back()
        await self._find_foreign()

    async def _find_foreign(self) -> None:
        foreign = await foreign_parts(self._clusters[0], self._topics)
        if foreign != self._foreign:
            self._foreign = foreign
            self._lenses.clear()

    async def _refuse_blind_flow_back(self) -> None:
        """Raises ConnectError while a flow back that writes no marks copies our topics."""
        settings = self._settings
        if settings.flow_back is None:
            return
        now_ms = time.time_ns() // 1_000_000
        topic = await copied_back_unmarked(settings.flow_back, *self._clusters, self._reader, now_ms)
        if topic is not None:
            ours, theirs = settings.source_alias, settings.target_alias
            raise ConnectError(
                f"A flow {theirs}->{ours} copies {topic} back under this name and writes no marks, as MirrorMaker's or one "
                f"with mirror.provenance=false: its copies would come back as new records, without end. Its last offset "
                f"syncs in {settings.flow_back.syncs_topic} of {theirs} are less than {RECENT_MS // 1000} s old. Stop "
                f"it, or exclude the topic from one of the flows, or use DefaultReplicationPolicy"
            )

    def _make_lens(self, topic: str) -> Lens:
        assert self._ids is not None, "learned"
        source, target = self._ids
        elsewhere = {a for a, topics in self._settings.left_out.items() if topics.fullmatch(topic)}
        origin_of, foreign = self._reader.origin, self._foreign.get(topic)

        def decide(header: BatchHeader) -> Verdict:
            if foreign is not None and foreign.covers(header.leader_epoch):
                origin = foreign.origin
            else:
                origin = origin_of(header.producer_id) if header.has_producer_id else None
            if origin is None or origin.cluster == source:
                return None
            if origin.cluster == target:
                return LeftOut.OF_TARGET
            return LeftOut.BY_ANOTHER_FLOW if origin.alias in elsewhere else origin

        return decide

    async def _patiently(self, step: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff()
        while True:
            try:
                await step()
            except ClientError as e:
                if not e.retriable:
                    raise ConnectError(f"Marks of records' origins cannot be kept: {e}") from None
                self.why = str(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))
            else:
                self.why = None
                return
