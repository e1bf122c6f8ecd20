"""Events on their way through the stages: columns of equal length. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

from klamm_agent.events import Dropped, Events

_JOINT: Final = "\x1e"  # a record separator: logs hardly hold it; a block with one is handled event by event


class StagedEvents:
    """A block's events between two stages. `texts` and `docs` have the events that are left; `docs` is empty until fields are known."""

    __slots__ = (
        "_texts", "at", "bare", "dead", "docs", "dropped", "errors", "fields", "offsets", "path", "seconds", "times",
        "values",
    )  # fmt: skip

    def __init__(self, events: Events, *, errors: str) -> None:
        self.values = events.values
        self.path, self.at = events.path, events.at
        self.offsets, self.times, self.fields = events.offsets, events.times, events.fields
        self.errors = errors
        """The treatment of bytes that are no UTF-8: `replace` in documents, `surrogateescape` in raw records."""
        self._texts: list[str] | None = None
        self.docs: list[dict[str, Any]] = []
        self.seconds: list[float | None] = []
        """Event times that parsing found."""
        self.bare: list[bool] = []
        """True for events whose text is not repeated as `message`, since it is all in fields."""
        self.dropped: list[Dropped] = []
        self.dead: StagedEvents | None = None
        """Events for the dead letter topic."""

    @property
    def texts(self) -> list[str]:
        """The text of each event, decoded at the first use."""
        if self._texts is None:
            self._texts = decoded(self.values, self.errors)
        return self._texts

    @texts.setter
    def texts(self, texts: list[str]) -> None:
        self._texts = texts

    def encode(self) -> None:
        """Encodes the texts to `values`."""
        self.values = encoded(self.texts, self.errors)

    def begin_documents(self) -> None:
        """Makes a document for each event, with the fields that the input knows."""
        count = len(self.values)
        if self.fields is None:
            self.docs = [{} for _ in range(count)]
        else:
            self.docs = [_copy(f) for f in self.fields]
        self.seconds = [None] * count
        self.bare = [False] * count

    def keep(self, wanted: Sequence[bool], reason: str) -> None:
        """Leaves out the events that are not wanted, and counts them by `reason`."""
        if all(wanted):
            return
        self._count_dropped(wanted, reason)
        self._select(wanted)

    def bury(self, wanted: Sequence[bool]) -> None:
        """Moves the events that are not wanted to the dead letters."""
        if all(wanted):
            return
        dead = StagedEvents(
            Events(self.values, self.path, self.at, self.offsets, self.times, self.fields), errors=self.errors
        )
        dead.texts, dead.docs, dead.seconds, dead.bare = self.texts, self.docs, self.seconds, self.bare
        dead._select([not w for w in wanted])
        self._select(wanted)
        if self.dead is None:
            self.dead = dead
        else:
            self.dead.extend(dead)

    def _count_dropped(self, wanted: Sequence[bool], reason: str) -> None:
        lines = len(wanted) - sum(wanted)
        if not self.offsets:
            self.dropped.append(Dropped(reason, lines, 0, None))
            return
        first = wanted.index(False)
        after = len(wanted) - list(reversed(wanted)).index(False)
        end = self.offsets[after] if after < len(self.offsets) else None
        self.dropped.append(Dropped(reason, lines, self.offsets[first], end))

    def _select(self, wanted: Sequence[bool]) -> None:
        for name in ("values", "_texts", "offsets", "times", "fields", "docs", "seconds", "bare"):
            column = getattr(self, name)
            if column:
                setattr(self, name, list(compress(column, wanted)))

    def extend(self, more: StagedEvents) -> None:
        for name in ("values", "texts", "offsets", "times", "docs", "seconds", "bare"):
            column = getattr(self, name)
            if column is not None:
                column += getattr(more, name) or []


def decoded(values: list[bytes], errors: str) -> list[str]:
    """Decodes each value."""
    texts = _JOINT.encode().join(values).decode(errors=errors).split(_JOINT)
    if len(texts) == len(values):
        return texts
    return [value.decode(errors=errors) for value in values]


def encoded(texts: list[str], errors: str) -> list[bytes]:
    """Encodes each text."""
    values = _JOINT.join(texts).encode(errors=errors).split(_JOINT.encode())
    if len(values) == len(texts):
        return values
    return [text.encode(errors=errors) for text in texts]


def _copy(fields: dict[str, Any]) -> dict[str, Any]:
    """Copies the objects, which stages change; nobody changes other values."""
    return {name: _copy(value) if isinstance(value, dict) else value for name, value in fields.items()}
