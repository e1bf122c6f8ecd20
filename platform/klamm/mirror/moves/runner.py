"""Carries out a move step by step, and notes each in the journal: whoever comes after a kill goes on there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from klamm_mirror.move.journal import Journal
from klamm_mirror.move.steps import (
    STANDING,
    Ends,
    Kind,
    Move,
    Phase,
    Step,
    begun,
    closed,
    done,
    led_back,
    next_step,
    opposite,
    resumed,
    stored,
    undo_next,
    undone,
)  # fmt: skip

Found = Mapping[str, Any]
Begin = Callable[[Found], Awaitable[None]]
"""Notes what is there before a change."""
StepWork = Callable[[Move, Begin], Awaitable[Found]]
UndoBegin = Callable[[], Awaitable[None]]
"""Notes that the undo of a step changes something now."""
UndoWork = Callable[[Move, Found, UndoBegin], Awaitable[None]]
Told = Callable[[Move, Step, Found | None], None]
"""Called when a step begins (None), and with what it found."""


class Runner:
    """Runs the steps of one kind of move. `ends` looks at the source's logs; `elsewhere` is the journal of ways back that the
    other cluster has.
    """

    def __init__(
        self,
        journal: Journal,
        work: Mapping[Step, StepWork],
        undo: Mapping[Step, UndoWork],
        ends: Callable[[], Awaitable[Ends]],
        told: Told,
        *,
        elsewhere: Journal | None = None,
    ) -> None:
        self._journal = journal
        self._work = work
        self._undo = undo
        self._ends = ends
        self._told = told
        self._journals = [journal] if elsewhere is None else [journal, elsewhere]
        self._known: Move | None = None
        """The move as the journal has it, as far as this command knows."""

    async def find(self, kind: Kind, flow: str) -> Move | None:
        """Returns the latest move of the kind, as the journal has it."""
        await self._journal.catch_up()
        self._known = self._journal.move(kind, flow)
        return self._known

    async def led_back(self, move: Move) -> bool:
        """Returns whether the applications went back after a move that is done."""
        for journal in self._journals:
            await journal.catch_up()
        found = [j.move(kind, opposite(move.flow)) for j in self._journals for kind in Kind]
        return led_back(move, [other for other in found if other is not None])

    async def run(self, move: Move) -> Move:
        """Does the steps that are left, also those of a move that begins: it takes the place of a former one in the journal
        when its first step is done, so one that is refused leaves that as it was. Returns the move as it is then.
        """
        move = resumed(move)
        while True:
            standing = any(move.is_done(s) for s in STANDING)
            step = next_step(move, await self._ends() if standing else None)
            if step is None:
                return move
            move = await self._do(move, step)

    async def _do(self, move: Move, step: Step) -> Move:
        noted = move

        async def begin(before: Found) -> None:
            nonlocal noted
            noted = begun(noted, step, before, now_ms())
            await self._write(noted)

        self._told(move, step, None)
        found = await self._work[step](move, begin)
        after = done(noted, step, found, now_ms())
        await self._write(after)
        self._told(after, step, found)
        return after

    async def _write(self, move: Move) -> None:
        await self._journal.write(move, self._known)
        self._known = stored(move)

    async def undo(self, move: Move) -> Move:
        """Undoes the steps that changed something, the latest first. The journal learns of it when the first undo begins to
        change something: one that is refused before leaves the move as it was.
        """
        while (step := undo_next(move)) is not None:
            move = await self._undo_step(move, step)
        if move.phase is not Phase.UNDONE:
            move = closed(move)
            await self._write(move)
        return move

    async def _undo_step(self, move: Move, step: Step) -> Move:
        changed = False

        async def begin() -> None:
            nonlocal changed
            changed = True
            await self._write(begun(move, step, move.found(step), now_ms()))

        self._told(move, step, None)
        await self._undo[step](move, move.found(step), begin)
        after = undone(move, step)
        if changed or after.phase is Phase.UNDONE:
            await self._write(after)
        return after


def new_move(kind: Kind, flow: str) -> Move:
    """Returns a move that begins now."""
    return Move(kind=kind, flow=flow, identity=uuid.uuid4().hex, began_ms=now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000
