"""The way back to a cluster that was lost: shows what each side has alone, decides about it, and moves back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from klamm.mirror import at_rest, flow_hold
from klamm.mirror.moves.common import CommonSteps, missing
from klamm.mirror.moves.cutover import check_flow
from klamm.mirror.moves.ground import (
    Ground,
    Options,
    Partition,
    Refused,
    Said,
    as_text,
    listed,
    named,
    opened,
    parsed_name,
)  # fmt: skip
from klamm.mirror.moves.runner import Begin, Found, Runner, Told, UndoBegin
from klamm_base.errors import ConfigError
from klamm_base.files import replacing, write_all
from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.move.diverged import Side, Tail, as_line, glance, own_records
from klamm_mirror.move.group_offsets import GroupPlace
from klamm_mirror.move.steps import EXPORTED, Kind, Move, Phase, Step
from klamm_mirror.provenance.marks import MarkReader
from klamm_mirror.settings.keep_offsets import PROMOTED
from klamm_mirror.source.config import PROVENANCE
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.mirror_states import states_of

COPY, EXPORT = "copy", "export"
LINES: Final = 1000
"""Lines of an export that are written at a time."""


class Failback(CommonSteps):
    """The steps of a move from B back to A, along B->A. `forward` is the ground of A->B."""

    kind = Kind.FAILBACK

    def __init__(self, ground: Ground, forward: Ground) -> None:
        super().__init__(ground)
        self.forward = forward

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, name: str, overrides: list[str] | None, options: Options, said: Said
    ) -> AsyncIterator[Self]:
        there, _, back = name.partition("->")
        async with opened(path, name, overrides, options, said) as ground:
            if ground.opposite() is None:
                raise ConfigError(
                    f"{name} leads back only where {back}->{there} is enabled: which was the way there"
                )
            async with opened(path, f"{back}->{there}", overrides, options, said) as forward:
                yield cls(ground, forward)

    def runner(self, told: Told) -> Runner:
        work = {
            Step.CHECK: self.check, Step.DIVERGED: self.diverged, Step.SETTLE: self.settle, Step.QUIET: self.quiet,
            Step.DRAIN: self.drain, Step.VERIFY: self.verify, Step.GROUPS: self.groups, Step.TELL: self.tell,
        }  # fmt: skip
        journal = self.ground.journal(at_source=True)
        undo = {Step.GROUPS: self.undo_groups, Step.SETTLE: self.undo_settle}
        return Runner(journal, work, undo, self._ends, told)

    async def _ends(self) -> dict[str, int]:
        return as_text(await self.ground.ends())

    async def check(self, move: Move, begin: Begin) -> Found:
        """Looks whether the flow back copies everything, and is safe. Raises Refused."""
        await self._refuse(move)
        return await check_flow(self.ground, self)

    async def _refuse(self, move: Move | None) -> None:
        """Raises Refused where nobody can tell what A has alone."""
        self._refuse_unmarked()
        await self._refuse_promoted()
        if move is None or Step.SETTLE not in move.notes:
            await self._refuse_running()

    async def _refuse_promoted(self) -> None:
        forward = self.forward
        if not forward.keeps_offsets:
            return
        remotes = sorted({forward.topics.remote(topic) for topic, _ in await forward.partitions()})
        states = await states_of(forward.target, remotes)
        if promoted := [name for name in remotes if states.get(name) == PROMOTED]:
            a, b = forward.flow.source, forward.flow.target
            raise Refused(
                f"{listed(promoted)}: promoted at {b}, and {forward.flow.name} copies nothing to it any more. What {a} has "
                f"alone stays there: save what you need, delete the topic at {a}, let {b}->{a} copy it, and cut over"
            )

    async def _refuse_running(self) -> None:
        """Raises Refused while A->B copies what A has: nothing is A's alone then, and no place may be set."""
        forward, ground = self.forward, self.ground
        if not (await flow_hold.target_states(forward.target, forward.flow)).held:
            raise Refused(
                f"{forward.flow.name} is not held, and copies what {forward.flow.source} has by itself: klamm mirror "
                f"cutover {ground.path} '{ground.flow.name}' moves back"
            )

    def _refuse_unmarked(self) -> None:
        hides = self.ground.policy.hides_origin
        if hides and self.ground.props.get(PROVENANCE, "true").strip().lower() == "false":
            raise Refused(
                f"{PROVENANCE}=false: nothing would tell which records of {self.ground.flow.source} came from "
                f"{self.ground.flow.target}, and they would come back as new ones"
            )

    async def agree(self, move: Move) -> None:
        await super().agree(move)
        forward = self.forward
        if move.is_done(Step.SETTLE) and (await flow_hold.target_states(forward.target, forward.flow)).held:
            raise Refused(
                f"{forward.flow.name} was held again since this move let it go on, by another failover: --restart begins "
                "anew, with a look at what each side has now"
            )

    # ---- diverged

    async def diverged(self, move: Move, begin: Begin) -> Found:
        """Returns the records that each side has alone; those that were shown, where it is begun what was decided of them."""
        noted = move.found(Step.DIVERGED)
        if Step.SETTLE in move.notes:
            return noted
        return {**await self._diverged(), EXPORTED: noted.get(EXPORTED, [])}

    async def _diverged(self) -> Found:
        here, there = await self._sides()
        ours = await self._tails(there)
        theirs = await self._own_since(here)
        return {
            "at": self.ground.flow.target,
            "diverged": [t.as_json() for t in ours if t.records or t.lost],
            "own": [t.as_json() for t in theirs if t.records],
            "ends": as_text({(t.topic, t.partition): t.end for t in ours}),
        }

    async def _sides(self) -> tuple[Side, Side]:
        """Returns B and A as sides that are read."""
        ground = self.ground

        def side(cluster: Cluster, other: str | None) -> Side:
            return Side(cluster, MarkReader(cluster) if ground.policy.hides_origin else None, other)

        ids = [(await c.refresh([])).cluster_id for c in (ground.source, ground.target)]
        return side(ground.source, ids[1]), side(ground.target, ids[0])

    async def _tails(self, there: Side) -> list[Tail]:
        """Returns what A has behind the last record that was copied to B."""
        forward, show = self.forward, self.ground.options.show
        ends, done = await self._settled_ends(there), await forward.copied()
        positions = await forward.positions()
        starts = await internal_topics.offsets_of(there.cluster, list(ends), EARLIEST)
        found = []
        for number, (partition, end) in enumerate(ends.items()):
            copied = done.get(partition, 0)
            start = max(copied, starts.get(partition, 0))
            lost = max(copied - end, 0)
            if partition not in done and partition in positions:  # A has another log by now
                lost = positions[partition].next_offset or 0
            tail = Tail(topic=partition[0], partition=partition[1], start=start, end=end, lost=lost)
            self.ground.said(f"reading the end of {named(partition)}", number / len(ends))
            async for record in own_records(there, partition, start, end):
                tail.add(record, show)
            found.append(tail)
        return found

    async def _settled_ends(self, there: Side) -> dict[Partition, int]:
        """Returns the ends of A's logs when all transactions before them have ended. Raises NotYet."""
        self.ground.begin_wait()
        ends = await self.forward.ends()
        while True:
            settled = await internal_topics.offsets_of(there.cluster, list(ends), LATEST, committed=True)
            open_ = [named(p) for p, end in ends.items() if settled.get(p, 0) < end]
            if not open_:
                return ends
            await self.ground.wait(f"{self.forward.flow.source} has open transactions in {listed(open_)}")

    async def _own_since(self, here: Side) -> list[Tail]:
        """Returns what B got since the failover, counted by offsets, if the journal knows when that was."""
        then: Mapping[str, int] = (await self._by_failover(Step.GROUPS)).get("target_ends", {})
        ends = await self.ground.ends()
        found = []
        for name, start in then.items():
            partition = parsed_name(name)
            if (end := ends.get(partition, 0)) > start:
                found.append(await glance(here, partition, (start, end), self.ground.options.show))
        return found

    async def _by_failover(self, step: Step) -> Found:
        """Returns what a step of the failover has found, as the journal has it."""
        journal = self.ground.journal(at_source=True)
        await journal.catch_up()
        failover = journal.move(Kind.FAILOVER, self.forward.flow.name)
        return {} if failover is None else failover.found(step)

    # ---- settle

    async def settle(self, move: Move, begin: Begin) -> Found:
        """Does with A's records what was decided, and lets A->B go on. Raises Refused without a decision."""
        noted = move.found(Step.DIVERGED)
        tails = noted["diverged"]
        if Step.SETTLE not in move.notes:
            await self._refuse_running()
        await self.agree(move)
        decision = move.found(Step.SETTLE).get("decision") or self.ground.options.diverged
        alone = [t for t in tails if t["records"]]
        if alone and decision is None:
            count = sum(t["records"] for t in alone)
            raise Refused(
                f"{self.ground.flow.target} has {count} records that {self.ground.flow.source} lacks, in "
                f"{listed([named((t['topic'], t['partition'])) for t in alone])}: give --diverged=copy or --diverged=export"
            )
        decision = decision if alone else None
        file = self._file(move) if decision == EXPORT else None
        exported = None if file is None else str(file)
        passed = [*noted.get(EXPORTED, []), *(as_range(t) for t in alone if decision == EXPORT)]
        begun = {"decision": decision, "file": exported, EXPORTED: passed}
        await begin(begun)
        if file is not None:
            if not _is_there(file):
                await self._export(file, alone)
            positions = await self.forward.positions()
            if places := passed_over(alone, positions):
                await at_rest.set_places(self.forward.seat, places, positions)
        before = (await self._by_failover(Step.HOLD)).get("connectors")
        await at_rest.release(self.forward.seat, before)
        if decision == COPY:
            await self._copied({parsed_name(n): end for n, end in noted["ends"].items()})
        return {**begun, "records": sum(t["records"] for t in alone)}

    def _file(self, move: Move) -> Path:
        """Returns the file of the export. One that is there is that of this move, or refused."""
        noted, asked = move.found(Step.SETTLE).get("file"), self.ground.options.export
        if asked is not None:
            path = asked.resolve()
        elif noted is not None:
            path = Path(noted)
        else:
            raise Refused("--diverged=export needs --export FILE")
        if _is_there(path) and str(path) != noted:
            raise Refused(f"--export {path}: there is such a file; name another")
        return path

    async def _export(self, path: Path, tails: list[Mapping[str, int]]) -> None:
        """Writes A's records to the file, which is whole and on the disk when it has this name."""
        _, there = await self._sides()
        with replacing(path) as fd:
            for t in tails:
                partition, lines = (str(t["topic"]), t["partition"]), list[bytes]()
                async for record in own_records(there, partition, t["start"], t["end"]):
                    lines.append(as_line(*partition, record))
                    if len(lines) >= LINES:
                        write_all(fd, b"".join(lines))
                        lines = []
                write_all(fd, b"".join(lines))

    async def _copied(self, ends: dict[Partition, int]) -> None:
        """Waits until A->B has copied up to these ends."""
        self.ground.begin_wait()
        peak = 0
        while left := sum(missing(ends, await self.forward.copied()).values()):
            await self.forward.refuse_stopped()
            peak = max(peak, left)
            await self.ground.wait(f"{left:,} records to copy to {self.forward.flow.target}", 1 - left / peak)

    async def undo_settle(self, move: Move, found: Found, begin: UndoBegin) -> None:
        """Raises Refused: what was copied or passed over stays so."""
        raise Refused(
            f"settle is not undone: {self.forward.flow.name} goes on as decided. Groups have the offsets at "
            f"{self.ground.flow.target} that they had; the command without --undo sets them again"
        )

    # ---- groups

    async def places(self, move: Move | None) -> list[GroupPlace]:
        """Returns where each group goes on at A: behind records that were exported."""
        translator = self.ground.translator()
        if move is not None:
            translator.left_out = by_partition(move.found(Step.SETTLE).get(EXPORTED, []))
        return await self.places_by(translator)

    # ---- tell

    async def where(self) -> Found:
        """Returns the cluster to go to, and the topics' names there, with those that nobody wrote at B, which B->A does not
        copy: their applications went to B, too.
        """
        found = await super().where()
        there = {t["topic"] for t in found["topics"]}
        ours = {topic for topic, _ in await self.forward.partitions()} - there
        more = [{"topic": topic, "target_topic": topic} for topic in ours]
        return {**found, "topics": sorted([*found["topics"], *more], key=lambda t: t["topic"])}

    # ---- dry run

    async def _unfinished(self) -> Move | None:
        journal = self.ground.journal(at_source=True)
        await journal.catch_up()
        move = journal.move(self.kind, self.ground.flow.name)
        return move if move is not None and move.phase is Phase.RUNNING else None

    async def preview(self) -> list[tuple[Step, Found]]:
        await self._refuse(await self._unfinished())
        checked, found = await check_flow(self.ground, self), await self._diverged()
        writing, reading = await self.noise()
        left = missing(await self.ground.ends(), await self.ground.copied())
        alone = sum(t["records"] for t in found["diverged"])
        return [
            (Step.CHECK, checked),
            (Step.DIVERGED, found),
            (Step.SETTLE, {"decision": self.ground.options.diverged, "records": alone, "file": None}),
            (Step.QUIET, {"topics_written_to": writing, "groups_with_members": reading}),
            (Step.DRAIN, {"records_to_copy": sum(left.values())}),
            (Step.VERIFY, {"why_not": self.why_no_records()}),
            (Step.GROUPS, {"places": [p.as_json() for p in await self.places(None)]}),
            (Step.TELL, await self.where()),
        ]


def _is_there(path: Path) -> bool:
    return path.exists()


def as_range(tail: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the place of a tail's records."""
    return {key: tail[key] for key in ("topic", "partition", "start", "end")}


def by_partition(ranges: Iterable[Mapping[str, Any]]) -> dict[Partition, list[tuple[int, int]]]:
    """Returns ranges of offsets, the first first, by partition."""
    found: dict[Partition, list[tuple[int, int]]] = {}
    for r in ranges:
        found.setdefault((r["topic"], r["partition"]), []).append((r["start"], r["end"]))
    return {partition: sorted(each) for partition, each in found.items()}


def passed_over(
    tails: list[Mapping[str, Any]], positions: Mapping[Partition, Position]
) -> dict[Partition, int]:
    """Returns where a flow goes on behind exported records; leaves out partitions in which it is there or farther. Pure."""
    found = {}
    for t in tails:
        partition, end = (t["topic"], t["partition"]), int(t["end"])
        at = positions.get(partition)
        if at is None or at.offset is None or at.offset + 1 < end:
            found[partition] = end
    return found
