"""Finds out which move holds a flow, by the journal of moves at the flow's target. Reads nothing while the flow is not held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from klamm.mirror.flow_props import source_props
from klamm_base.errors import KlammError
from klamm_mirror.settings.mm2_config import Flow

if TYPE_CHECKING:
    from klamm_mirror.move.journal import Journal
    from klamm_mirror.move.steps import Move

LOOK_S: Final = 2.0


async def follow_holds(flow: Flow, is_held: Callable[[], bool], say: Callable[[str | None], None]) -> None:
    """Says, until it is cancelled, why the flow is held: a sentence; None while no move holds it."""
    async with AsyncExitStack() as stack:
        journal: Journal | None = None
        while True:
            try:
                if is_held():
                    journal = journal or await _journal(flow, stack)
                    await journal.catch_up()
                    say(_why(journal, flow))
                else:
                    say(None)
            except KlammError as e:
                say(f"the journal of moves does not tell which move holds it: {e}")
            await asyncio.sleep(LOOK_S)


async def _journal(flow: Flow, stack: AsyncExitStack) -> Journal:
    from klamm_mirror.loop import open_cluster
    from klamm_mirror.move.journal import Journal
    from klamm_mirror.settings.plugins import FlowPlugins
    from klamm_mirror.source.config import config_def

    props = source_props(flow)
    with FlowPlugins(props, config_def().parse(props)) as plugins:
        topic = plugins.policy.moves_topic(flow.source)
    return Journal(await stack.enter_async_context(open_cluster(props, "target")), topic, 1)


def _why(journal: Journal, flow: Flow) -> str | None:
    from klamm_mirror.move.steps import Kind

    failover = journal.move(Kind.FAILOVER, flow.name)
    return None if failover is None else why_held(failover)


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
    return f"the failover of {when} holds it, and did not end: {command} goes on with it, --undo ends it"
