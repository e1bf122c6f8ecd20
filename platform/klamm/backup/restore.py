"""`klamm backup restore`: writes a backup's topics, offsets, ACLs and quotas to a cluster.

Every record has its place before it is sent: the target's log has the backup's records in their order and without holes. So a
killed restore goes on without a state of its own: so many records as a partition has are left out (`--resume`), after a look at the last of
them. Groups' offsets follow from the same places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.backup import appending, applying, targets
from klamm.backup.cluster_state import rules
from klamm.backup.connectors import sink_place
from klamm.backup.errors import BackupError
from klamm.backup.filling import fill
from klamm.backup.folder import BackupFolder
from klamm.backup.mapping import Mapping as Offsets
from klamm.backup.model import Group, State, Topic
from klamm.backup.placing import find_places, is_same, record_at
from klamm.backup.progress import Progress
from klamm.backup.replay import Replay, without_first
from klamm.backup.selection import Names, Selection
from klamm.backup.sending import HELD_BYTES, RestoreSender, Target, sending
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record, decode_records
from klamm_mirror.raw import Batch, runs_of

TOPICS: Final = "topics"
GROUPS: Final = "groups"
ACLS: Final = "acls"
QUOTAS: Final = "quotas"
PARTS: Final = (TOPICS, GROUPS, ACLS, QUOTAS)
AT_A_TIME: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wishes of a restore. `replicas` None: as many as the source had, or as there are brokers."""

    selection: Selection = field(default_factory=Selection)
    names: Names = field(default_factory=Names)
    parts: frozenset[str] = frozenset(PARTS)
    until_ms: int | None = None
    resume: bool = False
    append: bool = False
    """Put records behind those that topics hold."""
    replicas: int | None = None
    keep_offsets: bool = False
    """Let partitions begin at the offsets where they began."""
    connectors: bool = False
    """Connectors are restored, too, so that their sinks' offsets need places."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Counts of restored things. `had`: records that a killed restore had written. `refused`: sentences on what the cluster refused."""

    names: dict[str, str] = field(default_factory=dict)
    topics: int = 0
    records: int = 0
    had: int = 0
    groups: int = 0
    offsets: int = 0
    acls: int = 0
    quotas: int = 0
    connectors: int = 0
    refused: list[str] = field(default_factory=list)
    moved: int = 0
    """Partitions with a record that has another offset than before."""
    places: dict[TopicPartition, Offsets] = field(default_factory=dict)
    """The target's offsets by the source's partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A partition to write: where its records come from and go to, and how many the target has already."""

    replay: Replay
    target: Target
    offsets: Offsets
    had: int


async def restore(
    admin: Admin, cluster: Cluster, folder: BackupFolder, state: State, *, wanted: Wanted, progress: Progress
) -> Outcome:
    """Restore a backup. `cluster` is a client that nobody else uses. Raises BackupError, AdminError, ClientError."""
    names = wanted.selection.chosen(t.name for t in state.topics)
    wanted.names.check(names)
    outcome = Outcome(names={name: wanted.names.target(name) for name in names})
    chosen: dict[str, Topic] = {outcome.names[t.name]: t for t in state.topics if t.name in outcome.names}
    groups = _of_topics(state.groups, outcome.names) if GROUPS in wanted.parts else []
    await applying.check_groups(admin, groups)
    there: list[targets.TargetTopic] = []
    if TOPICS in wanted.parts:
        there = await _topics(
            admin, cluster, folder, state, chosen=chosen, wanted=wanted, outcome=outcome, progress=progress
        )
    else:
        replays = _replays(folder, chosen.values(), _needed(groups, state, wanted), wanted)
        outcome.places = await find_places(
            admin, cluster, replays, {t.name: t for t in chosen.values()}, outcome.names
        )
    outcome.moved = sum(not offsets.is_identity for offsets in outcome.places.values())
    outcome.groups, outcome.offsets = (
        len(groups),
        await applying.restore_groups(admin, groups, outcome.names, outcome.places),
    )
    # Retention begins here, and may delete what a restore that is killed before would look for to go on.
    outcome.refused += await _finish(admin, there)
    if wanted.append and there:
        await appending.forget(admin, state)
    await _rules(admin, state, wanted.parts, outcome)
    return outcome


async def _topics(
    admin: Admin, cluster: Cluster, folder: BackupFolder, state: State, *, chosen: Mapping[str, Topic], wanted: Wanted,
    outcome: Outcome, progress: Progress,
) -> list[targets.TargetTopic]:  # fmt: skip
    """Restore topics with their records, but for their configs."""
    there = await targets.look(admin, chosen, resume=wanted.resume, append=wanted.append)
    if wanted.append and wanted.resume:
        there = await appending.resumed(admin, state, there)
    elif wanted.append:
        await appending.check_fresh(admin, state, there)
    await _make(admin, there, wanted, progress)
    if wanted.append and there:
        await appending.note(admin, state, there)
    if wanted.keep_offsets:
        there = await fill(admin, cluster, there, progress)
    parts = _parts(folder, there, wanted)
    await _check_places(cluster, parts)
    await _send(cluster, parts, progress)
    outcome.places = {TopicPartition(p.replay.topic, p.replay.partition.number): p.offsets for p in parts}
    outcome.topics = len(there)
    outcome.records = sum(p.target.records for p in parts)
    outcome.had = sum(p.had for p in parts)
    return there


def _needed(groups: Sequence[Group], state: State, wanted: Wanted) -> set[TopicPartition]:
    """Return the partitions that groups, or connectors of the backup, have offsets in."""
    found = {TopicPartition(o.topic, o.partition) for g in groups for o in g.offsets}
    if wanted.connectors:
        rows = (row for c in state.connectors for row in c.offsets or ())
        found |= {place for row in rows if (place := sink_place(row)) is not None}
    return found


def _replays(
    folder: BackupFolder, topics: Iterable[Topic], needed: Collection[TopicPartition], wanted: Wanted
) -> list[Replay]:
    return [
        Replay(folder, topic.name, p, wanted.until_ms)
        for topic in topics
        for p in topic.partitions
        if TopicPartition(topic.name, p.number) in needed
    ]


def _of_topics(groups: Sequence[Group], topics: Mapping[str, str]) -> list[Group]:
    """Return the groups with offsets of these topics."""
    return [g for g in groups if any(o.topic in topics for o in g.offsets)]


async def _make(
    admin: Admin, there: Sequence[targets.TargetTopic], wanted: Wanted, progress: Progress
) -> None:
    brokers = len(await admin.brokers())

    async def make(target: targets.TargetTopic) -> None:
        asked = wanted.replicas or target.source.replication_factor
        if asked > brokers and wanted.replicas is None:
            progress.say(
                f"{target.name} gets {brokers} replicas instead of {asked}: there are no more brokers"
            )
            asked = brokers
        await targets.make(admin, target, asked)

    for made in await admin.each([t for t in there if t.is_new], make):
        if isinstance(made, AdminError):
            raise made


async def _finish(admin: Admin, there: Sequence[targets.TargetTopic]) -> list[str]:
    """Give the topics of ours their configs. Returns what the cluster refuses."""

    async def finish(target: targets.TargetTopic) -> list[str]:
        return await targets.finish(admin, target)

    refused: list[str] = []
    for found in await admin.each([t for t in there if t.is_ours], finish):
        if isinstance(found, AdminError):
            raise found
        refused += found
    return refused


def _parts(folder: BackupFolder, there: Sequence[targets.TargetTopic], wanted: Wanted) -> list[_Part]:
    return [
        _Part(
            replay=Replay(folder, target.source.name, p, wanted.until_ms),
            target=Target(remote=target.name, partition=p.number),
            offsets=Offsets(target.starts[p.number]),
            had=target.ends[p.number] - target.starts[p.number],
        )
        for target in there
        for p in target.source.partitions
    ]


async def _send(cluster: Cluster, parts: Sequence[_Part], progress: Progress) -> None:
    sender = RestoreSender(cluster, [part.target for part in parts])
    progress.begin("restore", sum(c.records for part in parts for c in part.replay.partition.chunks))
    waiting = iter(parts)

    async def work() -> None:
        for part in waiting:
            await _write(part, sender, progress)

    await sending(sender, [work() for _ in range(AT_A_TIME)])


async def _write(part: _Part, sender: RestoreSender, progress: Progress) -> None:
    """Send a partition's batches, behind those that the target has."""
    had = part.had
    async for batches in part.replay.read():
        for batch in batches:
            rest = batch
            if had:
                known = min(had, batch.count)
                part.offsets.add(_first_runs(batch, known))
                had -= known
                if known == batch.count:
                    progress.advance(known, 0)
                    continue
                rest = without_first(batch, known)
            rest.base = part.offsets.next
            part.offsets.add(rest.runs)
            part.target.send(rest)
            sender.wake.set()
            await part.target.wait(HELD_BYTES)
            progress.advance(batch.count, len(rest.data))
    if had:
        raise BackupError(f"{part.target} holds {had} records more than the backup has for it")
    await part.target.wait(0)


def _first_runs(batch: Batch, count: int) -> list[tuple[int, int]]:
    """Return the rows of a batch's first records."""
    offsets = [o for first, n in batch.runs for o in range(first, first + n)][:count]
    return list(runs_of(offsets))


async def _check_places(cluster: Cluster, parts: Sequence[_Part]) -> None:
    """Raise BackupError where the last record that a partition has is not the backup's record of that place."""
    for part in parts:
        if not part.had:
            continue
        place = part.offsets.next + part.had - 1
        found = await record_at(cluster, TopicPartition(part.target.remote, part.target.partition), place)
        if not is_same(found, await _record(part.replay, part.had - 1)):
            raise BackupError(
                f"{part.target} is not what a restore of this backup left: its record at offset {place} is another one"
            )


async def _record(replay: Replay, index: int) -> Record | None:
    """Return the record of a partition that has this index; None where there are fewer."""
    async with aclosing(replay.read()) as reading:
        async for batches in reading:
            for batch in batches:
                if index < batch.count:
                    return decode_records(batch.data)[index]
                index -= batch.count
    return None


async def _rules(admin: Admin, state: State, parts: frozenset[str], outcome: Outcome) -> None:
    if ACLS in parts and state.acls:
        refused = await applying.restore_acls(admin, state.acls)
        outcome.acls = 0 if refused else len(state.acls)
        outcome.refused += [refused] if refused else []
    if QUOTAS in parts and state.quotas:
        refused = await applying.restore_quotas(admin, state.quotas)
        outcome.quotas = 0 if refused else len(state.quotas)
        outcome.refused += [refused] if refused else []
    if ACLS in parts and state.users and (missing := await _users_missing(admin, state)):
        outcome.refused.append(
            f"SCRAM users cannot be restored, because brokers tell no credentials: add {', '.join(missing)} by `klamm user add`"
        )


async def _users_missing(admin: Admin, state: State) -> list[str]:
    """Return the SCRAM users that the cluster does not have, or does not tell. A password may be another one."""
    there = {u.name: u.mechanisms for u in (await rules(admin, lambda _: None)).users or ()}
    return [u.name for u in state.users or () if not u.mechanisms.keys() <= there.get(u.name, {}).keys()]
