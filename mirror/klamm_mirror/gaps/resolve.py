"""Goes on with stopped partitions: writes decisions into the gap ledger, and waits until the tasks have carried them out.

The ledger is at the target, so this works from any machine, and for a mirror that runs later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from klamm_base.errors import KlammError
from klamm_mirror.gaps.entries import Gap, GapKey, State
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.stops import ACTIONS, Action, Kind

LOOK_S: Final = 0.3


class NothingStopped(KlammError):
    """No partition waits for a decision."""


class Unsuitable(KlammError):
    """The action does not fit the gap, or is missing."""


def choose(gaps: Sequence[Gap], action: Action | None) -> list[tuple[Gap, Action]]:
    """Returns each gap's action; without a given one, a gap's only one. Raises Unsuitable."""
    chosen = []
    for gap in gaps:
        known = ACTIONS[gap.kind]
        wanted = known[0] if action is None and len(known) == 1 else action
        if wanted not in known:
            options = " or ".join(f"--{a}" for a in known)
            said = "needs a decision" if wanted is None else f"does not go on by --{wanted}"
            raise Unsuitable(f"{gap} ({gap.kind}) {said}: give {options}. {gap.why}")
        if gap.kind is Kind.REFUSED and wanted is Action.SKIP and gap.end is None:
            raise Unsuitable(
                f"{gap} has no records to leave out: mend the cause, then give --{Action.RETRY}. {gap.why}"
            )
        chosen.append((gap, wanted))
    return chosen


async def ask(
    ledger: Ledger, topic: str, partitions: Collection[int], action: Action | None, now_ms: int
) -> list[Gap]:
    """Writes the decision for the topic's waiting gaps (all partitions, if none is named). Returns them.

    Raises NothingStopped, Unsuitable, ClientError.
    """
    await ledger.catch_up()
    waiting = [g for g in ledger.table.waiting(topic) if not partitions or g.partition in partitions]
    if not waiting:
        others = sorted({g.topic for g in ledger.table.waiting()})
        which = f"{topic}, partition {', '.join(map(str, sorted(partitions)))}," if partitions else topic
        hint = f"; stopped are partitions of {', '.join(others)}" if others else ""
        raise NothingStopped(f"{which} has no stopped partition in {ledger.topic}{hint}")
    asked = [gap.asked(wanted, now_ms) for gap, wanted in choose(waiting, action)]
    await ledger.write(asked)
    return asked


async def follow(
    ledger: Ledger, asked: Sequence[Gap], timeout_s: float, told: Callable[[Gap], None]
) -> list[Gap]:
    """Waits until the tasks have carried out what was asked. Calls `told` for each gap that is settled.

    Returns the gaps that still wait. A gap that is open again has failed: `told` gets it with its new reason.
    Raises ClientError.
    """
    left: dict[GapKey, Gap] = {gap.key: gap for gap in asked}
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_S)
        await ledger.catch_up()
        for key in list(left):
            now = ledger.table.gaps[key]
            if now.state is not State.RESOLVING:
                told(now)
                del left[key]
    return list(left.values())
