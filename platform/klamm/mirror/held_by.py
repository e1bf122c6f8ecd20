"""Finds out which move holds a flow, by the journal of moves at the flow's target. Reads nothing while the flow is not held.

A failover's note stays in the journal when the flow goes on. So the failover holds the flow that is stopped,
unless a connector of the flow was started after the note. Later records of the same state say nothing: compaction keeps only the
last one, and a file that changes writes the connectors anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from klamm.mirror.flow_hold import TargetStates
from klamm.mirror.flow_props import source_props
from klamm_base.errors import KlammError
from klamm_mirror.settings.mm2_config import Flow

if TYPE_CHECKING:
    from klamm_mirror.move.journal import Journal
    from klamm_mirror.move.steps import Move

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5


async def follow_holds(flow: Flow, is_held: Callable[[], bool], say: Callable[[str | None], None]) -> None:
    """Says, until it is cancelled, why the flow is held: a sentence; None while no move holds it.

    No error ends it: the flow copies on without this task, and its status would tell an old reason for ever.
    """
    failed: str | None = None
    async with AsyncExitStack() as stack:
        topics: tuple[Journal, TargetStates] | None = None
        while True:
            try:
                if is_held():
                    topics = topics or await _topics(flow, stack)
                    say(await _why(*topics, flow))
                else:
                    say(None)
                failed = None
            except Exception as e:
                known = isinstance(e, KlammError)
                why = f"the journal of moves does not tell which move holds it: {e if known else repr(e)}"
                if why != failed:
                    log.warning("%s: %s", flow.name, why, exc_info=not known)
                failed = why
                say(why)
            await asyncio.sleep(LOOK_S)


async def _topics(flow: Flow, stack: AsyncExitStack) -> tuple[Journal, TargetStates]:
    from klamm_mirror.loop import open_cluster
    from klamm_mirror.move.journal import Journal
    from klamm_mirror.settings.plugins import FlowPlugins
    from klamm_mirror.source.config import config_def

    props = source_props(flow)
    with FlowPlugins(props, config_def().parse(props)) as plugins:
        topic = plugins.policy.moves_topic(flow.source)
    target = await stack.enter_async_context(open_cluster(props, "target"))
    return Journal(target, topic, 1), TargetStates(target, flow)


async def _why(journal: Journal, states: TargetStates, flow: Flow) -> str | None:
    await states.catch_up()
    failover = await holding(journal, flow.name, states)
    return None if failover is None else why_held(failover)


async def holding(journal: Journal, flow: str, states: TargetStates) -> Move | None:
    """Returns the failover that holds a flow with these states; None where something else has stopped it, or nothing."""
    from klamm_mirror.move.steps import Kind, Step

    if not states.held:
        return None
    await journal.catch_up()
    failover = journal.move(Kind.FAILOVER, flow)
    hold = None if failover is None else failover.notes.get(Step.HOLD)
    if hold is None or (hold.done and (states.started_ms or 0) > hold.at_ms):
        return None
    return failover


def why_held(failover: Move, file: str = "FILE") -> str | None:
    """Returns a sentence that names a failover which holds its flow, and the commands that go on; None if it holds none."""
    from klamm_mirror.move.steps import Phase, Step, opposite, promoted

    hold = failover.notes.get(Step.HOLD)
    if hold is None:
        return None
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(hold.at_ms / 1000))
    command = f"klamm mirror failover {file} '{failover.flow}'"
    back = f"klamm mirror failback {file} '{opposite(failover.flow)}'"
    if promoted(failover):
        cutover = f"klamm mirror cutover {file} '{opposite(failover.flow)}'"
        return (
            f"the failover of {when} holds it, and promoted its copies: {cutover} goes back, see the runbook"
        )
    if failover.phase is Phase.DONE:
        return f"the failover of {when} holds it: {back} goes back, {command} --undo lets the flow go on"
    return (
        f"the failover of {when} holds it, and has not ended: if no command is at it, {command} goes on with it, "
        f"--undo ends it"
    )
