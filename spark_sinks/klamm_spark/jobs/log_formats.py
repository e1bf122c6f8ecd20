"""Parses lines into fields, as Spark's columns: one struct per format, null where the line is of another kind.

Grok and regular expressions match once for all of their groups, and JSON is read once; none of it leaves
Java. Only a format of type `python` calls a function, with a column of lines at a time (Arrow).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

import pandas as pd
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import MapType, StringType, StructType

from klamm_base.ecs_names import IDS, LEVELS, NAMES, NUMBER, NUMBERS, TEXTS, TIMES
from klamm_base.errors import ConfigError
from klamm_base.grok import Expanded
from klamm_spark.events import said_by_spark
from klamm_spark.jobs.log_options import SQL_TYPES, UNITS, Format

SEPARATOR: Final = "\x01"
MATCHED: Final = "\x02"
"""The first part of a line that matched. Other lines hardly ever contain it, and then not with as many separators."""
CANONICAL: Final = {
    "service.name": "string", "log.level": "string", "message": "string", "trace.id": "string", "event.id": "string",
    "http.request.method": "string", "url.original": "string", "http.response.status_code": "int",
    "http.response.body.bytes": "bigint", "source.address": "string", "user_agent.original": "string",
    "event.duration": "bigint",
}  # fmt: skip
"""Fields for which every event has a column, with their types."""
_BESIDE: Final = tuple(dict.fromkeys(to for to in NAMES.values() if to not in CANONICAL))
"""Fields of ECS's table without a column of their own: `rest` has them at the top of documents."""
_LEVELS: Final = {str(number): level for number, level in LEVELS.items()}
_CORRUPT: Final = "_klamm_corrupt"
_LOGFMT: Final = r'(?:^|\s)([^\s="]+)=("(?:[^"\\]++|\\.)*+"|[^\s"]*)'
_HTTPDATE: Final = "dd/MMM/yyyy:HH:mm:ss Z"
_FIRST: Final = -62_135_596_800_000_000
_LAST: Final = 253_402_300_800_000_000
"""Microseconds of the years 1 and 10,000: times outside have no place in a document."""
_ZONED: Final = r"(?:[Zz]|[+-]\d{2}:?\d{2})$"


def parsed(df: DataFrame, name: str, format_: Format, before: Column | None) -> DataFrame:
    """Adds the column `name`: the line's fields (a struct of columns, or a map of texts or variants), or null for a line
    of another format. Lines for which `before` is true are not looked at.

    Spark evaluates what is costly and used more than once only once, if it is a column of a step before.
    """
    line = F.col("record" if format_.type == "ecs" else "line")
    wanted = [] if before is None else [~before]
    wanted += [] if format_.when is None else [line.rlike(format_.when)]
    found = _PARSERS[format_.type](line, format_)
    df = df.withColumn(name, F.when(reduce(and_, wanted), found) if wanted else found)
    return df.withColumn(name, _checked(F.col(name), format_))


def _checked(found: Column, format_: Format) -> Column:
    """Turns what a parser found into fields, or null."""
    if format_.expanded is not None:
        whole = (F.size(found) == len(format_.expanded.fields) + 1) & (found[0] == MATCHED)
        return F.when(whole, found)
    if format_.type == "logfmt":
        keys, values = found["keys"], F.transform(found["values"], _unquoted)
        return F.when(F.size(keys) > 0, F.map_from_arrays(keys, values))
    return found


def _by_expression(line: Column, format_: Format) -> Column:
    """Searches once for all groups: regexp_extract would search anew for each of them."""
    expanded = _expanded(format_)
    names = [MATCHED, *(f"${n}" for n in expanded.numbers)]
    whole = f"^(?s:.*?)(?:{expanded.regex})(?s:.*)$"
    return F.split(F.regexp_replace(line, F.lit(whole), F.lit(SEPARATOR.join(names))), SEPARATOR)


def _by_json(line: Column, format_: Format) -> Column:
    if format_.schema is None:
        found = F.from_json(line, "map<string, variant>")
        return F.when(line.startswith("{"), found)
    found = F.from_json(line, f"{format_.schema}, {_CORRUPT} string", {"columnNameOfCorruptRecord": _CORRUPT})
    return F.when(line.startswith("{"), found)


def _by_ecs(record: Column, format_: Format) -> Column:
    """Parses a record that is an ECS document already: the agent, or a logging library, has parsed the line."""
    return F.when(record.startswith("{"), F.from_json(record, "map<string, variant>"))


def _by_logfmt(line: Column, format_: Format) -> Column:
    """Finds at least one pair; the last value of a key counts. Quotes and backslashes are escaped."""
    names = ((1, "keys"), (2, "values"))
    return F.struct(*(F.regexp_extract_all(line, F.lit(_LOGFMT), F.lit(n)).alias(to) for n, to in names))


def _unquoted(value: Column) -> Column:
    inner = F.substring(value, F.lit(2), F.length(value) - 2)
    return F.when(value.startswith('"'), F.regexp_replace(inner, r'\\(["\\])', "$1")).otherwise(value)


def _by_python(line: Column, format_: Format) -> Column:
    """Calls `function(list of lines) -> list of dict or None` with the lines of an Arrow batch."""
    assert format_.function is not None
    name = format_.function
    python_function(name)  # told at the start, not by the first task

    def parse(lines: pd.Series) -> pd.Series:
        found = python_function(name)(lines.tolist())
        if len(found) != len(lines):
            raise ConfigError(
                f"{name} returned {len(found)} results for {len(lines)} lines", key="query.options.formats"
            )
        return pd.Series(
            [None if d is None else {str(k): str(v) for k, v in d.items() if v is not None} for d in found]
        )

    udf: Any = pandas_udf(parse, MapType(StringType(), StringType()))  # type: ignore[call-overload]
    found: Column = udf(line)
    return found


def python_function(name: str) -> Callable[[list[str]], list[Mapping[str, Any] | None]]:
    """Imports the function. Raises ConfigError."""
    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute, None)
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"[[query.options.formats]] function = {name!r}: {e}", key="query.options.formats"
        ) from None
    if not callable(found):
        raise ConfigError(
            f"[[query.options.formats]] function = {name!r}: {module_name} has no function {attribute}",
            key="query.options.formats",
        )
    return found  # type: ignore[no-any-return]


_PARSERS: Final = {
    "grok": _by_expression, "regex": _by_expression, "json": _by_json, "logfmt": _by_logfmt, "python": _by_python,
    "ecs": _by_ecs,
}  # fmt: skip


def is_map(format_: Format) -> bool:
    """Returns whether the fields are known only when a line comes."""
    return format_.type in {"logfmt", "python", "ecs"} or (format_.type == "json" and format_.schema is None)


def fields(raw: Column, format_: Format, schema: StructType | None) -> dict[str, Column]:
    """Returns columns by field, for a format with known fields. `timestamp` and the duration are texts as found."""
    if is_map(format_):
        return {
            name: _entry(raw, format_, name, kind)
            for name, kind in {**CANONICAL, "timestamp": "string"}.items()
        }
    if format_.expanded is not None:
        captured = [
            (f.name, F.when(raw[place] != "", raw[place]), SQL_TYPES[f.type])
            for place, f in enumerate(format_.expanded.fields, 1)
        ]
    else:
        assert schema is not None
        captured = [(path, column, "") for path, column in _leaves(raw, schema)]
    found: dict[str, list[tuple[int, Column]]] = {}
    for own, column, kind in captured:
        name, rank = _renamed(format_, own)
        value, type_ = column, kind
        if rank:
            value, type_ = _fit(own, column), "bigint" if own in NUMBERS else "string"
        if type_ := CANONICAL.get(name, type_):
            value = value.try_cast(type_)
        found.setdefault(name, []).append((rank, value))
    return {name: F.coalesce(*(c for _, c in sorted(columns, key=_rank))) for name, columns in found.items()}


def _rank(ranked: tuple[int, Column]) -> int:
    return ranked[0]


def _fit(name: str, value: Column) -> Column:
    """Returns the value as text when ECS's name may have it, null when it does not fit."""
    text = value.cast("string")
    if name in NUMBERS:
        return F.when(text.rlike(f"^{NUMBER}$"), text)
    return _level(text) if NAMES.get(name) == "log.level" else text


def _level(text: Column) -> Column:
    found = text
    for number, level in _LEVELS.items():
        found = F.when(text == number, level).otherwise(found)
    return found


def _leaves(raw: Column, schema: StructType, above: str = "") -> Iterator[tuple[str, Column]]:
    """Yields fields of nested objects by their dotted names."""
    for f in schema.fields:
        if f.name == _CORRUPT:
            continue
        if isinstance(f.dataType, StructType):
            yield from _leaves(raw.getField(f.name), f.dataType, f"{above}{f.name}.")
        else:
            yield f"{above}{f.name}", raw.getField(f.name)


def understood(raw: Column, format_: Format) -> Column:
    """Returns a column that is true where the line is of this format."""
    if format_.type == "json" and format_.schema is not None:
        return raw.isNotNull() & raw.getField(_CORRUPT).isNull()
    if format_.type == "ecs":
        tags = F.coalesce(F.try_variant_get(raw["tags"], "$", "string"), F.lit(""))
        return raw.isNotNull() & raw["@timestamp"].isNotNull() & ~tags.contains("parsefailure")
    return raw.isNotNull()


def rest(raw: Column, format_: Format, ours: Collection[str]) -> Column | None:
    """Returns the other fields of a format with unknown fields, as the inside of a JSON object; null without any.

    Fields of ECS's table stand at the top, all others below `target`. Without a target the others stand at the top, too;
    only those with a name in `ours` move below the format's name, so that no name occurs twice.
    """
    if not is_map(format_) or format_.type == "ecs":
        return None
    beside = [name for name in _BESIDE if name not in ours or name == "error.message"]
    columns = [_entry(raw, format_, n, "bigint" if n == "process.pid" else "string").alias(n) for n in beside]
    known = F.to_json(F.struct(*columns))
    wanted = ["timestamp", *CANONICAL, *beside]
    whole = [n for n, to in format_.rename.items() if to in wanted]
    whole += [n for n in (*TIMES, *CANONICAL, *beside) if n not in format_.rename]
    if format_.duration_field is not None:
        whole.append(format_.duration_field)
    aliases = [n for n, to in NAMES.items() if n not in format_.rename and to in wanted]
    left = F.map_filter(raw, lambda k, v: ~(k.isin(*whole) | _is_moved(k, v, format_, aliases)))
    if format_.target:
        others = F.when(_is_any(left), F.concat(F.lit(f'"{format_.target}":'), F.to_json(left)))
        return _joined(_inside(known), others)
    top = {*ours, *beside}
    free = F.map_filter(left, lambda k, v: ~k.isin(*top))
    clashing = F.map_filter(left, lambda k, v: k.isin(*top))
    below = F.when(_is_any(clashing), F.concat(F.lit(f'"{format_.name}":'), F.to_json(clashing)))
    return _joined(_inside(known), _inside(F.to_json(free)), below)


def _is_moved(name: Column, value: Column, format_: Format, aliases: list[str]) -> Column:
    """Returns a column that is true where a field has gone to its ECS name."""
    found = F.lit(False)
    for kind in (TEXTS, NUMBERS, IDS):
        names = [n for n in aliases if n in kind]
        levels = [n for n in names if NAMES[n] == "log.level"]
        for some in ([n for n in names if n not in levels], levels):
            if some:
                found = found | (name.isin(*some) & _alias(value, format_, some[0]).isNotNull())
    return found


def _inside(text: Column) -> Column:
    """Returns the inside of a JSON object's text; null for an empty object."""
    return F.when(text != "{}", F.substring(text, F.lit(2), F.length(text) - 2))


def _joined(*insides: Column) -> Column:
    return F.nullif(F.concat_ws(",", *insides), F.lit(""))


def _is_any(fields_: Column) -> Column:
    return F.size(F.map_keys(fields_)) > 0


def duration(raw: Column, format_: Format, schema: StructType | None) -> Column | None:
    """Returns `event.duration` in nanoseconds, from a field in another unit."""
    if format_.duration_field is None:
        return None
    if is_map(format_):
        value = _text(raw[format_.duration_field], format_)
    else:
        known = fields(raw, format_, schema)
        if format_.duration_field not in known:
            raise ConfigError(
                f"[[query.options.formats]] {format_.name}: duration.field {format_.duration_field} is none of "
                f"{', '.join(known)}", key="query.options.formats",
            )  # fmt: skip
        value = known[format_.duration_field]
    return (value.try_cast("double") * UNITS[format_.duration_unit]).try_cast("bigint")


def _entry(raw: Column, format_: Format, name: str, kind: str) -> Column:
    if format_.type == "ecs":
        return _nested(raw, "@timestamp" if name == "timestamp" else name).try_cast(kind)
    own = [n for n, to in format_.rename.items() if to == name]
    if name == "timestamp":
        times = TIMES if format_.time_field == "timestamp" else (format_.time_field, *TIMES)
        own += [n for n in times if n not in format_.rename]
        return F.coalesce(*(_text(raw[n], format_) for n in dict.fromkeys(own))).try_cast(kind)
    texts = [_text(raw[n], format_) for n in own]
    if name not in format_.rename:
        texts.append(
            _nested(raw, name)
            if format_.type == "json" and name in NAMES.values()
            else _text(raw[name], format_)
        )
    aliases = [n for n, to in NAMES.items() if to == name and n not in format_.rename]
    return F.coalesce(*texts, *(_alias(raw[n], format_, n) for n in aliases)).try_cast(kind)


def _alias(value: Column, format_: Format, name: str) -> Column:
    """Returns the value of a field that ECS's table names, as text; null when it does not fit."""
    text = _fit(name, _text(value, format_))
    if format_.type != "json":
        return text
    kind = F.schema_of_variant(value)
    fits = kind == "STRING"
    if name in NUMBERS or name in IDS:
        fits = fits | (kind == "BIGINT")
    elif NAMES[name] == "log.level":
        fits = fits | ((kind == "BIGINT") & text.isin(*LEVELS.values()))
    return F.when(fits, text)


def _nested(raw: Column, name: str) -> Column:
    """Returns a field of nested objects, or a field with dots in its name."""
    head, _, tail = name.partition(".")
    plain = F.try_variant_get(raw[name], "$", "string")
    return F.coalesce(plain, F.try_variant_get(raw[head], f"$.{tail}", "string")) if tail else plain


def _text(value: Column, format_: Format) -> Column:
    return F.try_variant_get(value, "$", "string") if format_.type in {"json", "ecs"} else value


def _renamed(format_: Format, name: str) -> tuple[str, int]:
    """Returns the field that a captured name stands for, and its rank among those: 0 is its own name or one of `rename`."""
    if name in format_.rename:
        return format_.rename[name], 0
    if name in TIMES:
        return "timestamp", -1 if name == format_.time_field else TIMES.index(name)
    return (NAMES[name], 1 + list(NAMES).index(name)) if name in NAMES else (name, 0)


def _expanded(format_: Format) -> Expanded:
    assert format_.expanded is not None
    return format_.expanded


@dataclass(frozen=True, slots=True)
class TimeForm:
    """The way in which a format writes times: `time.format` (None: ISO 8601 or an access log's) and `time.zone`."""

    pattern: str | None
    zone: str


_WORDS: Final = frozenset({None, "UNIX", "UNIX_MS", "SYSLOG"})
"""The values of `time.format` besides patterns."""


def check_time(format_: Format, spark: SparkSession) -> None:
    """Checks a pattern at once: Spark itself looks at it with the first line. Raises ConfigError."""
    if format_.time_format in _WORDS:
        return
    try:
        spark.sql("SELECT try_to_timestamp('', :pattern)", {"pattern": format_.time_format}).collect()
    except (PySparkException, Py4JJavaError) as e:
        raise ConfigError(
            f"[[query.options.formats]] {format_.name}: time.format = {format_.time_format!r} is no pattern of Java's: "
            f"{said_by_spark(e)}", key="query.options.formats",
        ) from None  # fmt: skip


def time_form(format_: Format) -> TimeForm:
    return TimeForm(format_.time_format, format_.time_zone)


def read_time(df: DataFrame, name: str, form: TimeForm) -> DataFrame:
    """Turns the column's texts into times, null without a readable one. `recorded`, the record's time, supplies missing years."""
    text = F.col(name)
    if form.pattern is None:
        # Spark's own reader needs a pattern for the times of access logs, and a tenth of a pattern's time for ISO 8601.
        point = F.when(text.contains(","), F.regexp_replace(text, r"(:\d{2}),(\d)", "$1.$2")).otherwise(text)
        df = df.withColumn("_iso", point.try_cast("timestamp"))
        iso = F.col("_iso")
        here = iso if form.zone == "UTC" else F.when(text.rlike(_ZONED), iso).otherwise(_from(iso, form))
        found = F.coalesce(here, F.when(iso.isNull(), F.try_to_timestamp(text, F.lit(_HTTPDATE))))
    else:
        found = _time(text, form, F.col("recorded"))
    df = df.withColumn(name, found).drop("_iso")
    micros = F.unix_micros(name)
    return df.withColumn(name, F.when((micros >= _FIRST) & (micros < _LAST), F.col(name)))


def _time(text: Column, form: TimeForm, recorded: Column) -> Column:
    match form.pattern:
        case "UNIX":
            return F.timestamp_micros((text.try_cast("double") * 1_000_000).try_cast("bigint"))
        case "UNIX_MS":
            return F.timestamp_micros((text.try_cast("double") * 1_000).try_cast("bigint"))
        case "SYSLOG":
            return _syslog_time(text, form, recorded)
        case pattern:
            found = F.try_to_timestamp(text, F.lit(pattern))
            return found if _has_zone(str(pattern)) else _from(found, form)


def _from(local: Column, form: TimeForm) -> Column:
    return F.to_utc_timestamp(local, form.zone)


def _syslog_time(text: Column, form: TimeForm, recorded: Column) -> Column:
    """Parses `Nov  5 09:01:02`, which has no year: takes the year that brings it nearest before the record's own time."""
    single = F.regexp_replace(text, " +", " ")
    this, before = (
        _from(
            F.try_to_timestamp(F.concat_ws(" ", (F.year(recorded) - back).cast("string"), single), F.lit("yyyy MMM d HH:mm:ss")),
            form,
        )
        for back in (0, 1)
    )  # fmt: skip
    return F.when(this <= recorded + F.expr("interval 1 day"), this).otherwise(before)


def _has_zone(pattern: str) -> bool:
    plain = "".join(pattern.split("'")[::2])
    return any(letter in plain for letter in "zZXxVO")
