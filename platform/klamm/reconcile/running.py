"""Reconciliation of a running installation: a cut of the sources, then the target, then the sources' new lines.

Every line of the cut has to be in the target, at the latest `settle_s` after the cut was read. A line has to explain
every document: a line of the cut, or a line that was written before the target had been read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from klamm.reconcile.agent_state import AgentState
from klamm.reconcile.compare import Comparison, Document, SourceLine, no_excuse
from klamm.reconcile.cut import Sources
from klamm.reconcile.files import RawLine, with_ids
from klamm.reconcile.spill import IN_MEMORY, Spill, compared

AGAIN_S: Final = 2.0
"""The pause between two readings of the target, or the duration of the last reading, if that is longer."""
AGENT_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A comparison to carry out.

    `target` reads all documents anew at each call; `wanted` says which lines have to be in the target (None: all);
    `say` tells the user why we wait.
    """

    sources: Sources
    pattern: re.Pattern[bytes]
    target: Callable[[], Iterable[Document]]
    settle_s: float = 0.0
    wanted: Callable[[RawLine], bool] | None = None
    agent: AgentState | None = None
    say: Callable[[str], None] = lambda text: None
    in_memory: int = IN_MEMORY


def reconcile_running(asked: Question) -> Comparison:
    """Compare, once more while lines are missing and there is time. Raises KlammError when a side cannot be read."""
    asked.sources.take()
    with Spill(asked.in_memory) as lines, Spill(asked.in_memory) as later:
        _fill(asked, lines, later)
        until = time.monotonic() + asked.settle_s
        _wait_for_agent(asked, until)
        while True:
            began = time.monotonic()
            result = _compare_once(asked, lines, later)
            left, took = until - time.monotonic(), time.monotonic() - began
            if not result.missing.count or left <= 0:
                for unread in asked.sources.unread:
                    result.unread.add(unread)
                return result
            asked.say(f"{result.missing.count:,} lines are not there yet; looking again for {left:.0f} s")
            time.sleep(min(left, max(AGAIN_S, took)))


def _fill(asked: Question, lines: Spill, later: Spill) -> None:
    """Add the ids of the cut to `lines` (those that have to be in the target) and to `later` (those outside the asked
    times).
    """
    if asked.wanted is None:
        lines.fill(with_ids(asked.sources.lines(), asked.pattern))
        return
    wanted = asked.wanted

    def both() -> Iterator[SourceLine]:
        for raw in asked.sources.lines():
            line = next(with_ids((raw,), asked.pattern))
            if wanted(raw):
                yield line
            else:
                later.fill((line,))

    lines.fill(both())


def _wait_for_agent(asked: Question, until: float) -> None:
    if asked.agent is None:
        return
    said = False
    while True:
        asked.agent.load()
        if not asked.agent.behind(asked.sources.cut) or time.monotonic() > until:
            return
        if not said:
            asked.say("the agent has not sent all lines yet")
            said = True
        time.sleep(AGENT_LOOK_S)


def _compare_once(asked: Question, lines: Spill, later: Spill) -> Comparison:
    excuse: Callable[[SourceLine], str] = no_excuse
    if asked.agent is not None:  # as it was before the target was read
        asked.agent.load()
        excuse = asked.agent.excuse(asked.sources.cut)
    with Spill(asked.in_memory) as documents:
        documents.fill(asked.target())
        later.fill(with_ids(asked.sources.rest(), asked.pattern))
        return compared(lines, documents, later, excuse)
