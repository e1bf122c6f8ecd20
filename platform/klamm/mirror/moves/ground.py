"""The ground of a move: a flow of the file, clients of its clusters, and looks at both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm.mirror import files
from klamm.mirror.at_rest import Seat
from klamm.mirror.flow_offsets import CommittedOffsets
from klamm.mirror.flow_props import source_props
from klamm.mirror.places import Place, place_of
from klamm_base.errors import ConfigError, KlammError
from klamm_kafka.client import Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.checkpoint import config as checkpoint_config
from klamm_mirror.checkpoint.translator import GroupTranslator
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.gaps.ledger import Ledger, remotes_of
from klamm_mirror.loop import ask_cluster
from klamm_mirror.move.journal import Journal
from klamm_mirror.settings.keep_offsets import KEEP
from klamm_mirror.settings.mm2_config import CHECKPOINT, Flow, MirrorConfig
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.settings.policy import ReplicationPolicy
from klamm_mirror.source.config import config_def
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.target import Topics

Partition = tuple[str, int]
Said = Callable[[str, float | None], None]
"""Called with what is waited for, and the share that is done if that is known."""

LOOK_S: Final = 0.5
REPLICAS: Final = "mirror.gaps.topic.replication.factor"
NAMED_MAX: Final = 5
"""Names in a sentence; the others are counted."""


class NotYet(KlammError):
    """Something outside must happen first. The same command goes on when it has."""


class Refused(KlammError):
    """The move cannot be made as things are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The words of the command line."""

    timeout_s: float = 300.0
    quiet_s: float = 3.0
    records: bool = True
    """Compare every record in the step `verify`."""
    groups_may_run: bool = False
    """Groups may have members at the source."""
    force: bool = False
    """Move though the source answers."""
    diverged: str | None = None
    """The decision about records that only a cluster that is back has: copy, export."""
    export: Path | None = None
    """The file for them."""
    show: int = 0
    """The number of such records to show of each partition."""


@dataclass(slots=True, kw_only=True)
class Ground:
    """See the module. `clusters`: an address for each alias."""

    path: Path
    mirror: MirrorConfig
    flow: Flow
    place: Place
    props: Mapping[str, str]
    source: Cluster
    target: Cluster
    topics: Topics
    policy: ReplicationPolicy
    groups: checkpoint_config.Settings
    offsets: CommittedOffsets
    replicas: int
    keeps_offsets: bool
    """Copies are mirror topics: their ends say how far they go."""
    options: Options
    said: Said
    lost: bool = False
    """The source is lost: the target says which partitions there are."""
    _deadline: float = field(default=0.0)

    @property
    def seat(self) -> Seat:
        """The worker of the flow."""
        return Seat(self.mirror, self.flow, self.place)

    @property
    def wants_group(self) -> Callable[[str], bool]:
        return self.groups.checkpointer.wants_group

    def bootstrap(self, alias: str) -> str:
        """Returns a cluster's address, as the file has it."""
        side = "source" if alias == self.flow.source else "target"
        return self.props[f"{side}.cluster.bootstrap.servers"]

    def opposite(self) -> Flow | None:
        """Returns the flow back, if the file enables it."""
        name = f"{self.flow.target}->{self.flow.source}"
        return next((f for f in self.mirror.flows if f.name == name and f.enabled), None)

    def journal(self, *, at_source: bool = False) -> Journal:
        """Returns the journal at the cluster that is in use after the move, or before it."""
        cluster, other = (self.source, self.flow.target) if at_source else (self.target, self.flow.source)
        return Journal(cluster, self.policy.moves_topic(other), self.replicas)

    def translator(self) -> GroupTranslator:
        """Returns the flow's mapping of offsets, not read yet."""
        return GroupTranslator(
            self.groups.checkpointer, self.source, self.target, syncs_at_source=self.groups.syncs_at_source
        )

    # ---- looks

    async def partitions(self) -> list[Partition]:
        """Returns the source's partitions that the flow copies, less heartbeats, which never rest."""
        if self.lost:
            found = [(t, p) for t, p in sorted(await self.positions()) if self.topics.wants(t)]
        else:
            found = [(t, p) for t, n in sorted((await self.topics.find()).items()) for p in range(n)]
        return [(t, p) for t, p in found if not self.policy.is_heartbeats_topic(t)]

    async def ends(self) -> dict[Partition, int]:
        """Returns the ends of the source's logs. Raises NotYet when a partition does not answer."""
        return await self._ends(self.source, await self.partitions())

    async def target_ends(self) -> dict[Partition, int]:
        """Returns the ends of the logs at the target that applications may write or the flow writes: copies, and topics
        with the source's names.
        """
        there = {
            t.name: len(t.partitions) for t in (await self.target.refresh(None)).topics if not t.error_code
        }
        names = {n for t, _ in await self.partitions() for n in (t, self.topics.remote(t))}
        return await self._ends(
            self.target, [(n, p) for n in sorted(names) if n in there for p in range(there[n])]
        )

    async def _ends(self, cluster: Cluster, partitions: list[Partition]) -> dict[Partition, int]:
        found = await internal_topics.offsets_of(cluster, partitions, LATEST)
        silent = [p for p in partitions if p not in found]
        if silent:
            cluster.metadata = None
            raise NotYet(f"{named(silent[0])} does not tell its end: has it a leader?")
        return found

    async def positions(self) -> dict[Partition, Position]:
        """Returns the committed source offsets of the flow."""
        return await self.offsets.read()

    async def copied(self) -> dict[Partition, int]:
        """Returns the next offset to copy of each partition that the flow copies. Leaves out those with another log by now, at the
        source or as their copy: nothing of it is copied.
        """
        positions = await self.positions()
        for partition in await self.other_logs():
            positions.pop(partition, None)
        if not self.keeps_offsets:
            return {p: end for p, at in positions.items() if (end := at.next_offset) is not None}
        remotes = {(self.topics.remote(t), p): (t, p) for t, p in positions}
        found = await internal_topics.offsets_of(self.target, list(remotes), LATEST)
        return {remotes[p]: end for p, end in found.items()}

    async def other_logs(self) -> frozenset[Partition]:
        """Returns the partitions whose positions count other logs than those that are there: a topic was deleted at the source, or
        its copy at the target, whether it was made anew or not, or the copy has lost its end. A lost source is not asked.
        """
        positions = await self.positions()
        copies = {(t, p): (at.remote or self.topics.remote(t), p) for (t, p), at in positions.items()}
        here = {} if self.lost else await _ids(self.source, {t for t, _ in positions})
        there = await _ids(self.target, {name for name, _ in copies.values()})
        ends = await internal_topics.offsets_of(self.target, [*copies.values()], LATEST) if copies else {}
        return frozenset(
            p for p, at in positions.items()
            if not at.counts(source=here.get(p[0]), copy=there.get(copies[p][0]), copy_end=ends.get(copies[p]))
        )  # fmt: skip

    async def refuse_stopped(self) -> None:
        """Raises Refused while partitions are stopped at a gap."""
        ledger = Ledger(self.target, self.policy.gaps_topic(self.flow.source), self.replicas)
        await ledger.catch_up()
        waiting = ledger.table.waiting()
        if waiting:
            raise Refused(
                f"{listed([str(g) for g in waiting])}: stopped ({waiting[0].why}). Decide by "
                f"klamm mirror resolve {self.path} '{self.flow.name}'"
            )

    # ---- waits

    def begin_wait(self) -> None:
        """Begins the time that a step may wait."""
        self._deadline = time.monotonic() + self.options.timeout_s

    async def wait(self, why: str, share: float | None = None) -> None:
        """Says what is waited for, and waits a moment. Raises NotYet when the step's time is over."""
        self.said(why, share)
        if time.monotonic() >= self._deadline:
            raise NotYet(
                f"{why}: not within {self.options.timeout_s:g} s. The same command goes on from here"
            )
        await asyncio.sleep(LOOK_S)


async def _ids(cluster: Cluster, topics: AbstractSet[str]) -> dict[str | None, bytes | None]:
    """Returns the ids that these topics have by now; zeros for one that is not there, None where the cluster gives none."""
    found = (await cluster.refresh(sorted(topics))).topics if topics else ()
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        t.name: UUID_ZERO if t.error_code == gone else None if t.topic_id == UUID_ZERO else t.topic_id
        for t in found
    }


def named(partition: Partition) -> str:
    """Returns `topic-0`."""
    return f"{partition[0]}-{partition[1]}"


def as_text(ends: Mapping[Partition, Any]) -> dict[str, Any]:
    """Returns values by partition in the form that the journal has."""
    return {named(p): value for p, value in sorted(ends.items())}


def parsed_name(name: str) -> Partition:
    """Returns topic and partition of `topic-0`."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def listed(names: list[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


@asynccontextmanager
async def opened(
    path: Path, name: str, overrides: list[str] | None, options: Options, said: Said, *, lost: bool = False
) -> AsyncIterator[Ground]:
    """Gives the ground of a move along a flow. Raises ConfigError."""
    mirror = files.load(path, overrides, warn=False)
    flow = mirror.flow(name)
    if not flow.enabled:
        raise ConfigError(f"{name} copies no topics: set {name}.enabled=true")
    props = source_props(flow)
    parsed = config_def().parse(props)
    async with AsyncExitStack() as stack:
        plugins = stack.enter_context(FlowPlugins(props, parsed))
        source = await stack.enter_async_context(ask_cluster(props, "source"))
        target = await stack.enter_async_context(ask_cluster(props, "target"))
        topics = Topics(parsed, plugins, source, target, await remotes_of(target, plugins.policy, parsed))
        yield Ground(
            path=path, mirror=mirror, flow=flow, place=place_of(path, name), props=props, source=source,
            target=target, topics=topics, policy=plugins.policy,
            groups=checkpoint_config.parse(_checkpoint_props(flow)), options=options, said=said, lost=lost,
            offsets=CommittedOffsets(target, flow), replicas=parsed[REPLICAS],
            keeps_offsets=parsed[KEEP],
        )  # fmt: skip


def _checkpoint_props(flow: Flow) -> Mapping[str, str]:
    from klamm.connect.secrets import Secrets

    return Secrets.from_properties(flow.worker).resolve(flow.connectors[CHECKPOINT]).config
