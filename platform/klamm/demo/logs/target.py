"""The targets of the documents: Elasticsearch, or SQLite behind a Connect sink.

`choose` finds the one to use. A target makes its place ready, counts its documents while the pipeline runs, and reads them
all at the end.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from klamm.demo.logs.kind import Kind
from klamm.demo.logs.lines import ID_PATTERN
from klamm.demo.platform import NoAnswer
from klamm.reconcile import targets
from klamm.reconcile.compare import Document
from klamm.reconcile.files import identifier
from klamm_base.errors import KlammError

NAMES: Final = ("events", "unparsed", "rates")
DEFAULT_URL: Final = "http://127.0.0.1:9200"
EVENT_ID: Final = "event.id"
RATE_FIELDS: Final = ["service.name", "window_start", "lines", "errors"]


class Target(Protocol):
    """A place where documents arrive. It reads them without asking the program that wrote them."""

    name: str

    @property
    def where(self) -> str: ...

    def prepare(self) -> None: ...

    def count(self) -> int:
        """Returns the number of events and unparsed lines so far."""

    def documents(self) -> Iterator[Document]:
        """Yields every event and unparsed line, by the id of its line."""

    def rates(self) -> Iterator[dict[str, Any]]:
        """Yields every row of the windowed error rates."""

    def remove(self) -> None: ...


class ElasticsearchTarget:
    """Indices `PREFIX-events`, `-unparsed` and `-rates` of one server."""

    name = "Elasticsearch"

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.prefix = prefix
        self._client = targets.elasticsearch_client(url)

    @property
    def where(self) -> str:
        return f"{redacted(self.url)}, indices {self.prefix}-*"

    def index(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def prepare(self) -> None:
        """Makes the indices: strings are keywords, messages are searched by word."""
        text = {"match_mapping_type": "string", "mapping": {"type": "keyword", "ignore_above": 1024}}
        for name in NAMES:
            self._call(
                "create",
                index=self.index(name),
                # The job refreshes after each of its batches; between them there is nothing new
                settings={"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "5s"},
                mappings={
                    "dynamic_templates": [{"texts": text}],
                    "properties": {"@timestamp": {"type": "date"}, "message": {"type": "text"}},
                },
            )

    def count(self) -> int:
        indices = f"{self.index('events')},{self.index('unparsed')}"
        self._call("refresh", index=indices, ignore_unavailable=True)
        from elasticsearch import ApiError, TransportError

        try:
            return int(self._client.count(index=indices, ignore_unavailable=True)["count"])
        except (ApiError, TransportError) as e:
            raise KlammError(f"{self.where}: {e}") from None

    def documents(self) -> Iterator[Document]:
        events = targets.elasticsearch_documents(self._client, self.index("events"), [EVENT_ID])
        yield from targets.documents(events, targets.field_id(EVENT_ID))
        others = targets.elasticsearch_documents(self._client, self.index("unparsed"), ["message"])
        by_line = targets.pattern_id("message", identifier(ID_PATTERN))
        yield from targets.documents(others, by_line, parsed=False)

    def rates(self) -> Iterator[dict[str, Any]]:
        for _, row in targets.elasticsearch_documents(self._client, self.index("rates"), RATE_FIELDS):
            yield row | {"service": row["service.name"]}

    def remove(self) -> None:
        self._call("delete", index=",".join(map(self.index, NAMES)), ignore_unavailable=True)

    def _call(self, what: str, **arguments: Any) -> None:
        from elasticsearch import ApiError, TransportError

        try:
            getattr(self._client.indices, what)(**arguments)
        except (ApiError, TransportError) as e:
            raise KlammError(f"{self.where}: {e}") from None


class SqliteTarget:
    """Tables `events`, `unparsed` and `rates` of a file, made by the SQL sink connector."""

    name = "SQLite"

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def where(self) -> str:
        return str(self.file)

    def prepare(self) -> None:
        """Does nothing: the connector makes the tables."""

    def count(self) -> int:
        if not self.file.exists():
            return 0
        try:
            with closing(self._connect()) as connection:
                names = [n for n in ("events", "unparsed") if n in _tables(connection)]
                return sum(connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in names)  # noqa: S608
        except sqlite3.OperationalError as e:
            raise NoAnswer(f"{self.file}: {e}") from None

    def documents(self) -> Iterator[Document]:
        events = self._rows("events", ["event_id"])
        yield from targets.documents(events, targets.field_id("event_id"))
        by_line = targets.pattern_id("message", identifier(ID_PATTERN))
        others = self._rows("unparsed", ["message"])
        yield from targets.documents(others, by_line, parsed=False)

    def rates(self) -> Iterator[dict[str, Any]]:
        columns = [f.replace(".", "_") for f in RATE_FIELDS]
        for _, row in self._rows("rates", columns):
            yield row | {"service": row["service_name"]}

    def remove(self) -> None:
        """Does nothing: the file goes with the data directory."""

    def _rows(self, table: str, columns: list[str]) -> Iterator[tuple[str, targets.Row]]:
        """Yields the rows of a table; none before the connector has made the table, which it does when the first record comes."""
        if self.file.exists():
            with closing(self._connect()) as connection:
                there = table in _tables(connection)
            if there:
                yield from targets.sqlite_rows(self.file, table, columns)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=10)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def redacted(url: str) -> str:
    """Returns a URL without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen target. Without `url`, `installation` is the server to start; `why` explains the choice to the user."""

    kind: Kind
    why: str
    url: str | None = None
    installation: Any = None


def choose(kind: Kind, url: str | None) -> Choice:
    """Chooses Elasticsearch if it was named, answers on this machine, or can be started; else SQLite.

    Raises KlammError when the target that was asked for cannot be used.
    """
    if kind is Kind.SQLITE:
        return Choice(Kind.SQLITE, "SQLite, as asked")
    if url is not None:
        answered = _answers(url)
        if answered is not None:
            raise KlammError(f"--elasticsearch {redacted(url)} does not answer as Elasticsearch: {answered}")
        return Choice(Kind.ELASTICSEARCH, f"Elasticsearch at {redacted(url)}", url=url)
    try:
        absent = _answers(DEFAULT_URL)
    except KlammError as e:
        absent = str(e)
    else:
        if absent is None:
            return Choice(Kind.ELASTICSEARCH, f"the Elasticsearch at {DEFAULT_URL}", url=DEFAULT_URL)
        from klamm.testing.elasticsearch import Installation, find

        found = find(_installation_place())
        if isinstance(found, Installation):
            return Choice(
                Kind.ELASTICSEARCH, f"Elasticsearch {found.version} from {found.home}", installation=found
            )
        absent = f"none answers at {DEFAULT_URL}, and none can be started: {found}"
    if kind is Kind.ELASTICSEARCH:
        raise KlammError(f"--target elasticsearch: {absent}")
    return Choice(Kind.SQLITE, f"no Elasticsearch ({absent}): the documents go to SQLite through Connect")


def _installation_place() -> Path:
    if given := os.environ.get("ELASTICSEARCH_HOME"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-elasticsearch"


def _answers(url: str) -> str | None:
    """Returns None when Elasticsearch answers there, else the reason why not."""
    from elasticsearch import ApiError, TransportError

    client = targets.elasticsearch_client(url).options(request_timeout=3, max_retries=0)
    try:
        client.cluster.health()
    except TransportError as e:
        return str(e.message)
    except ApiError as e:
        return f"HTTP {e.meta.status}"
    except Exception as e:  # the client's own check of who answers
        return " ".join(str(e).split())
    finally:
        client.close()
    return None
