"""A move while the source is lost: with what the target and the flow's process know."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from klamm.mirror import at_rest
from klamm.mirror.moves.common import CommonSteps
from klamm.mirror.moves.ground import Ground, Partition, Refused, as_text, parsed_name
from klamm.mirror.moves.runner import Begin, Found, Runner, Told, UndoBegin
from klamm.mirror.status import status_of
from klamm_kafka.client import BrokerError, ClientError
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.move import group_offsets
from klamm_mirror.move.group_offsets import GroupPlace
from klamm_mirror.move.loss import Heard, losses
from klamm_mirror.move.steps import Kind, Move, Step
from klamm_mirror.offsets.mapping import Translated
from klamm_mirror.offsets.segment_topic import SegmentReader
from klamm_mirror.raw import whole_batches
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.formats import Checkpoint
from klamm_mirror.verify.groups import read_checkpoints

ANSWER_S: Final = 5.0


class Failover(CommonSteps):
    """The steps of a move away from a lost source."""

    kind = Kind.FAILOVER
    lost = True

    def runner(self, told: Told) -> Runner:
        work = {
            Step.CHECK: self.check, Step.HOLD: self.hold, Step.LOSS: self.loss,
            Step.GROUPS: self.groups, Step.PROMOTE: self.promote, Step.TELL: self.tell,
        }  # fmt: skip
        undo = {Step.HOLD: self.undo_hold, Step.GROUPS: self.undo_groups, Step.PROMOTE: self.undo_promote}
        return Runner(self.ground.journal(), work, undo, self._no_ends, told)

    async def _no_ends(self) -> dict[str, int]:
        raise AssertionError("no step of a failover asks for the source's ends")

    # ---- check

    async def check(self, move: Move, begin: Begin) -> Found:
        """Makes sure that the source is lost, and asks the flow's process what it heard last. Raises Refused."""
        ground = self.ground
        if not ground.options.force and await _answers(ground):
            undo = "--undo ends this failover, and " if move.notes else ""
            raise Refused(
                f"{ground.flow.source} answers at {ground.bootstrap(ground.flow.source)}: {undo}klamm mirror cutover "
                f"{ground.path} '{ground.flow.name}' loses nothing; --force moves with what is copied"
            )
        positions = await ground.positions()
        if not positions:
            raise Refused(f"{ground.flow.name} has copied nothing to {ground.flow.target} yet")
        return with_held(await self._heard(), move)

    async def _heard(self) -> dict[str, Any]:
        ground = self.ground
        [status] = (await status_of(ground.path, [ground.flow]))["flows"]
        partitions = await ground.partitions()
        heard = {
            (p["topic"], p["partition"]): [
                None if p["lag"] is None else p["offset"] + p["lag"],
                p["lag_seconds"],
            ]
            for p in status["partitions"]
        }
        return {
            "topics": len({t for t, _ in partitions}),
            "partitions": len(partitions),
            "state": str(status["state"]),
            "heard": as_text(heard),
            "checkpoint_age_seconds": status["checkpoint_age_seconds"],
        }

    # ---- hold

    async def hold(self, move: Move, begin: Begin) -> Found:
        """Stops the flow until a decision, so that nothing is copied by itself when the source is back."""
        seat, noted = self.ground.seat, Step.HOLD in move.notes
        before = move.found(Step.HOLD) if noted else {"connectors": await at_rest.states(seat)}
        await begin(before)
        await at_rest.hold(seat)
        return {**before, "held": True}

    async def undo_hold(self, move: Move, found: Found, begin: UndoBegin) -> None:
        """Lets the flow go on as it was."""
        await begin()
        await at_rest.release(self.ground.seat, found.get("connectors"))

    # ---- loss

    async def loss(self, move: Move, begin: Begin) -> Found:
        """Returns what was not copied, by partition."""
        return await self._loss(move.found(Step.CHECK))

    async def _loss(self, checked: Found) -> Found:
        ground = self.ground
        done, lost, positions = await ground.copied(), await ground.other_logs(), await ground.positions()
        copied = {p: done.get(p, 0) for p in await ground.partitions()}
        heard = {
            parsed_name(n): Heard(end=end, seconds=s) for n, (end, s) in checked.get("heard", {}).items()
        }
        for p in lost:  # the source had these records, at least
            said = heard.get(p, Heard(end=None, seconds=None))
            heard[p] = replace(said, end=said.end if said.end is not None else positions[p].next_offset)
        newest = {p: at for p in copied if (at := await self._newest(p)) is not None}
        return {"partitions": [each.as_json() for each in losses(copied, heard, newest)]}

    async def _newest(self, partition: Partition) -> int | None:
        """Returns the timestamp of the last batch that the copy has."""
        target, topic = self.ground.target, self.ground.topics.remote(partition[0])
        try:
            end = await internal_topics.offset_of(target, topic, -1, partition=partition[1])
            if not end:
                return None
            data = await internal_topics.fetch(target, topic, end - 1, partition=partition[1])
        except BrokerError as e:
            if e.code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE}:
                return None
            raise
        return max((h.max_timestamp for _, h in whole_batches(data.records or b"")), default=None)

    # ---- groups

    async def places(self, move: Move | None) -> list[GroupPlace]:
        """Returns where each group goes on, by its last checkpoint and the mapping at the target."""
        ground = self.ground
        policy, alias = ground.policy, ground.flow.source
        segments = SegmentReader(ground.target, policy.offset_segments_topic(alias))
        await segments.catch_up()
        names = {ground.topics.remote(t): t for t, _ in await ground.partitions()}
        # Where both clusters write one topic, the mapping back counts, too, which is lost: the checkpoint knew both.
        shared = policy.hides_origin and ground.opposite() is not None

        def translate(c: Checkpoint) -> Translated:
            topic = None if shared else names.get(c.topic)
            exact = (
                None if topic is None else segments.store.translate((topic, c.partition), c.upstream_offset)
            )
            return Translated(c.downstream_offset if exact is None else exact, exact=exact is not None)

        found = await read_checkpoints(ground.target, policy.checkpoints_topic(alias))
        wanted = [c for c in found if ground.wants_group(c.group)]
        return await group_offsets.from_checkpoints(wanted, ground.target, names, translate)

    async def preview(self) -> list[tuple[Step, Found]]:
        """Returns what each step finds or would do now. Changes nothing."""

        async def nothing(_: Found) -> None:
            return None

        checked = await self.check(_NO_MOVE, nothing)
        return [
            (Step.CHECK, checked),
            (Step.HOLD, {}),
            (Step.LOSS, await self._loss(checked)),
            (Step.GROUPS, {"places": [p.as_json() for p in await self.places(None)]}),
            (Step.PROMOTE, await self.would_promote()),
            (Step.TELL, await self.where()),
        ]


def with_held(checked: Found, move: Move) -> Found:
    """Returns what the flow's process has heard, with what was noted before the flow was held: it hears nothing since. Pure."""
    if not move.found(Step.HOLD).get("held"):
        return checked
    known = {name: [end, seconds] for name, (end, seconds) in checked["heard"].items() if end is not None}
    return {**checked, "heard": {**move.found(Step.CHECK).get("heard", {}), **known}}


_NO_MOVE: Final = Move(kind=Kind.FAILOVER, flow="", identity="", began_ms=0)


async def _answers(ground: Ground) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S):
            await ground.source.refresh([])
    except (ClientError, TimeoutError):
        return False
    return True
