"""The stage `ecs`: the usual names of loggers as ECS's, by the table of `klamm_base.ecs_names`. Pure."""

from __future__ import annotations

from typing import Final

from klamm_agent.stages.parse.fields import Document, get, put
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import Times
from klamm_base.ecs_names import NAMES, TIMES, moved

_ORDER: Final = {name: at for at, name in enumerate(NAMES)}
_PARTS: Final = {to: (to.partition(".")[0], to.partition(".")[2]) for to in NAMES.values()}


class EcsNames:
    """The stage `ecs`."""

    name = "ecs"

    def __init__(self, times: Times | None) -> None:
        """`times` reads the usual time fields; None when the configuration names the time field."""
        self._times = times
        self._known = frozenset((*NAMES, *(TIMES if times else ())))

    def run(self, staged: StagedEvents) -> None:
        """Renames fields in all documents, and takes the time out of the first field that holds one."""
        known = self._known
        for i, doc in enumerate(staged.docs):
            if known.isdisjoint(doc):
                continue
            if self._times is not None and staged.seconds[i] is None:
                staged.seconds[i] = self._time(doc, staged.at)
            names = [n for n in doc if n in _ORDER]
            if len(names) > 1:
                names.sort(key=_ORDER.__getitem__)
            for name in names:
                self._move(doc, name)

    def _time(self, doc: Document, reference: float) -> float | None:
        assert self._times is not None
        for name in TIMES:
            if name in doc and (found := self._times.parse(doc[name], reference)) is not None:
                del doc[name]
                return found
        return None

    @staticmethod
    def _move(doc: Document, name: str) -> None:
        """Moves one field; it keeps its name when the event has a field of the ECS name."""
        found = moved(name, doc[name])
        if found is None:
            return
        to, value = found
        first, last = _PARTS[to]
        inner = doc.get(first) if last else None
        if "." in last:
            if inner is None or (type(inner) is dict and get(doc, to) is None):
                put(doc, to, value)
                del doc[name]
        elif type(inner) is dict:
            if inner.get(last) is None:
                inner[last] = value
                del doc[name]
        elif last and inner is None:
            doc[first] = {last: value}
            del doc[name]
        elif name == first:
            del doc[name]
            doc[first] = {last: value}
        elif not last and first not in doc:
            doc[first] = value
            del doc[name]
