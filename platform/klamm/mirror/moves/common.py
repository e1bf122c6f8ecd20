"""The steps that a planned move and a way back share: quiet, drain, verify, groups, tell."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from klamm.mirror.moves.ground import (
    Ground,
    NotYet,
    Options,
    Partition,
    Refused,
    Said,
    as_text,
    listed,
    named,
    opened,
    parsed_name,
)
from klamm.mirror.moves.own import partitions_with_own
from klamm.mirror.moves.runner import Begin, Found, Runner, Told, UndoBegin
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.checkpoint.translator import GroupTranslator
from klamm_mirror.move import group_offsets
from klamm_mirror.move.group_offsets import GroupPlace, Verdict
from klamm_mirror.move.steps import ENDS, Kind, Move, Step, promoted
from klamm_mirror.promote import MirrorTopic, ends_of, promote, survey, written_since
from klamm_mirror.settings.keep_offsets import MIRROR
from klamm_mirror.settings.mm2_keys import changing_keys
from klamm_mirror.topics import internal_topics
from klamm_mirror.verify.flow import FlowComparison
from klamm_mirror.verify.state import State, default_path

MARK: Final = frozenset({"target_ends", "copied"})
"""The part of the note of GROUPS that the first time notes before groups are set, and later times keep."""


class CommonSteps(ABC):
    """See the module."""

    kind: ClassVar[Kind]
    lost: ClassVar[bool] = False
    """True where the source is lost."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, name: str, overrides: list[str] | None, options: Options, said: Said
    ) -> AsyncIterator[Self]:
        """Gives the steps of a move along a flow. Raises ConfigError."""
        async with opened(path, name, overrides, options, said, lost=cls.lost) as ground:
            yield cls(ground)

    @abstractmethod
    def runner(self, told: Told) -> Runner:
        """Returns the runner of this move."""

    @abstractmethod
    async def preview(self) -> list[tuple[Step, Found]]:
        """Returns what each step finds or would do now. Changes nothing."""

    async def agree(self, move: Move) -> None:
        """Raises Refused where a move cannot go on with this command."""
        noted, wanted = move.found(Step.SETTLE).get("decision"), self.ground.options.diverged
        if noted is not None and wanted not in {None, noted}:
            raise Refused(f"--diverged={wanted}: --diverged={noted} is decided, and is not undone")

    # ---- quiet

    async def quiet(self, move: Move, begin: Begin) -> Found:
        """Waits until nobody writes at the source, and no group reads there."""
        ground = self.ground
        ground.begin_wait()
        before, since = await ground.ends(), time.monotonic()
        while True:
            now = await ground.ends()
            writing = sorted({t for (t, p), end in now.items() if before.get((t, p)) != end})
            if writing:
                before, since = now, time.monotonic()
            reading = [] if ground.options.groups_may_run else await self.reading()
            rested = time.monotonic() - since
            if rested >= ground.options.quiet_s and not reading:
                return {ENDS: as_text(now), "groups_with_members": await self.reading()}
            await ground.wait(_noise(ground.flow.source, writing, reading, rested, ground.options.quiet_s))

    async def reading(self) -> list[str]:
        """Returns the groups with members at the source."""
        return await group_offsets.with_members(self.ground.source, self.ground.wants_group)

    async def noise(self) -> tuple[list[str], list[str]]:
        """Returns topics that somebody writes to at the source, and groups that read there, as of a short look."""
        before = await self.ground.ends()
        await asyncio.sleep(self.ground.options.quiet_s)
        now = await self.ground.ends()
        return sorted({t for (t, p), end in now.items() if before.get((t, p)) != end}), await self.reading()

    # ---- drain

    async def drain(self, move: Move, begin: Begin) -> Found:
        """Waits until the flow has copied everything that it still copies."""
        ground, over = self.ground, set(promoted(move))
        ground.begin_wait()
        peak = 0
        while True:
            ends, copied = await ground.ends(), await ground.copied()
            lacking = missing(ends, copied)
            left = {p: n for p, n in lacking.items() if n and ground.topics.remote(p[0]) not in over}
            if not left:
                return {ENDS: as_text(ends)}
            await ground.refuse_stopped()
            total = sum(left.values())
            peak = max(peak, total)
            worst = max(left, key=lambda p: left[p])
            said = f"{total:,} records to copy, most of them in {named(worst)}"
            if open_ := await self._at_open_transactions(left, copied):
                said += (
                    f". {ground.flow.source} has open transactions in {listed(open_)}, which must end first"
                )
            await ground.wait(said, 1 - total / peak)

    async def _at_open_transactions(
        self, left: Iterable[Partition], copied: Mapping[Partition, int]
    ) -> list[str]:
        """Returns the partitions that are copied up to an open transaction, for whose end the flow waits."""
        stable = await internal_topics.offsets_of(self.ground.source, list(left), LATEST, committed=True)
        return [named(p) for p, end in stable.items() if copied.get(p, 0) == end]

    # ---- verify

    async def verify(self, move: Move, begin: Begin) -> Found:
        """Compares what was copied with the source."""
        ground = self.ground
        ends = await ground.ends()
        found: dict[str, Any] = {ENDS: as_text(ends)}
        why = self.why_no_records()
        if why is None:
            found |= await self._compare(move, sorted({t for t, _ in ends}), found[ENDS])
        return {**found, "records_compared": why is None, "why_not": why}

    def why_no_records(self) -> str | None:
        """Returns why records are not compared; None: they are."""
        ground = self.ground
        if not ground.options.records:
            return "--verify ends"
        if changed := changing_keys(ground.props):
            return f"the flow has {' and '.join(changed)}"
        if ground.policy.hides_origin and ground.opposite() is not None:
            return "both clusters write to the same names"
        return None

    async def _compare(self, move: Move, topics: list[str], ends: Mapping[str, int]) -> Found:
        ground = self.ground
        if not topics:
            return {"records": 0}
        identity = {"file": str(ground.path.resolve()), "move": move.identity, "topics": topics, ENDS: ends}
        state = State(default_path(identity), identity)
        state.load()
        outcome = await FlowComparison(ground.props, topics, state, patience_s=10.0, said=ground.said).run()
        state.remove()
        same = sum(o.tally.same for t in outcome.topics for o in t.partitions.values())
        if outcome.differs:
            topics = [t.topic for t in outcome.topics if t.differs]
            said = f"{listed(topics)}: the copy differs" if topics else "checkpoints of groups skip records"
            raise Refused(
                f"{said}. See klamm mirror verify {ground.path} '{ground.flow.name}'; --verify ends goes on without"
            )
        return {"records": same}

    # ---- groups

    async def places(self, move: Move | None) -> list[GroupPlace]:
        """Returns where each group goes on at the target. `move`: None in a dry run."""
        return await self.places_by(self.ground.translator())

    async def places_by(self, translator: GroupTranslator) -> list[GroupPlace]:
        """Returns where each group goes on, by a mapping."""
        ground = self.ground
        return await group_offsets.at_source(ground.source, ground.target, translator, ground.wants_group)

    async def groups(self, move: Move, begin: Begin) -> Found:
        """Sets the groups' offsets at the target. Raises NotYet while groups read at the source."""
        ground = self.ground
        if not self.lost and not ground.options.groups_may_run and (reading := await self.reading()):
            raise NotYet(f"groups have members at {ground.flow.source} again: {listed(reading)}")
        places = await self.places(move)
        noted = move.found(Step.GROUPS)
        before = with_former(places, noted.get("before", {}))
        mark = {k: noted[k] for k in MARK} if noted.keys() >= MARK else await self.mark()
        # All of it before the change: a note that the journal cannot take fails while nothing is set.
        found = {"before": before, **mark, "places": [p.as_json() for p in places]}
        await begin(found)
        return {**found, "refused": await group_offsets.set_places(ground.target, places)}

    async def mark(self) -> Found:
        """Returns where the logs end now (`MARK`): an undo sees by it what was written since."""
        ground = self.ground
        return {
            "target_ends": as_text(await ground.target_ends()),
            "copied": as_text(await ground.copied()),
        }

    async def undo_groups(self, move: Move, found: Found, begin: UndoBegin) -> None:
        """Gives groups at the target the offsets back that they had. Raises Refused once the target is in use."""
        ground = self.ground
        await self.refuse_use(move, found)
        before = {
            group: {parsed_name(name): offset for name, offset in each.items()}
            for group, each in found.get("before", {}).items()
        }
        await begin()
        said = await group_offsets.restore(ground.target, before)
        if said:
            raise NotYet("; ".join(said))

    async def refuse_use(self, move: Move, found: Found) -> None:
        """Raises Refused when applications have used the target since the groups' offsets were set."""
        ground, alias = self.ground, self.ground.flow.target
        there = await group_offsets.with_members(ground.target, lambda g: g in found.get("before", {}))
        if there:
            raise Refused(f"groups have members at {alias}: {listed(there)}. Stop them first")
        moved = {(group, name) for group, each in found.get("before", {}).items() for name in each}
        ahead = [p for p in await self.places(move) if p.verdict is Verdict.AHEAD]
        if read := sorted({p.group for p in ahead if (p.group, named((p.remote, p.partition))) in moved}):
            raise Refused(f"groups have read on at {alias}, and would read that again: {listed(read)}")
        if own := await partitions_with_own(ground, found):
            raise Refused(
                f"{alias} has records of its own by now ({listed(own)}): a way back is klamm mirror "
                f"{'failback' if self.lost else 'cutover'} {ground.path} '{alias}->{ground.flow.source}'"
            )

    # ---- promote

    async def promote(self, move: Move, begin: Begin) -> Found:
        """Makes ordinary topics of copies that keep offsets. Raises NotYet while copies lack records, Refused."""
        ground = self.ground
        rest = [t for t in await self._copies() if t.state == MIRROR]
        noted = move.found(Step.PROMOTE)
        if not promoted(move) and (unknown := [t.why for t in rest if t.why is not None]):
            raise NotYet("; ".join(unknown))
        if not promoted(move) and (behind := [t.topic for t in rest if t.lag]):
            raise NotYet(f"somebody writes to {listed(behind)} at {ground.flow.source} again")
        if not rest:
            return {"promoted": noted.get("promoted", []), ENDS: noted.get(ENDS, {})}
        found = {
            "promoted": sorted({*promoted(move), *(t.remote for t in rest)}),
            ENDS: {**noted.get(ENDS, {}), **as_text(ends_of(rest))},
        }
        await begin(found)
        refused = await promote(ground.target, rest)
        if refused:
            raise Refused("; ".join(f"{remote}: {why}" for remote, why in sorted(refused.items())))
        return found

    async def _copies(self) -> list[MirrorTopic]:
        ground = self.ground
        names = {t: ground.topics.remote(t) for t, _ in await ground.partitions()}
        return await survey(None if self.lost else ground.source, ground.target, names)

    async def would_promote(self) -> Found:
        """Returns the topics that would be promoted now."""
        return {"promoted": [t.remote for t in await self._copies() if t.state == MIRROR]}

    async def undo_promote(self, move: Move, found: Found, begin: UndoBegin) -> None:
        """Raises Refused where topics were promoted."""
        if names := list(found["promoted"]):
            raise Refused(f"{listed(names)}: promoted, and no mirror topic any more. This is not undone")

    # ---- tell

    async def tell(self, move: Move, begin: Begin) -> Found:
        """Returns what to start, and where, and how many records of each topic stay at the source: behind what was promoted."""
        ends = {parsed_name(n): end for n, end in move.found(Step.PROMOTE).get(ENDS, {}).items()}
        late = {} if self.lost else await written_since(self.ground.source, ends)
        return {**await self.where(), "late": late}

    async def where(self) -> Found:
        """Returns the cluster to go to, and the topics' names there."""
        ground = self.ground
        partitions = await ground.partitions()
        names = sorted({t for t, _ in partitions})
        return {
            "cluster": ground.flow.target,
            "bootstrap": ground.bootstrap(ground.flow.target),
            "topics": [{"topic": t, "target_topic": ground.topics.remote(t)} for t in names],
        }


def missing(ends: Mapping[Partition, int], copied: Mapping[Partition, int]) -> dict[Partition, int]:
    """Returns how many offsets each partition has that are not copied. Pure."""
    return {partition: max(end - copied.get(partition, 0), 0) for partition, end in ends.items()}


def with_former(
    places: list[GroupPlace], former: Mapping[str, Mapping[str, int | None]]
) -> dict[str, dict[str, int | None]]:
    """Returns the offsets that groups had before this move set any: as first noted, else as they are now. Pure."""
    found = {group: dict(each) for group, each in former.items()}
    for p in places:
        if p.verdict is Verdict.SET:
            found.setdefault(p.group, {}).setdefault(named((p.remote, p.partition)), p.before)
    return found


def _noise(alias: str, writing: list[str], reading: list[str], rested: float, quiet_s: float) -> str:
    parts = []
    if writing:
        parts.append(f"somebody writes to {listed(writing)}")
    elif rested < quiet_s:
        parts.append("looking for writers")
    if reading:
        parts.append(f"groups have members: {listed(reading)}")
    return f"{alias}: {'; '.join(parts)}"
