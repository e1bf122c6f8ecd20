"""Documents that wait, are under way or must be sent again, in the right order for each id. No I/O.

Invariants: an id is in one request at a time, and its documents are sent in the order in which they
arrived. When one of them must be sent again, so are the later ones of its request. Documents without an id
(None) are never held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from klamm_connectors.elasticsearch.tracker import Chunk
from klamm_plugins.records import SinkRecord


@dataclass(slots=True, eq=False)
class Document:
    """One action of a bulk request. `data` holds its lines, each with its line end; `id` orders documents of one
    id.

    `index` is the target. `chunk` is told when the document is dealt with. `attempts` counts how often the
    document was sent again after an error that counts.
    """

    data: bytes
    id: str | None
    index: str
    chunk: Chunk
    record: SinkRecord
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """Documents that are sent together. `timeouts` counts answers that did not arrive in time."""

    documents: list[Document]
    sent_at: float = 0.0
    timeouts: int = 0
    indices: set[str] = field(default_factory=set)

    def body(self) -> bytes:
        return b"".join([d.data for d in self.documents])


class Buffer:
    """All documents of a task that are not done. `open` counts them, `size` counts their bytes."""

    def __init__(self) -> None:
        self.open = 0
        self.size = 0
        self._waiting: deque[Document] = deque()
        self._again: deque[Request] = deque()
        self._busy: set[str] = set()  # ids that are in a request
        self._held: dict[str, deque[Document]] = {}  # documents that wait for their id
        self._since = 0.0

    @property
    def waiting(self) -> int:
        """The number of documents that could be sent now."""
        return len(self._waiting)

    @property
    def has_requests(self) -> bool:
        """True when a request must be sent again."""
        return bool(self._again)

    def age(self, now: float) -> float:
        """Returns how many seconds the oldest document has waited; 0.0 when none waits."""
        return now - self._since if self._waiting else 0.0

    def add(self, documents: Sequence[Document], now: float) -> None:
        if documents and not self._waiting:
            self._since = now
        self._waiting.extend(documents)
        self.open += len(documents)
        self.size += sum([len(d.data) for d in documents])

    def take(self, count: int, size: int, now: float) -> Request | None:
        """Returns the next request: up to `count` documents and `size` bytes, at least one document; None when there
        is nothing to send.
        """
        while self._again:
            request = self._again.popleft()
            gone = [d for d in request.documents if d.chunk.dropped]
            if gone:
                request.documents = [d for d in request.documents if not d.chunk.dropped]
                self.done(gone, now, again=request.documents)
            if request.documents:
                return request
        taken: list[Document] = []
        while self._waiting and len(taken) < count:
            document = self._waiting[0]
            if taken and size < len(document.data):
                break
            self._waiting.popleft()
            if document.chunk.dropped:
                self.open -= 1
                self.size -= len(document.data)
            elif self._must_wait(document, taken):
                self._held.setdefault(document.id or "", deque()).append(document)
            else:
                taken.append(document)
                size -= len(document.data)
        self._since = now
        if not taken:
            return None
        self._busy.update([d.id for d in taken if d.id is not None])
        return Request(taken, indices={d.index for d in taken})

    def _must_wait(self, document: Document, taken: list[Document]) -> bool:
        # The ids of the request that is being filled are not busy yet: documents of one id may share the request.
        return document.id is not None and (document.id in self._busy or document.id in self._held)

    def done(self, documents: Collection[Document], now: float, again: Collection[Document] = ()) -> None:
        """Removes documents that were dealt with or given up.

        Frees their ids for documents that were held back, except the ids in `again`, the rest of the same request.
        """
        self.open -= len(documents)
        self.size -= sum([len(d.data) for d in documents])
        free = {d.id for d in documents if d.id is not None}
        if again:
            free.difference_update([d.id for d in again])
        self._busy -= free
        if not self._held:
            return
        for document in documents:
            if document.id in free and document.id in self._held:
                held = self._held.pop(document.id)
                if not self._waiting:
                    self._since = now
                self._waiting.extendleft(reversed(held))

    def again(self, request: Request, documents: list[Document], count: int) -> None:
        """Queues these documents of `request` again, in requests of up to `count`. Their ids stay busy."""
        if len(documents) <= count:
            self._again.append(
                Request(documents, timeouts=request.timeouts, indices={d.index for d in documents})
            )
            return
        parts = -(-len(documents) // count)
        shares: list[list[Document]] = [[] for _ in range(parts)]
        for i, document in enumerate(documents):
            # All documents of one id stay together, in their order.
            shares[hash(document.id) % parts if document.id is not None else i % parts].append(document)
        for share in shares:
            if share:
                self._again.append(
                    Request(share, timeouts=request.timeouts, indices={d.index for d in share})
                )

    def split(self, request: Request) -> None:
        """Queues the request again in two halves, to find the document that makes the server refuse the whole.

        Documents of one id stay together. When there is only one id, its first document is sent alone.
        """
        documents = request.documents
        ids = {d.id for d in documents if d.id is not None}
        if len(ids) == 1 and all(d.id is not None for d in documents):
            first, *rest = documents
            self._held.setdefault(first.id or "", deque()).extendleft(reversed(rest))
            self._again.appendleft(Request([first], indices={first.index}))
            return
        half = set(sorted(ids)[: len(ids) // 2])
        parts: tuple[list[Document], list[Document]] = ([], [])
        for i, document in enumerate(documents):
            second = document.id not in half if document.id is not None else i * 2 >= len(documents)
            parts[second].append(document)
        self._again.extendleft(Request(p, indices={d.index for d in p}) for p in parts[::-1] if p)
