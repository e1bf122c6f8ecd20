"""Reads and checks Spark jobs (`model`) from TOML. Pure, apart from the file that `load` reads.

Every key and value that cannot be used gets a sentence that says where it stands. `Job.to_json` and
`job_from_json` carry a job to the driver process.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import TomlLines
from klamm_spark.checks import check_contents, check_function
from klamm_spark.model import (
    CONNECTORS,
    MODES,
    OUR_FORMATS,
    READS,
    TIME,
    TRIGGER,
    VALUE_FORMATS,
    VIAS,
    Job,
    Output,
    Poll,
    Query,
    Source,
)
from klamm_spark.sections import Section, as_text, dotted, is_master, is_name, is_regex, matches, one_of

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_INTERVAL: Final = re.compile(TIME)
_DELAY: Final = re.compile(r"\d+\s*(milliseconds?|seconds?|minutes?|hours?|days?)")


def load(path: Path, *, contents: bool = True) -> Job:
    """Loads the job of a TOML file. Relative paths of its functions are looked for beside the file. Raises
    ConfigError.

    Without `contents` it is enough that the sections can be read, for commands that only need the job's place.
    """
    text = _text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{path} is no TOML: {e}") from None
    places = (str(path.resolve().parent),)
    try:
        job = job_from_toml(data, contents=contents)
        if contents and job.query.function is not None:
            check_function(job.query.function, places, elsewhere="spark.submit.pyFiles" in job.spark)
    except ConfigError as e:
        source = _with_line(path, text, e.key)
        raise ConfigError(str(e), key=e.key, source=source) from None
    return dataclasses.replace(job, python_path=places)


def place_in(path: Path, key: str | None) -> str:
    """Returns `job.toml:12` if the file has the key or a table around it, else the file alone."""
    try:
        return _with_line(path, _text(path), key)
    except ConfigError:
        return str(path)


def _with_line(path: Path, text: str, key: str | None) -> str:
    line = TomlLines(text).find(key) if key else None
    return f"{path}:{line}" if line else str(path)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no TOML: it is not UTF-8") from None


def job_from_toml(data: Mapping[str, Any], *, contents: bool = True) -> Job:
    """Returns the job of a parsed TOML document. Raises ConfigError, whose sentence names section and key; its key
    is the place in the document.
    """
    top = Section("", data)
    job, source = top.section("job", required=True), top.section("source", required=True)
    query, spark, metrics = top.section("query"), top.section("spark"), top.section("metrics")
    outputs = tuple(_output(s) for s in top.sections("outputs"))
    top.done()
    answer = Job(
        name=job.text("name", required=True, check=is_name),
        checkpoint=job.text("checkpoint", required=True),
        master=job.text("master", "local[*]", check=is_master),
        accept_changes=job.flag("accept_changes", default=False),
        source=_source(source),
        query=Query(
            query.text_or_none("sql"),
            query.text_or_none("function"),
            query.strings("views"),
            query.table("options"),
        ),
        outputs=outputs,
        spark=_spark_settings(spark),
        metrics_host=metrics.text("host", "127.0.0.1"),
        metrics_port=metrics.number("port"),
    )
    for section in (job, query, metrics):
        section.done()
    check(answer, contents=contents)
    return answer


def job_from_json(data: Mapping[str, Any]) -> Job:
    """Inverts `Job.to_json`."""
    source = dict(data["source"])
    source["topics"] = tuple(source["topics"])
    source["poll"] = Poll(**source["poll"])
    outputs = tuple(
        Output(**{**o, "partition_by": tuple(o["partition_by"]), "key": tuple(o["key"])})
        for o in data["outputs"]
    )
    rest = {k: v for k, v in data.items() if k not in {"source", "query", "outputs", "python_path"}}
    return Job(
        source=Source(**source),
        query=Query(**data["query"]),
        outputs=outputs,
        python_path=tuple(data["python_path"]),
        **rest,
    )


def check(job: Job, *, contents: bool = True) -> None:
    """Checks what needs more than one key, and with `contents` options, schema and queries. Raises ConfigError."""
    query = job.query
    _check_source(job.source)
    if query.sql is not None and query.function is not None:
        raise ConfigError("[query]: set sql or function, not both", key="query.sql")
    if query.function is not None and not _FUNCTION.fullmatch(query.function):
        raise ConfigError(
            f"[query] function = {query.function!r}: write module:function", key="query.function"
        )
    if query.options and query.function is None:
        raise ConfigError("[query.options] are for a function: set function", key="query.options")
    if not job.outputs:
        raise ConfigError("there is no [[outputs]]: name at least one", key="outputs")
    names = [o.name for o in job.outputs]
    if twice := [n for n, name in enumerate(names) if name in names[:n]]:
        raise ConfigError(
            f"[[outputs]]: the name {names[twice[0]]} is given twice; each output has its own checkpoint",
            key=f"outputs[{twice[0]}].name",
        )
    for n, output in enumerate(job.outputs):
        _check_output(job, output, f"outputs[{n}]")
        _check_real_time(job, output, f"outputs[{n}]")
    if contents:
        check_contents(job)


def _check_source(source: Source) -> None:
    if source.format is not None:
        if source.topics or source.topics_regex:
            raise ConfigError("[source]: set format or topics, not both", key="source.format")
        if source.read == "stream" and source.poll != Poll():
            raise ConfigError('[source.poll] is for read = "batch"', key="source.poll")
        if source.poll.column is None and (source.poll.delay or source.poll.start):
            raise ConfigError("[source.poll] start and delay need a column", key="source.poll.column")
        return
    if not source.bootstrap_servers:
        raise ConfigError("[source] bootstrap_servers is missing", key="source.bootstrap_servers")
    if source.read != "stream":
        raise ConfigError('[source] read = "batch" needs a format; topics are streams', key="source.read")
    if bool(source.topics) == bool(source.topics_regex):
        raise ConfigError("[source]: set topics or topics_regex, one of them", key="source.topics")
    if source.value_format == "json" and source.schema is None:
        raise ConfigError(
            '[source] value_format = "json" needs a schema, such as schema = "id BIGINT, name STRING", or schema = "infer"',
            key="source.schema",
        )
    if source.schema is not None and source.value_format != "json":
        raise ConfigError('[source] schema is used with value_format = "json" only', key="source.schema")


def _check_output(job: Job, output: Output, at: str) -> None:
    place = f"[[outputs]] {output.name}"
    if (output.value or output.key) and output.format not in {"klamm", "kafka"}:
        raise ConfigError(f'{place}: value and key are for format = "klamm" and "kafka"', key=f"{at}.value")
    if output.key and output.value is None:
        raise ConfigError(f'{place}: key needs value = "json"', key=f"{at}.key")
    if job.source.read == "batch" and output.exactly_once:
        raise ConfigError(
            f"{place}: deliveryGuarantee=exactly-once is for streams; batch reads are at least once",
            key=f"{at}.options",
        )


def _check_real_time(job: Job, output: Output, at: str) -> None:
    """Checks real-time mode, which takes few sources and sinks. Spark would say so only when the job runs."""
    if output.real_time is None:
        return
    place = f"[[outputs]] {output.name} trigger = {output.trigger!r}"
    if job.source.format is None and job.source.connector != "spark":
        raise ConfigError(
            f'{place}: real-time mode reads topics with Spark\'s own connector: set [source] connector = "spark"',
            key="source.connector",
        )
    if output.mode != "update":
        raise ConfigError(f'{place}: real-time mode needs mode = "update"', key=f"{at}.mode")
    if output.format in OUR_FORMATS or output.by_batches:
        raise ConfigError(
            f'{place}: real-time mode cannot write {output.format}: use format = "kafka", Spark\'s own',
            key=f"{at}.format",
        )


def _source(section: Section) -> Source:
    watermark, poll = section.section("watermark"), section.section("poll")
    source = Source(
        bootstrap_servers=section.text("bootstrap_servers"),
        topics=tuple(section.texts("topics")),
        topics_regex=section.text_or_none("topics_regex", check=is_regex),
        starting_offsets=section.text("starting_offsets", "latest"),
        max_offsets_per_trigger=section.number("max_offsets_per_trigger"),
        fail_on_data_loss=section.flag("fail_on_data_loss", default=True),
        include_headers=section.flag("include_headers", default=False),
        value_format=section.text("value_format", "bytes", check=one_of(VALUE_FORMATS)),
        schema=section.text_or_none("schema"),
        watermark_column=watermark.text_or_none("column"),
        watermark_delay=watermark.text_or_none("delay", check=matches(_DELAY, "10 minutes")),
        options=section.strings("options"),
        connector=section.text("connector", "klamm", check=one_of(CONNECTORS)),
        drift=section.flag("drift", default=True),
        format=section.text_or_none("format"),
        read=section.text("read", "stream", check=one_of(READS)),
        poll=Poll(
            interval=poll.text_or_none("interval", check=matches(_INTERVAL, "10 seconds")),
            column=poll.text_or_none("column"),
            start=poll.text_or_none("start"),
            delay=poll.text_or_none("delay", check=matches(_INTERVAL, "10 seconds")),
        ),
    )
    if (source.watermark_column is None) != (source.watermark_delay is None):
        raise ConfigError("[source.watermark] needs column and delay", key="source.watermark")
    for part in (watermark, poll, section):
        part.done()
    return source


def _output(section: Section) -> Output:
    kind = section.text("format", required=True)
    output = Output(
        name=section.text("name", kind, check=is_name),
        format=kind,
        mode=section.text("mode", "append", check=one_of(MODES)),
        query=section.text_or_none("query"),
        trigger=section.text_or_none("trigger", check=matches(TRIGGER, "10 seconds")),
        partition_by=tuple(section.texts("partition_by")),
        options=section.strings("options"),
        value=section.text_or_none("value", check=one_of(("json",))),
        key=tuple(section.texts("key")),
        via=section.text_or_none("via", check=one_of(VIAS)),
    )
    section.done()
    return output


def _spark_settings(section: Section) -> dict[str, str]:
    found = {
        name: as_text(section.place(name), value, f"spark.{name}")
        for name, value in dotted(section.data).items()
    }
    for name in found:
        if not name.startswith("spark."):
            raise ConfigError(f"[spark] {name}: names begin with spark.", key=f"spark.{name}")
    return found
