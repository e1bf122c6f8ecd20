"""The comparison, pure: ids of source lines against ids of documents.

It needs neither the stages between source and target nor any order. Ids are compared in parts (`PARTS` by hash), so
that memory holds one part at a time; `spill.py` keeps the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

PARTS: Final = 64
LISTED: Final = 20
"""The default number of listed differences of each kind."""


class SourceLine(NamedTuple):
    """A line of a source file: byte `offset` of its first byte in `file`."""

    id: str
    file: str
    offset: int


class Document(NamedTuple):
    """A document or row of the target under its own key; `parsed` is false in the place for unparsable lines."""

    id: str
    key: str
    parsed: bool


class Duplicate(NamedTuple):
    """An id that more than one document has."""

    id: str
    keys: tuple[str, ...]


class Unread(NamedTuple):
    """Bytes `start` to `end` of a source file that could not be read any more."""

    file: str
    start: int
    end: int


class Listing:
    """The first `limit` of many items in their order, and how many there were."""

    def __init__(self, order: Any, limit: int = LISTED) -> None:
        self.count = 0
        self._order = order
        self._limit = limit
        self._items: list[Any] = []

    def add(self, item: Any) -> None:
        self.count += 1
        self._items.append(item)
        if len(self._items) > 2 * self._limit + 100:
            self._trim()

    @property
    def items(self) -> list[Any]:
        self._trim()
        return self._items

    def _trim(self) -> None:
        self._items.sort(key=self._order)
        del self._items[self._limit :]


@dataclass(slots=True)
class Comparison:
    """The result of a comparison. Lines and documents without an id cannot be compared: they count as differences."""

    source_lines: int = 0
    """Lines that had to be there."""
    later_lines: int = 0
    """Lines that may be in the target: written while the target was read, or outside of the asked times."""
    documents: int = 0
    of_later_lines: int = 0
    """Documents of those."""
    excused: Counter[str] = field(default_factory=Counter)
    """Lines that are not in the target and need not be, by reason: not sent yet, or dropped by a policy of the agent."""
    delivered: int = 0
    """Source lines that are in the target at least once, parsed or not."""
    unparsed: int = 0
    """Delivered lines that are only in the place for unparsable lines."""
    missing: Listing = field(default_factory=lambda: Listing(itemgetter(1, 2)))
    duplicates: Listing = field(default_factory=lambda: Listing(itemgetter(0)))
    unexpected: Listing = field(default_factory=lambda: Listing(itemgetter(0, 1)))
    repeated: Listing = field(default_factory=lambda: Listing(itemgetter(1, 2)))
    """Source lines whose id another source line has, too: files hold the same lines, or the ids are not unique."""
    lines_without_id: Listing = field(default_factory=lambda: Listing(itemgetter(1, 2)))
    documents_without_id: Listing = field(default_factory=lambda: Listing(itemgetter(1)))
    unread: Listing = field(default_factory=lambda: Listing(itemgetter(0, 1)))
    """Bytes of source files that were gone before they were read, and no other file had them."""
    ignored: frozenset[str] = frozenset()
    """Kinds of differences that are counted and allowed: `unexpected` where old files are removed, `lines_without_id`
    where an event may have several lines."""

    @property
    def differences(self) -> dict[str, Listing]:
        """Every kind of difference by name."""
        return {
            "missing": self.missing,
            "duplicates": self.duplicates,
            "unexpected": self.unexpected,
            "repeated": self.repeated,
            "lines_without_id": self.lines_without_id,
            "documents_without_id": self.documents_without_id,
            "unread": self.unread,
        }

    @property
    def complete(self) -> bool:
        """True if every source line is in the target exactly once, and nothing else is."""
        return not any(d.count for name, d in self.differences.items() if name not in self.ignored)


def part_of(id_: str) -> int:
    """Return the part in which an id is compared, in this process."""
    return hash(id_) % PARTS


def no_excuse(line: SourceLine) -> str:
    """Return no excuse: every line has to be in the target."""
    return ""


def compare(
    source: Iterable[SourceLine],
    target: Iterable[Document],
    into: Comparison,
    *,
    later: Iterable[SourceLine] = (),
    excuse: Callable[[SourceLine], str] = no_excuse,
) -> None:
    """Compare one part (or everything at once) and add the result to `into`.

    Plain tuples will do for lines and documents.

    `later` are lines that may have a document and need none. `excuse` says why a line needs no document; "": the line
    is missing.
    """
    lines = _by_id(source, into)
    others = {line[0] for line in later if line[0]} - lines.keys()
    into.later_lines += len(others)
    documents: dict[str, list[Document]] = {}
    count = 0
    for document in target:  # by number, not by name: this is done for every line
        count += 1
        id_ = document[0]
        if id_ in lines or id_ in others:
            documents.setdefault(id_, []).append(document)
        elif id_:
            into.unexpected.add(Document(*document))
        else:
            into.documents_without_id.add(Document(*document))
    into.documents += count
    for id_, line in lines.items():
        found = documents.get(id_)
        if found:
            into.delivered += 1
            into.unparsed += not any(d[2] for d in found)
        elif why := excuse(SourceLine(*line)):
            into.excused[why] += 1
        else:
            into.missing.add(SourceLine(*line))
    for id_, found in documents.items():
        into.of_later_lines += len(found) * (id_ in others)
        if len(found) > 1:
            into.duplicates.add(Duplicate(id_, tuple(sorted(d[1] for d in found))))


def _by_id(source: Iterable[SourceLine], into: Comparison) -> dict[str, SourceLine]:
    lines: dict[str, SourceLine] = {}
    count = 0
    for line in source:
        count += 1
        id_ = line[0]
        if not id_:
            into.lines_without_id.add(SourceLine(*line))
        elif id_ in lines:
            into.repeated.add(SourceLine(*line))
        else:
            lines[id_] = line
    into.source_lines += count
    return lines
