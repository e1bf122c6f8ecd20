"""A planned move: both clusters are there, and nothing is lost."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any

from klamm.mirror import at_rest, flow_hold
from klamm.mirror.at_rest import Seat
from klamm.mirror.flow_props import resolved
from klamm.mirror.held_by import holding, why_held
from klamm.mirror.moves.common import CommonSteps, missing
from klamm.mirror.moves.ground import Ground, Refused, as_text, listed
from klamm.mirror.moves.runner import Begin, Found, Runner, Told
from klamm.mirror.places import place_of
from klamm.mirror.shapes import FlowState
from klamm.mirror.status import status_of
from klamm_mirror.flow_plan import FlowPlan, Kind
from klamm_mirror.move import steps
from klamm_mirror.move.steps import Move, Step, promoted
from klamm_mirror.settings.filters import patterns
from klamm_mirror.settings.mm2_config import Flow
from klamm_mirror.source.config import PAUSED, SEGMENTS


class Cutover(CommonSteps):
    """The steps of a planned move along a flow."""

    kind = steps.Kind.CUTOVER

    def runner(self, told: Told) -> Runner:
        work = {
            Step.CHECK: self.check, Step.QUIET: self.quiet, Step.DRAIN: self.drain,
            Step.VERIFY: self.verify, Step.GROUPS: self.groups, Step.PROMOTE: self.promote, Step.TELL: self.tell,
        }  # fmt: skip
        undo = {Step.GROUPS: self.undo_groups, Step.PROMOTE: self.undo_promote}
        elsewhere = self.ground.journal(at_source=True)
        return Runner(self.ground.journal(), work, undo, self._ends, told, elsewhere=elsewhere)

    async def _ends(self) -> dict[str, int]:
        return as_text(await self.ground.ends())

    async def check(self, move: Move, begin: Begin) -> Found:
        """Looks whether the flow copies everything, as it should be there. Raises Refused."""
        await self._refuse_way_back()
        return await check_flow(self.ground, self)

    async def _refuse_way_back(self) -> None:
        """Raises Refused while a failover holds the flow back, of which nothing is promoted: FAILBACK shows what was not copied."""
        ground, back = self.ground, self.ground.opposite()
        if back is None:
            return
        failover = await self._failover_back(back)
        if failover is not None and not promoted(failover):
            why = why_held(failover, str(ground.path))
            raise Refused(f"{back.name} did not copy all that {ground.flow.target} has: {why}")

    async def _failover_back(self, back: Flow) -> Move | None:
        """Returns the failover that holds the flow back."""
        ground = self.ground
        states = await flow_hold.target_states(ground.source, back)
        return await holding(ground.journal(at_source=True), back.name, states)

    async def tell(self, move: Move, begin: Begin) -> Found:
        """Returns what to start, and where. Lets the flow back go on: copies were promoted at both sides, and the hold of the
        failover before has no use any more.
        """
        ground, back = self.ground, self.ground.opposite()
        released = None
        if back is not None and promoted(move):
            failover = await self._failover_back(back)
            if failover is not None and promoted(failover):
                seat = Seat(ground.mirror, back, place_of(ground.path, back.name))
                await at_rest.release(seat, failover.found(Step.HOLD).get("connectors"))
                released = back.name
        return {**await super().tell(move, begin), "released": released}

    async def preview(self) -> list[tuple[Step, Found]]:
        ground = self.ground
        await self._refuse_way_back()
        checked = await check_flow(ground, self)
        writing, reading = await self.noise()
        left = missing(await ground.ends(), await ground.copied())
        places = [p.as_json() for p in await self.places(None)]
        return [
            (Step.CHECK, checked),
            (Step.QUIET, {"topics_written_to": writing, "groups_with_members": reading}),
            (Step.DRAIN, {"records_to_copy": sum(left.values())}),
            (Step.VERIFY, {"why_not": self.why_no_records()}),
            (Step.GROUPS, {"places": places}),
            (Step.PROMOTE, await self.would_promote()),
            (Step.TELL, await self.where()),
        ]


async def check_flow(ground: Ground, work: CommonSteps) -> dict[str, Any]:
    """Returns what the flow has to do with; raises Refused where it cannot copy everything."""
    await _refuse_held(ground)
    await ground.refuse_stopped()
    partitions = await ground.partitions()
    if paused := paused_of(ground.props.get(PAUSED, ""), {t for t, _ in partitions}):
        raise Refused(
            f"{listed(paused)}: paused. klamm mirror resume {ground.path} '{ground.flow.name}' "
            f"{' '.join(map(shlex.quote, paused))} goes on"
        )
    warnings = await _warnings(ground)
    return {
        "topics": len({t for t, _ in partitions}),
        "partitions": len(partitions),
        "groups_with_members": await work.reading(),
        "warnings": warnings,
    }


def paused_of(setting: str, topics: Collection[str]) -> list[str]:
    """Returns the items of `mirror.topics.paused` that match one of the topics. Pure."""
    items = [item.strip() for item in setting.split(",")]
    return [item for item in items if any(map(patterns(PAUSED, [item]).fullmatch, topics))]


async def _refuse_held(ground: Ground) -> None:
    """Raises Refused while the flow is stopped: it copies nothing."""
    states = await flow_hold.target_states(ground.target, ground.flow)
    if not states.held:
        return
    failover = await holding(ground.journal(), ground.flow.name, states)
    why = None if failover is None else why_held(failover, str(ground.path))
    raise Refused(f"{ground.flow.name} is stopped: {why or 'resume its connectors over REST'}")


async def _warnings(ground: Ground) -> list[str]:
    changes = await FlowPlan(ground.flow, resolved(ground.flow)).changes()
    lacking = [c.name for c in changes if c.kind in {Kind.TOPIC, Kind.PARTITIONS}]
    if lacking:
        raise Refused(
            f"{ground.flow.target} lacks {listed(lacking)}, or partitions of it: the mirror makes them within "
            f"refresh.topics.interval.seconds, if it runs"
        )
    found = [
        f"{c.name}: {c.setting} is {c.old}, and {c.new} at the source"
        for c in changes
        if c.kind is Kind.CONFIG
    ]
    found += [f"{c.name}: an ACL lacks: {c.setting} {c.new}" for c in changes if c.kind is Kind.ACL]
    [status] = (await status_of(ground.path, [ground.flow]))["flows"]
    if status["state"] == FlowState.NOT_RUNNING:
        found.append(f"{ground.flow.name} is not run on this machine: it must run somewhere to copy the rest")
    if ground.props.get(SEGMENTS, "true").strip().lower() == "false":
        found.append(f"{SEGMENTS}=false: groups may read records again")
    return found
