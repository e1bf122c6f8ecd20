"""Documents of events that share fields: a sender's fields are written as JSON once. Pure.

Inputs of syslog and the journal use them when no stage changes their events. `Documents` would make the same documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from klamm_agent.events import Events
from klamm_agent.stages.document import Documents
from klamm_agent.stages.envelope import escaped
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import stamp

_KEPT: Final = 4096


class SharedFields:
    """A maker of documents for events with known `fields` and `times` and without a place in a file."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._tails: dict[int, tuple[dict[str, Any], bytes]] = {}

    def wrap(self, events: Events) -> list[bytes]:
        """Returns the values of a block's events."""
        assert events.fields is not None, "asked by the caller"
        assert events.times is not None, "asked by the caller"
        stamps = {t: stamp(t).encode() for t in set(events.times)}
        return [
            b'{"@timestamp":"%b","message":"%b"%b' % (stamps[time], body, tail)
            for time, body, tail in zip(
                events.times, escaped(events.values), self._ends(events.fields), strict=True
            )
        ]

    def _ends(self, fields: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        tails = self._tails
        for each in fields:
            known = tails.get(id(each))
            yield known[1] if known is not None else self._remember(each)

    def _remember(self, fields: dict[str, Any]) -> bytes:
        if len(self._tails) >= _KEPT:
            self._tails.clear()
        staged = StagedEvents(Events([b""], "", 0.0, times=[0.0], fields=[fields]), errors="replace")
        staged.begin_documents()
        whole = orjson.loads(self._documents.build(staged)[0])
        del whole["@timestamp"], whole["message"]
        found = b"," + orjson.dumps(whole)[1:] if whole else b"}"
        self._tails[id(fields)] = fields, found  # keeping the dict prevents that another dict gets its id
        return found
