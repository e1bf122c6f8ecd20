"""`klamm reconcile`: checks that each line of some files is in a target exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.cluster import Cluster
from klamm.cli.common import EXIT_FAILED, Output, OutputOption, print_document, reported

if TYPE_CHECKING:
    import re

    from klamm.reconcile.compare import Document


SourceOption = Annotated[
    list[str], typer.Option("--source", metavar="GLOB", help="Files of lines, `.gz` too; may be repeated.")
]
IdFieldOption = Annotated[str, typer.Option("--id-field", help="The field or column that holds a line's id.")]
ExcludeOption = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Files to leave out; may be repeated.")
]
ElasticsearchOption = Annotated[
    str | None, typer.Option("--elasticsearch", metavar="URL", envvar="ELASTICSEARCH_URL")
]
IndexOption = Annotated[
    str | None,
    typer.Option("--index", metavar="PATTERN", help="Indices, aliases or data streams of Elasticsearch."),
]
SqliteOption = Annotated[Path | None, typer.Option("--sqlite", metavar="FILE", help="A SQLite file.")]
SqlOption = Annotated[
    str | None,
    typer.Option(
        "--sql",
        metavar="URL",
        envvar="KLAMM_SQL_URL",  # a password on the command line is in the list of processes
        help="A database by SQLAlchemy's URL.",
    ),
]
TableOption = Annotated[list[str] | None, typer.Option("--table", help="Its table; may be repeated.")]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, committed records; may be repeated.")
]
ParquetOption = Annotated[
    list[Path] | None,
    typer.Option("--parquet", metavar="FOLDER", help="Parquet files, as Spark writes them; may be repeated."),
]
IdRegexOption = Annotated[
    str | None,
    typer.Option(
        "--id-regex",
        metavar="REGEX",
        help="Finds the id in a source line, as its first group; without it, lines are JSON with --id-field.",
    ),
]
RawFieldOption = Annotated[
    str | None,
    typer.Option(
        "--raw-field",
        help="The field that holds the line itself in documents without --id-field: its id is looked for there.",
    ),
]
SettleOption = Annotated[
    float, typer.Option("--settle", metavar="SECONDS", help="How long lines that are missing are waited for.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Lines before this time need not be there.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Lines from this time on need not be there.")
]
TimeRegexOption = Annotated[
    str | None,
    typer.Option(
        "--time-regex",
        metavar="REGEX",
        help="Finds a line's time; without it, ISO 8601 or that of web servers.",
    ),
]
AgentStateOption = Annotated[
    Path | None,
    typer.Option(
        "--agent-state",
        metavar="DIRECTORY",
        help="The log agent's state_dir: what it has not sent yet, or left out by its settings, is not missing.",
    ),
]
IgnoreOption = Annotated[
    bool,
    typer.Option(
        "--ignore-unexpected", help="Documents that no line explains are counted, and no difference."
    ),
]
IgnoreLinesOption = Annotated[
    bool,
    typer.Option(
        "--ignore-lines-without-id",
        help="Lines without an id, such as those of a stack trace, are counted, and no difference.",
    ),
]


def reconcile(
    cluster: Cluster,
    source: SourceOption,
    id_field: IdFieldOption,
    exclude: ExcludeOption = None,
    elasticsearch: ElasticsearchOption = None,
    index: IndexOption = None,
    sqlite: SqliteOption = None,
    sql: SqlOption = None,
    table: TableOption = None,
    topic: TopicOption = None,
    parquet: ParquetOption = None,
    id_regex: IdRegexOption = None,
    raw_field: RawFieldOption = None,
    settle: SettleOption = 30.0,
    since: SinceOption = None,
    until: UntilOption = None,
    time_regex: TimeRegexOption = None,
    agent_state: AgentStateOption = None,
    ignore_unexpected: IgnoreOption = False,
    ignore_lines_without_id: IgnoreLinesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare lines of files with documents.

    Compares by id; exit code 1 when they differ. Files may grow and rotate meanwhile: the lines that they hold when
    the command begins have to be in the target, at the latest after --settle. Names missing lines, ids that came
    twice, and documents that no line explains. Several targets count as one.
    """
    from klamm.reconcile import files, report, times
    from klamm.reconcile.agent_state import AgentState
    from klamm.reconcile.cut import Sources
    from klamm.reconcile.running import Question, reconcile_running

    with reported():
        pattern = files.identifier(id_regex or files.json_field(id_field))
        wanted = times.between(time_regex, since, until)
        kafka = partial(cluster.config, "consumer") if topic else None
        where = _Targets(_Ids(id_field, raw_field, pattern), elasticsearch, index, sqlite, sql, table or [])
        readers = [*where.readers(), *where.folders(parquet or []), *where.topics(topic or [], kafka)]
        if not readers:
            raise typer.BadParameter(
                "give --elasticsearch and --index, --sqlite, --sql, --topic or --parquet"
            )
        with Sources(source, exclude or []) as sources:
            question = Question(
                sources=sources,
                pattern=pattern,
                target=lambda: _all(readers),
                settle_s=settle,
                wanted=wanted,
                agent=AgentState(agent_state) if agent_state else None,
                say=lambda text: typer.echo(f"klamm: {text}", err=True),
            )
            result = reconcile_running(question)
        asked = {"unexpected": ignore_unexpected, "lines_without_id": ignore_lines_without_id}
        result.ignored = frozenset(kind for kind, is_asked in asked.items() if is_asked)
        if output.structured:
            print_document(report.as_dict(result), output)
        else:
            typer.echo("\n".join(report.as_text(result)))
        if not result.complete:
            raise typer.Exit(EXIT_FAILED)


Reader = Callable[[], "Iterable[Document]"]


def _all(readers: list[Reader]) -> Iterator[Document]:
    for read in readers:
        yield from read()


@dataclass(frozen=True, slots=True)
class _Ids:
    """The fields and the pattern that hold ids."""

    field: str
    raw: str | None
    pattern: re.Pattern[bytes]

    @property
    def fields(self) -> list[str]:
        return [self.field, *([self.raw] if self.raw else [])]

    def of_row(self) -> Callable[[dict[str, Any]], tuple[str, bool]]:
        """Return a function that finds a row's id, and whether the id stands in its field (or else in the line itself)."""
        from klamm.reconcile import targets

        by_field = targets.field_id(self.field)
        by_line = targets.pattern_id(self.raw, self.pattern) if self.raw else None

        def find(row: dict[str, Any]) -> tuple[str, bool]:
            found = by_field(row)
            return (found, True) if found or by_line is None else (by_line(row), False)

        return find

    def of_text(self, text: bytes) -> str:
        found = self.pattern.search(text)
        return found[1].decode("utf-8", "replace") if found else ""


@dataclass(frozen=True, slots=True)
class _Targets:
    """The targets that the options name, as readers that can be read again and again."""

    ids: _Ids
    url: str | None
    index: str | None
    sqlite: Path | None
    sql: str | None
    tables: list[str]

    def readers(self) -> Iterator[Reader]:
        """Yield readers of indices and tables. Raises BadParameter."""
        from klamm.reconcile import tables, targets

        fields = self.ids.fields
        if self.index is not None:
            if self.url is None:
                raise typer.BadParameter("is needed with --index", param_hint="--elasticsearch")
            client, index = targets.elasticsearch_client(self.url), self.index
            yield self._documents(lambda: targets.elasticsearch_documents(client, index, fields))
        if (self.sqlite or self.sql) and not self.tables:
            raise typer.BadParameter("is needed with --sqlite and --sql", param_hint="--table")
        for table in self.tables:
            if self.sqlite is not None:
                yield self._documents(partial(targets.sqlite_rows, self.sqlite, table, fields))
            if self.sql is not None:
                yield self._documents(partial(tables.sql_rows, self.sql, table, fields))

    def folders(self, folders: list[Path]) -> Iterator[Reader]:
        from klamm.reconcile import tables

        for folder in folders:
            yield self._documents(partial(tables.parquet_rows, folder, self.ids.fields))

    def topics(self, names: list[str], settings: Callable[[], dict[str, Any]] | None) -> Iterator[Reader]:
        from klamm.reconcile.topics import topic_documents

        if settings is None:
            return
        client = settings()
        for name in names:
            yield partial(topic_documents, client, name, self.ids.of_row(), self.ids.of_text)

    def _documents(self, rows: Callable[[], Iterator[tuple[str, dict[str, Any]]]]) -> Reader:
        from klamm.reconcile.compare import Document

        find = self.ids.of_row()

        def read() -> Iterator[Document]:
            for key, row in rows():
                id_, parsed = find(row)
                yield Document(id_, key, parsed)

        return read
