"""`klamm reconcile`: are the lines of these files in that target, each exactly once?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klamm.cli.common import EXIT_FAILED, Output, OutputOption, reported

if TYPE_CHECKING:
    from klamm.reconcile.compare import Document


def reconcile(
    source: Annotated[
        list[str],
        typer.Option("--source", metavar="GLOB", help="Files of lines, `.gz` too; may be repeated."),
    ],
    id_field: Annotated[str, typer.Option("--id-field", help="The field or column that holds a line's id.")],
    elasticsearch: Annotated[
        str | None, typer.Option("--elasticsearch", metavar="URL", envvar="ELASTICSEARCH_URL")
    ] = None,
    index: Annotated[
        str | None, typer.Option("--index", metavar="PATTERN", help="Indices of Elasticsearch.")
    ] = None,
    sqlite: Annotated[
        Path | None, typer.Option("--sqlite", metavar="FILE", help="A SQLite file instead.")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="Its table.")] = None,
    id_regex: Annotated[
        str | None,
        typer.Option(
            "--id-regex",
            metavar="REGEX",
            help="Finds the id in a source line, as its first group; without it, lines are JSON with --id-field.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare the lines of files with the documents of a target by id; exit code 1 when they differ.

    Both sides are read from start to end. Named are lines that are missing, ids that came twice, and documents that no
    line explains.
    """
    from klamm.reconcile import files, report
    from klamm.reconcile.spill import reconcile as compare

    with reported():
        pattern = files.identifier(id_regex or files.json_field(id_field))
        paths = files.expand(source)
        result = compare(
            files.source_lines(paths, pattern), _target(elasticsearch, index, sqlite, table, id_field)
        )
        if output is Output.JSON:
            typer.echo(json.dumps(report.as_dict(result), indent=2))
        else:
            typer.echo("\n".join(report.as_text(result)))
        if not result.complete:
            raise typer.Exit(EXIT_FAILED)


def _target(
    url: str | None, index: str | None, sqlite: Path | None, table: str | None, field: str
) -> Iterator[Document]:
    from klamm.reconcile import targets

    if sqlite is not None:
        if table is None:
            raise typer.BadParameter("is needed with --sqlite", param_hint="--table")
        return targets.documents(targets.sqlite_rows(sqlite, table, [field]), targets.field_id(field))
    if url is None or index is None:
        raise typer.BadParameter("give --elasticsearch and --index, or --sqlite and --table")
    rows = targets.elasticsearch_documents(targets.elasticsearch_client(url), index, [field])
    return targets.documents(rows, targets.field_id(field))
