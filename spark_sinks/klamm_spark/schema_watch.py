"""The schema of a job's JSON values: inferred if asked for, kept beside the checkpoint, compared with arriving
values.

Spark counts in each batch the values that it could not read in full, and hands over a few of the batch's
values, chosen by a hash of their offsets: looking at these costs nothing per record. So a changed type is
found exactly, a new field when a sample has it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from klamm_base.errors import ConfigError
from klamm_spark.beside import SCHEMA, Files, read_json, write_json
from klamm_spark.blame import reading
from klamm_spark.datasource.cluster import Cluster
from klamm_spark.datasource.offsets import Partition, nested
from klamm_spark.datasource.options import read_options
from klamm_spark.model import STARTS, Job, Source
from klamm_spark.schema_drift import (
    NULL,
    TopicDrift,
    Type,
    columns,
    merged_all,
    of_spark,
    sentence,
    type_of,
)

log = logging.getLogger(__name__)

NAME: Final = "klamm_schema"
SAMPLE: Final = 20
"""Values of a batch that are looked at, and of those that Spark could not read."""
VALUE_MAX: Final = 64 << 10
"""Characters; larger values are not looked at."""
FIRST_SAMPLE: Final = 2_000
"""Records that a schema is inferred from, from both ends of the topics."""
TELL_S: Final = 30.0
"""The interval at which grown counts are reported."""
_LOOK_S: Final = 1.0


class _Reports(Protocol):
    def send(self, event: dict[str, Any]) -> None: ...


class _Stopping(Protocol):
    def wait(self, timeout: float | None = None) -> bool: ...


def observed(whole: DataFrame, corrupt: Column) -> DataFrame:
    """Adds the observation. `whole` has Kafka's columns with the value as text; `corrupt` is the unreadable text."""
    small = F.length("value") <= VALUE_MAX
    value = F.struct("topic", "value")
    order = F.xxhash64("topic", "partition", "offset")
    return whole.observe(
        NAME,
        F.count(F.lit(1)).alias("rows"),
        F.count(corrupt).alias("corrupt"),
        F.max_by(value, F.when(small, order), SAMPLE).alias("sample"),
        F.max_by(value, F.when(small & corrupt.isNotNull(), order), SAMPLE).alias("unread"),
    )


class SchemaWatch:
    """The knowledge of the topics' documents. `take` gets progress events."""

    def __init__(self, files: Files, reporter: _Reports, schema: Type, kept: dict[str, Any]) -> None:
        self._files, self._reporter, self._schema = files, reporter, schema
        self._kept = kept
        self._topics = {t: TopicDrift.from_json(schema, d) for t, d in kept.get("drift", {}).items()}
        self._corrupt = 0
        self._told_at = 0.0
        self._told = 0

    def take(self, event: dict[str, Any], now: float | None = None) -> None:
        """Takes our observation out of an event, and reports what is new in it."""
        seen = event.get("observed", {})
        found = seen.pop(NAME, None)
        if not seen:
            event.pop("observed", None)
        if not found:
            return
        now = time.time() if now is None else now
        self._corrupt += found.get("corrupt") or 0
        news = False
        for entry in [*(found.get("sample") or ()), *(found.get("unread") or ())]:
            if entry:
                news |= self._document(entry["topic"], entry["value"], now)
        counted = self._corrupt + sum(t.records for t in self._topics.values())
        if news or (counted > self._told and now - self._told_at > TELL_S):
            self._tell(now, counted)

    def _document(self, topic: str, text: str, now: float) -> bool:
        drift = self._topics.setdefault(topic, TopicDrift(self._schema))
        before = set(drift.found)
        try:
            news = drift.take(json.loads(text), now)
        except (ValueError, RecursionError):  # no JSON, or nested deeper than anybody means it
            news = drift.unreadable(now)
        for key in drift.found.keys() - before:
            log.warning("%s", sentence(topic, drift.found[key]))
        return news

    def _tell(self, now: float, counted: int) -> None:
        self._told_at, self._told = now, counted
        topics = {name: t.to_json() for name, t in self._topics.items() if t.found or t.records}
        records = {name: t["records"] for name, t in topics.items()}
        try:
            if not self._adopted():
                write_json(self._files, SCHEMA, self._kept | {"drift": topics})
        except OSError as e:
            log.warning("the schema's drift cannot be written: %s", e)
        self._reporter.send(
            {"event": "drift", "topics": topics, "records": records, "corrupt": self._corrupt}
        )

    def _adopted(self) -> bool:
        """Returns True when `--adopt` has written another schema. It counts from the next start on and must not be
        overwritten.
        """
        ours = self._kept.get("schema")
        return bool(self._kept.get("inferred")) and read_json(self._files, SCHEMA).get("schema", ours) != ours


def resolve(
    job: Job, spark: SparkSession, files: Files, reporter: _Reports, stop: _Stopping
) -> tuple[Job, SchemaWatch | None] | None:
    """Returns the job with its schema, inferred if it asks for that, and its watch.

    Waits for the first records. Returns None when told to stop before there were any.
    """
    source = job.source
    if source.value_format != "json" or source.format is not None:
        return job, None
    kept = read_json(files, SCHEMA)
    if source.infers:
        found = _inferred(source, spark, kept, reporter, stop)
        if found is None:
            return None
        kept = {"version": 1, "inferred": True, "topics": found[0], "drift": kept.get("drift", {})}
        source = dataclasses.replace(
            found[1], schema=columns(merged_all(t["type"] for t in found[0].values()))
        )
        schema = merged_all(t["type"] for t in found[0].values())
        write_json(files, SCHEMA, kept | {"schema": source.schema})
    else:
        same = kept.get("schema") == source.schema and not kept.get("inferred")
        kept = {"version": 1, "inferred": False, "topics": {}, "drift": kept.get("drift", {}) if same else {}}
        with reading("[source] schema", "source.schema"):
            schema = of_spark(StructType.fromDDL(str(source.schema)).jsonValue())
    watch = SchemaWatch(files, reporter, schema, kept | {"schema": source.schema}) if source.drift else None
    return dataclasses.replace(job, source=source), watch


def as_kept(job: Job, files: Files) -> Job:
    """Returns the job with the schema that was inferred before. Raises ConfigError when none was."""
    schema = read_json(files, SCHEMA).get("schema")
    if not schema:
        raise ConfigError(
            f"no schema is kept beside {job.checkpoint} yet: it is inferred when the job runs",
            key="source.schema",
        )
    return dataclasses.replace(job, source=dataclasses.replace(job.source, schema=schema))


def _inferred(
    source: Source, spark: SparkSession, kept: Mapping[str, Any], reporter: _Reports, stop: _Stopping
) -> tuple[dict[str, Any], Source] | None:
    """Returns the types by topic, kept ones and those of new topics; None when told to stop."""
    known: dict[str, Any] = dict(kept.get("topics", {})) if kept.get("inferred") else {}
    cluster = Cluster(read_options(_options(source)))
    begins: str | None = None
    told = False
    while True:
        wanted = cluster.subscribed(cluster.topics())
        earliest, latest = cluster.bounds(wanted)
        if begins is None and source.starting_offsets.strip().lower() == "latest":
            begins = json.dumps(nested(latest))  # what comes while we wait is not to be passed over
        fresh = [p for p in wanted if p[0] not in known]
        known |= _sampled(source, spark, {p: (earliest[p], latest[p]) for p in fresh})
        if known:
            return known, source if begins is None else dataclasses.replace(source, starting_offsets=begins)
        if not told:
            log.info("the schema is inferred from what arrives: waiting for the first records")
            reporter.send({"event": "waiting", "for": "records"})
            told = True
        if stop.wait(_LOOK_S):
            return None


def _options(source: Source) -> dict[str, str]:
    leave = {*STARTS, "maxoffsetspertrigger"}
    return {k: v for k, v in source.reader_options().items() if k.lower() not in leave}


def _sampled(
    source: Source, spark: SparkSession, bounds: Mapping[Partition, tuple[int, int]]
) -> dict[str, Any]:
    """Returns the types of the documents at both ends of the partitions, by topic."""
    there = {p: b for p, b in bounds.items() if b[0] < b[1]}
    if not there:
        return {}
    share = max(10, FIRST_SAMPLE // 2 // len(there))
    parts = [
        {p: (low, min(high, low + share)) for p, (low, high) in there.items()},
        {p: (max(low + share, high - share), high) for p, (low, high) in there.items() if high - low > share},
    ]
    found: dict[str, list[Any]] = {}
    for part in parts:
        for topic, text in _read(source, spark, part):
            try:
                document = json.loads(text)
                type_of(document)
                found.setdefault(topic, []).append(document)
            except (ValueError, RecursionError):
                log.debug("%s: a value that is no JSON", topic)
    answer = {}
    for topic, documents in found.items():
        kind = merged_all(type_of(d) for d in documents if isinstance(d, dict))
        if kind != NULL:
            answer[topic] = {
                "type": kind,
                "schema": columns(kind),
                "documents": len(documents),
                "at": time.time(),
            }
            log.info("%s: schema of %d documents: %s", topic, len(documents), columns(kind))
    return answer


def _read(
    source: Source, spark: SparkSession, part: Mapping[Partition, tuple[int, int]]
) -> Iterable[tuple[str, str]]:
    if not part:
        return []
    numbers: dict[str, list[int]] = {}
    for topic, partition in part:
        numbers.setdefault(topic, []).append(partition)
    options = {k: v for k, v in _options(source).items() if k not in {"subscribe", "subscribePattern"}} | {
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(nested({p: low for p, (low, _) in part.items()})),
        "endingOffsets": json.dumps(nested({p: high for p, (_, high) in part.items()})),
    }
    rows = spark.read.format("klamm").options(**options).load()
    text = rows.select("topic", F.col("value").cast("string").alias("value")).where("value IS NOT NULL")
    return [(r["topic"], r["value"]) for r in text.collect()]
