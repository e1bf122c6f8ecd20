"""What a Spark job is: source, query, outputs. Pure; the same dataclasses come from TOML and from a connector's config.

Every key and value that cannot be used is answered with a sentence that says where it stands. `Job.to_json` and
`job_from_json` carry a job to the driver process.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError

INPUT_VIEW: Final = "input"
VALUE_FORMATS: Final = ("bytes", "string", "json")
MODES: Final = ("append", "update", "complete")
OUR_FORMATS: Final = {"klamm": "klamm", "elasticsearch": "klamm-elasticsearch", "sql": "klamm-sql"}
"""Writers of ours by their name in a config, and the name of their Spark data source."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_TRIGGER: Final = re.compile(r"\d+\s*(ms|milliseconds?|s|seconds?|minutes?|hours?)")
_DELAY: Final = re.compile(r"\d+\s*(milliseconds?|seconds?|minutes?|hours?|days?)")


@dataclass(frozen=True, slots=True)
class Source:
    """The topics and how their values become columns."""

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    topics_regex: str | None = None
    starting_offsets: str = "latest"
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    value_format: str = "bytes"
    schema: str | None = None
    watermark_column: str | None = None
    watermark_delay: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def reader_options(self) -> dict[str, str]:
        """Options of `format("klamm")`."""
        where = (
            {"subscribe": ",".join(self.topics)}
            if self.topics
            else {"subscribePattern": self.topics_regex or ""}
        )
        most = (
            {}
            if self.max_offsets_per_trigger is None
            else {"maxOffsetsPerTrigger": str(self.max_offsets_per_trigger)}
        )
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "startingOffsets": self.starting_offsets,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "includeHeaders": str(self.include_headers).lower(),
            **where,
            **most,
            **self.options,
        }


@dataclass(frozen=True, slots=True)
class Query:
    """SQL over the view `input`, or a Python function `module:function(df, spark)`; neither: the input as it is."""

    sql: str | None = None
    function: str | None = None
    views: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    format: str
    mode: str = "append"
    query: str | None = None
    trigger: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def spark_format(self) -> str:
        return OUR_FORMATS.get(self.format, self.format)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    checkpoint: str
    source: Source
    outputs: tuple[Output, ...]
    query: Query = Query()
    master: str = "local[*]"
    spark: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    available_now: bool = False

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def load(path: Path) -> Job:
    """The job of a TOML file; relative paths of its functions are looked for beside the file. Raises ConfigError."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}") from None
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{path} is no TOML: {e}") from None
    try:
        job = job_from_toml(data)
    except ConfigError as e:
        raise ConfigError(str(e), key=e.key, source=str(path)) from None
    return dataclasses.replace(job, python_path=(str(path.resolve().parent),))


def job_from_toml(data: Mapping[str, Any]) -> Job:
    """The job of a parsed TOML document. Raises ConfigError, naming section and key."""
    top = _Section("", data)
    job, source = top.section("job", required=True), top.section("source", required=True)
    query, spark = top.section("query"), top.section("spark")
    outputs = tuple(_output(s) for s in top.sections("outputs"))
    top.done()
    answer = Job(
        name=job.text("name", required=True, check=_is_name),
        checkpoint=job.text("checkpoint", required=True),
        master=job.text("master", "local[*]"),
        source=_source(source),
        query=Query(query.text_or_none("sql"), query.text_or_none("function"), query.strings("views")),
        outputs=outputs,
        spark=_spark_settings(spark),
    )
    for section in (job, query):
        section.done()
    check(answer)
    return answer


def job_from_json(data: Mapping[str, Any]) -> Job:
    """The inverse of `Job.to_json`."""
    source = dict(data["source"])
    source["topics"] = tuple(source["topics"])
    outputs = tuple(Output(**{**o, "partition_by": tuple(o["partition_by"])}) for o in data["outputs"])
    rest = {k: v for k, v in data.items() if k not in {"source", "query", "outputs", "python_path"}}
    return Job(
        source=Source(**source),
        query=Query(**data["query"]),
        outputs=outputs,
        python_path=tuple(data["python_path"]),
        **rest,
    )


def check(job: Job) -> None:
    """What one key alone cannot tell. Raises ConfigError."""
    source, query = job.source, job.query
    if bool(source.topics) == bool(source.topics_regex):
        raise ConfigError("[source]: set topics or topics_regex, one of them", key="source.topics")
    if source.value_format == "json" and source.schema is None:
        raise ConfigError(
            '[source] value_format = "json" needs a schema, such as schema = "id BIGINT, name STRING"',
            key="source.schema",
        )
    if source.schema is not None and source.value_format != "json":
        raise ConfigError('[source] schema is used with value_format = "json" only', key="source.schema")
    if query.sql is not None and query.function is not None:
        raise ConfigError("[query]: set sql or function, not both", key="query.sql")
    if query.function is not None and not _FUNCTION.fullmatch(query.function):
        raise ConfigError(
            f"[query] function = {query.function!r}: write module:function", key="query.function"
        )
    if not job.outputs:
        raise ConfigError("there is no [[outputs]]: name at least one", key="outputs")
    names = [o.name for o in job.outputs]
    if twice := {n for n in names if names.count(n) > 1}:
        raise ConfigError(
            f"[[outputs]]: the name {min(twice)} is given twice; each output has its own checkpoint",
            key="outputs.name",
        )


def _source(section: _Section) -> Source:
    watermark = section.section("watermark")
    source = Source(
        bootstrap_servers=section.text("bootstrap_servers", required=True),
        topics=tuple(section.texts("topics")),
        topics_regex=section.text_or_none("topics_regex", check=_is_regex),
        starting_offsets=section.text("starting_offsets", "latest"),
        max_offsets_per_trigger=section.number("max_offsets_per_trigger"),
        fail_on_data_loss=section.flag("fail_on_data_loss", default=True),
        include_headers=section.flag("include_headers", default=False),
        value_format=section.text("value_format", "bytes", check=_one_of(VALUE_FORMATS)),
        schema=section.text_or_none("schema"),
        watermark_column=watermark.text_or_none("column"),
        watermark_delay=watermark.text_or_none("delay", check=_matches(_DELAY, "10 minutes")),
        options=section.strings("options"),
    )
    if (source.watermark_column is None) != (source.watermark_delay is None):
        raise ConfigError("[source.watermark] needs column and delay", key="source.watermark")
    for part in (watermark, section):
        part.done()
    return source


def _output(section: _Section) -> Output:
    kind = section.text("format", required=True)
    output = Output(
        name=section.text("name", kind, check=_is_name),
        format=kind,
        mode=section.text("mode", "append", check=_one_of(MODES)),
        query=section.text_or_none("query"),
        trigger=section.text_or_none("trigger", check=_matches(_TRIGGER, "10 seconds")),
        partition_by=tuple(section.texts("partition_by")),
        options=section.strings("options"),
    )
    section.done()
    return output


def _spark_settings(section: _Section) -> dict[str, str]:
    found = {name: _as_text(section.place(name), value) for name, value in _dotted(section.data).items()}
    for name in found:
        if not name.startswith("spark."):
            raise ConfigError(f"[spark] {name}: names begin with spark.", key=f"spark.{name}")
    return found


def _dotted(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML reads `spark.sql.x = 1` without quotes as nested tables: back to one name."""
    answer: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            answer.update(_dotted(value, f"{prefix}{name}."))
        else:
            answer[prefix + name] = value
    return answer


Check = Callable[[str, str], None]
"""Gets place and value, raises ConfigError."""


def _is_name(place: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise ConfigError(f"{place} = {value!r}: use letters, digits, _ and -", key=place)


def _is_regex(place: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as e:
        raise ConfigError(f"{place} = {value!r} is no regular expression: {e}", key=place) from None


def _one_of(allowed: tuple[str, ...]) -> Check:
    def check_it(place: str, value: str) -> None:
        if value not in allowed:
            raise ConfigError(f"{place} = {value!r}: use {' or '.join(allowed)}", key=place)

    return check_it


def _matches(pattern: re.Pattern[str], example: str) -> Check:
    def check_it(place: str, value: str) -> None:
        if not pattern.fullmatch(value.strip()):
            raise ConfigError(f"{place} = {value!r}: write a time such as {example!r}", key=place)

    return check_it


def _as_text(place: str, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    raise ConfigError(f"{place} must be a text, a number or true/false", key=place)


class _Section:
    """One TOML table; each key is asked for once, `done` refuses what nobody asked for."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.data = data
        self._asked: set[str] = set()

    def place(self, key: str) -> str:
        return f"[{self.name}] {key}" if self.name else key

    def _get(self, key: str, kind: type, what: str) -> Any:
        self._asked.add(key)
        value = self.data.get(key)
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        raise ConfigError(f"{self.place(key)} must be {what}", key=key)

    def text_or_none(self, key: str, check: Check | None = None) -> str | None:
        value: str | None = self._get(key, str, "a text")
        if value is not None and check is not None:
            check(self.place(key), value)
        return value

    def text(self, key: str, default: str = "", *, required: bool = False, check: Check | None = None) -> str:
        value = self.text_or_none(key, check)
        if required and not value:
            raise ConfigError(f"{self.place(key)} is missing", key=key)
        return default if value is None else value

    def texts(self, key: str) -> list[str]:
        value: list[Any] = self._get(key, list, "a list of texts") or []
        if not all(isinstance(v, str) and v for v in value):
            raise ConfigError(f"{self.place(key)} must be a list of texts", key=key)
        return value

    def number(self, key: str) -> int | None:
        value: int | None = self._get(key, int, "a whole number")
        if value is not None and value < 1:
            raise ConfigError(f"{self.place(key)} = {value}: at least 1", key=key)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value: bool | None = self._get(key, bool, "true or false")
        return default if value is None else value

    def strings(self, key: str) -> dict[str, str]:
        found = _dotted(self._get(key, dict, "a table") or {})
        return {k: _as_text(f"{self.place(key)}.{k}", v) for k, v in found.items()}

    def section(self, key: str, *, required: bool = False) -> _Section:
        value: dict[str, Any] | None = self._get(key, dict, "a table")
        if value is None and required:
            raise ConfigError(f"the section [{key}] is missing", key=key)
        return _Section(f"{self.name}.{key}" if self.name else key, value or {})

    def sections(self, key: str) -> list[_Section]:
        value: list[Any] = self._get(key, list, "written as [[outputs]]") or []
        if not all(isinstance(v, dict) for v in value):
            raise ConfigError(f"{key} must be written as [[{key}]]", key=key)
        return [_Section(key, v) for v in value]

    def done(self) -> None:
        if unknown := sorted(set(self.data) - self._asked):
            where = f"[{self.name}]" if self.name else "the top level"
            raise ConfigError(
                f"{where} has an unknown key {unknown[0]}; known are {', '.join(sorted(self._asked))}",
                key=unknown[0],
            )
