"""Checks of a job's options, schema, SQL and function before Java starts. Pure, apart from the files of
functions.

Spark would find the same and more, but a minute later. These checks report only what is surely wrong and
leave the rest to Spark.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import meant
from klamm_spark import elasticsearch_options, sql_options
from klamm_spark.datasource.options import read_options, write_options
from klamm_spark.jobs import log_options
from klamm_spark.model import Job, Output, Source

_OF_SOURCE: Final = {
    "kafka.bootstrap.servers": "bootstrap_servers",
    "subscribe": "topics",
    "subscribePattern": "topics_regex",
    "startingOffsets": "starting_offsets",
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "failOnDataLoss": "fail_on_data_loss",
    "includeHeaders": "include_headers",
}
"""Keys of [source] that are options of our format."""
_TYPES: Final = (
    "STRING", "BIGINT", "LONG", "INT", "INTEGER", "SMALLINT", "SHORT", "TINYINT", "BYTE", "DOUBLE", "FLOAT", "REAL", "BOOLEAN",
    "DECIMAL", "DEC", "NUMERIC", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "BINARY", "CHAR", "CHARACTER",
    "VARCHAR", "ARRAY", "MAP", "STRUCT", "INTERVAL", "VARIANT", "VOID", "GEOMETRY", "GEOGRAPHY",
)  # fmt: skip
_FIELD: Final = re.compile(r"\s*(?:`(?:[^`]|``)+`|[^\s:,<>()`]+)(?:\s*:\s*|\s+)([A-Za-z_]+)\b.*", re.DOTALL)
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_BRACKETS: Final = {")": "(", ">": "<"}
_LOG_JOBS: Final = frozenset({"klamm_spark.jobs.logs:logs", "klamm_spark.jobs.log_connect:logs"})
"""Our own functions, whose [query.options] are known."""
_STATEMENTS: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
_COMMENTS: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def client_options(source: Source) -> dict[str, str]:
    """Returns the options that an output to topics takes from the source: servers and security."""
    shared = {
        k: v
        for k, v in source.options.items()
        if k.lower().startswith(("kafka.sasl.", "kafka.ssl.", "kafka.security."))
    }
    servers = {"kafka.bootstrap.servers": source.bootstrap_servers} if source.bootstrap_servers else {}
    return servers | shared


def check_contents(job: Job) -> None:
    """Checks options of our formats, the schema and the queries' first words. Raises ConfigError, whose key is the
    place.
    """
    _check_source(job.source)
    for n, output in enumerate(job.outputs):
        _check_options(job.source, output, n)
    schema = job.source.schema
    if schema is not None and not job.source.infers:
        check_schema("[source] schema", schema, "source.schema")
    if job.query.sql is not None:
        check_sql("[query] sql", job.query.sql, "query.sql")
    for name, text in job.query.views.items():
        check_sql(f"[query] views.{name}", text, f"query.views.{name}")
    if job.query.function in _LOG_JOBS:
        log_options.read_options(job.query.options)


def _check_source(source: Source) -> None:
    if source.format is None and source.connector == "klamm":
        options = source.reader_options()
    elif source.format == "klamm":
        options = dict(source.options)
    else:
        return
    try:
        read_options(options)
    except ConfigError as e:
        own = {k.lower() for k in source.options}
        key = e.key or "options"
        named = _OF_SOURCE.get(key) if key.lower() not in own else None
        if named is not None:
            raise ConfigError(f"[source] {named}: {e}", key=f"source.{named}") from None
        raise ConfigError(f"[source] options: {e}", key=f"source.options.{key}") from None


def _check_options(source: Source, output: Output, n: int) -> None:
    found: Callable[[Mapping[str, str]], Any] | None = {
        "klamm": lambda o: write_options({**client_options(source), **o}),
        "elasticsearch": elasticsearch_options.checked,
        "sql": sql_options.checked,
    }.get(output.format)
    if found is None:
        return
    try:
        found(dict(output.options))
    except ConfigError as e:
        raise ConfigError(
            f"[[outputs]] {output.name} options: {e}", key=f"outputs[{n}].options.{e.key or ''}"
        ) from None


def check_schema(place: str, text: str, key: str) -> None:
    """Checks brackets, and that every field has a name and a known type. Raises ConfigError."""
    plain = _QUOTED.sub("''", text)
    fields = _fields(place, plain, text, key)
    for field in fields:
        match = _FIELD.fullmatch(field)
        if match is None:
            raise ConfigError(
                f"{place} = {text!r}: {field.strip()!r} is no field: write a name and a type, such as id BIGINT",
                key=key,
            )
        kind = match[1].upper()
        if kind not in _TYPES and (hint := meant(kind, _TYPES)).startswith("did"):
            raise ConfigError(f"{place} = {text!r}: {match[1]} is no type; {hint}", key=key)


def _fields(place: str, plain: str, text: str, key: str) -> list[str]:
    """Splits the text at its outermost commas."""
    fields, inside, name = [""], "", False
    for c in plain:
        name ^= c == "`"
        if not name and c in "(<":
            inside += c
        elif not name and c in _BRACKETS:
            if not inside.endswith(_BRACKETS[c]):
                raise ConfigError(f"{place} = {text!r}: {c} closes nothing", key=key)
            inside = inside[:-1]
        if c == "," and not inside and not name:
            fields.append("")
        else:
            fields[-1] += c
    if inside:
        raise ConfigError(f"{place} = {text!r}: {inside[-1]} is not closed", key=key)
    return fields


def check_sql(place: str, text: str, key: str) -> None:
    """Checks by its first word that the text is a query. Raises ConfigError."""
    plain = _COMMENTS.sub(" ", text).strip()
    if not plain:
        raise ConfigError(f"{place} is empty: a query over the view input is expected", key=key)
    first = re.match(r"\w+", plain)
    if first is None or first[0].upper() in _STATEMENTS:
        return
    if (hint := meant(first[0].upper(), _STATEMENTS)).startswith("did"):
        raise ConfigError(f"{place} begins with {first[0]}; {hint}", key=key)


def check_function(name: str, places: Sequence[str], *, elsewhere: bool = False) -> None:
    """Checks that `module:function` exists, beside the job's file or installed. Runs none of it. Raises
    ConfigError.

    `elsewhere`: Spark brings modules along (`spark.submit.pyFiles`).
    """
    module, _, attribute = name.partition(":")
    place = f"[query] function = {name!r}"
    relative = Path(*module.split("."))
    for base in places:
        for path in (Path(base, relative).with_suffix(".py"), Path(base, relative, "__init__.py")):
            if path.is_file():
                _check_defined(place, path, attribute)
                return
    top = module.partition(".")[0]
    if elsewhere or any(Path(base, top).is_dir() for base in places):
        return
    if importlib.util.find_spec(top) is None:
        raise ConfigError(
            f"{place}: there is no module {top}, neither beside the file nor installed", key="query.function"
        )


def _check_defined(place: str, path: Path, attribute: str) -> None:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as e:
        raise ConfigError(f"{place}: {path} cannot be read: {e.strerror}", key="query.function") from None
    except (SyntaxError, ValueError) as e:
        line = f":{e.lineno}" if isinstance(e, SyntaxError) and e.lineno else ""
        why = e.msg if isinstance(e, SyntaxError) else str(e)
        raise ConfigError(f"{place}: {path}{line} is no Python: {why}", key="query.function") from None
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    if attribute in names or not all(_plain(n) for n in tree.body):
        return
    given = {
        t.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    given |= {
        (a.asname or a.name) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names
    }
    if attribute not in given and "*" not in given:
        public = sorted(n for n in names if not n.startswith("_"))
        hint = meant(attribute, public) if public else "it has none"
        raise ConfigError(f"{place}: {path.name} has no function {attribute}; {hint}", key="query.function")


def _plain(node: ast.stmt) -> bool:
    """Returns True when a statement of a module defines only names that are visible in its text."""
    return isinstance(
        node,
        ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.Expr,
    )
