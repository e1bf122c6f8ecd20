"""Documents that wait, are under way or must be sent again, in the right order for each id. No I/O.

Invariants: an id is in one request at a time, and its documents are sent in the order in which they
arrived. When one of them must be sent again, so are the later ones of its request. Documents without an id
(None) are never held back. Documents that arrive together stay together, as a `Run`, until one of them needs a
treatment of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from klamm_connectors.elasticsearch.tracker import Chunk
from klamm_plugins.errors import DataError
from klamm_plugins.records import SinkRecord

Build = Callable[[SinkRecord], tuple[bytes, str | None] | None]
"""A function from a record to the lines and the id of its document; None where there is nothing to do."""


@dataclass(slots=True, eq=False)
class Document:
    """One action of a bulk request. `data` holds its lines, each with its line end; `id` orders documents of one
    id.

    `index` is the target. `chunk` is told when the document is dealt with. It was made of the record at `row` of `records`.
    `attempts` counts how often the document was sent again after an error that counts. `rebuild` makes it anew from its
    record, where `data` holds bytes of the topic.
    """

    data: bytes
    id: str | None
    index: str
    chunk: Chunk
    records: Sequence[SinkRecord]
    row: int
    rebuild: Build | None = None
    attempts: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self.size = len(self.data)

    def __len__(self) -> int:
        return 1

    @property
    def record(self) -> SinkRecord:
        return self.records[self.row]

    @property
    def ids(self) -> Collection[str]:
        return () if self.id is None else (self.id,)

    @property
    def lines(self) -> Sequence[bytes]:
        return (self.data,)

    def documents(self) -> list[Document]:
        return [self]

    def rewrite(self) -> bool:
        """Makes the document anew, once, from its converted value. Returns whether it is another one now."""
        build, self.rebuild = self.rebuild, None
        try:
            built = None if build is None else build(self.record)
        except DataError:
            return False  # the server's reason says as much
        if built is None or built[0] == self.data:
            return False
        self.data = built[0]
        return True


@dataclass(slots=True, eq=False)
class Run:
    """Documents of one chunk and one index, in columns; nobody has looked at single ones. `rows` are their places in
    `records`. `row_ids` is empty where none has an id that orders it.
    """

    lines: Sequence[bytes]
    row_ids: Sequence[str | None]
    index: str
    chunk: Chunk
    records: Sequence[SinkRecord]
    rows: Sequence[int]
    rebuild: Build | None = None
    size: int = 0
    ids: Collection[str] = ()

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.lines))
        self.ids = [id_ for id_ in self.row_ids if id_ is not None]

    def __len__(self) -> int:
        return len(self.lines)

    def documents(self) -> list[Document]:
        """Returns them one by one."""
        ids = self.row_ids or [None] * len(self.lines)
        return [
            Document(line, id_, self.index, self.chunk, self.records, row, self.rebuild)
            for line, id_, row in zip(self.lines, ids, self.rows, strict=True)
        ]

    def cut(self, count: int) -> tuple[Run, Run]:
        """Returns the first `count` documents and the others."""
        first, rest = (
            Run(
                self.lines[part],
                self.row_ids[part],
                self.index,
                self.chunk,
                self.records,
                self.rows[part],
                self.rebuild,
            )
            for part in (slice(count), slice(count, None))
        )
        return first, rest


Part = Document | Run


@dataclass(slots=True, eq=False)
class Request:
    """Documents that are sent together. `timeouts` counts answers that did not arrive in time."""

    parts: Sequence[Part]
    sent_at: float = 0.0
    timeouts: int = 0
    indices: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.indices = {part.index for part in self.parts}

    @property
    def documents(self) -> list[Document]:
        """The documents, one by one; from then on the request consists of these."""
        if any(isinstance(part, Run) for part in self.parts):
            self.parts = one_by_one(self.parts)
        return list(self.parts)  # type: ignore[arg-type]

    def body(self) -> bytes:
        return b"".join([line for part in self.parts for line in part.lines])


def one_by_one(parts: Iterable[Part]) -> list[Document]:
    return [document for part in parts for document in part.documents()]


class Buffer:
    """All documents of a task that are not done. `open` counts them, `size` counts their bytes."""

    def __init__(self) -> None:
        self.open = 0
        self.size = 0
        self.waiting = 0
        """The number of documents that could be sent now."""
        self._waiting: deque[Part] = deque()
        self._again: deque[Request] = deque()
        self._busy: set[str] = set()  # ids that are in a request
        self._held: dict[str, deque[Document]] = {}  # documents that wait for their id
        self._since = 0.0

    @property
    def has_requests(self) -> bool:
        """True when a request must be sent again."""
        return bool(self._again)

    def age(self, now: float) -> float:
        """Returns how many seconds the oldest document has waited; 0.0 when none waits."""
        return now - self._since if self._waiting else 0.0

    def add(self, parts: Sequence[Part], now: float) -> None:
        if parts and not self._waiting:
            self._since = now
        self._waiting.extend(parts)
        count = sum(map(len, parts))
        self.waiting += count
        self.open += count
        self.size += sum([part.size for part in parts])

    def take(self, count: int, size: int, now: float) -> Request | None:
        """Returns the next request: up to `count` documents and `size` bytes, at least one document; None when there
        is nothing to send.
        """
        while self._again:
            request = self._again.popleft()
            gone = [part for part in request.parts if part.chunk.dropped]
            if gone:
                request.parts = [part for part in request.parts if not part.chunk.dropped]
                self.done(gone, now, again=request.parts)
            if request.parts:
                return request
        taken: list[Part] = []
        while self._waiting and count > 0:
            part = self._next(count, size, at_least_one=not taken)
            if part is None:
                break
            if part.chunk.dropped:
                self.open -= len(part)
                self.size -= part.size
                continue
            ready = [part] if self._are_free(part.ids) else self._hold_back(part.documents())
            taken += ready
            count -= sum(map(len, ready))
            size -= sum([each.size for each in ready])
        self._since = now
        if not taken:
            return None
        for part in taken:
            self._busy.update(part.ids)
        return Request(taken)

    def _next(self, count: int, size: int, *, at_least_one: bool) -> Part | None:
        """Takes the next part from those that wait, or as much of it as fits."""
        part = self._waiting[0]
        fits = min(count, len(part))
        if part.size > size:
            ends = accumulate(map(len, part.lines))
            fits = max(int(at_least_one), min(fits, sum(1 for end in ends if end <= size)))
        if not fits:
            return None
        if isinstance(part, Run) and fits < len(part):
            part, self._waiting[0] = part.cut(fits)
        else:
            self._waiting.popleft()
        self.waiting -= len(part)
        return part

    def _are_free(self, ids: Collection[str]) -> bool:
        # The ids of the request that is being filled are not busy yet: documents of one id may share the request.
        return self._busy.isdisjoint(ids) and (not self._held or self._held.keys().isdisjoint(ids))

    def _hold_back(self, documents: list[Document]) -> list[Document]:
        """Lets documents wait whose ids are not free, and returns the others."""
        ready = []
        for document in documents:
            if self._are_free(document.ids):
                ready.append(document)
            else:
                self._held.setdefault(document.id or "", deque()).append(document)
        return ready

    def done(self, parts: Collection[Part], now: float, again: Collection[Part] = ()) -> None:
        """Removes documents that were dealt with or given up.

        Frees their ids for documents that were held back, except the ids in `again`, the rest of the same request.
        """
        self.open -= sum(map(len, parts))
        self.size -= sum([part.size for part in parts])
        free: set[str] = set().union(*[part.ids for part in parts])
        if again:
            free.difference_update(*[part.ids for part in again])
        self._busy -= free
        for id_ in self._held.keys() & free if self._held else ():
            held = self._held.pop(id_)
            if not self._waiting:
                self._since = now
            self._waiting.extendleft(reversed(held))
            self.waiting += len(held)

    def again(self, request: Request, documents: list[Document], count: int) -> None:
        """Queues these documents of `request` again, in requests of up to `count`. Their ids stay busy."""
        if len(documents) <= count:
            self._again.append(Request(documents, timeouts=request.timeouts))
            return
        parts = -(-len(documents) // count)
        shares: list[list[Document]] = [[] for _ in range(parts)]
        for i, document in enumerate(documents):
            # All documents of one id stay together, in their order.
            shares[hash(document.id) % parts if document.id is not None else i % parts].append(document)
        for share in shares:
            if share:
                self._again.append(Request(share, timeouts=request.timeouts))

    def split(self, request: Request) -> None:
        """Queues the request again in two halves, to find the document that makes the server refuse the whole.

        Documents of one id stay together. When there is only one id, its first document is sent alone.
        """
        documents = request.documents
        ids = {d.id for d in documents if d.id is not None}
        if len(ids) == 1 and all(d.id is not None for d in documents):
            first, *rest = documents
            self._held.setdefault(first.id or "", deque()).extendleft(reversed(rest))
            self._again.appendleft(Request([first]))
            return
        half = set(sorted(ids)[: len(ids) // 2])
        parts: tuple[list[Document], list[Document]] = ([], [])
        for i, document in enumerate(documents):
            second = document.id not in half if document.id is not None else i * 2 >= len(documents)
            parts[second].append(document)
        self._again.extendleft(Request(p) for p in parts[::-1] if p)
