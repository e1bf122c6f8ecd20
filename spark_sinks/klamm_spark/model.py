"""The parts of a Spark job: source, query, outputs. Pure; the same dataclasses come from TOML and from a connector's config."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

INPUT_VIEW: Final = "input"
VALUE_FORMATS: Final = ("bytes", "string", "json")
INFER: Final = "infer"
"""Stands for a schema: it is inferred from what arrives, and kept beside the checkpoint."""
CONNECTORS: Final = ("klamm", "spark")
READS: Final = ("stream", "batch")
VIAS: Final = ("stream", "batch")
BATCH_ONLY: Final = frozenset({"jdbc"})
"""Spark's formats that streams cannot be written to, only batch by batch."""
MODES: Final = ("append", "update", "complete")
OUR_FORMATS: Final = {"klamm": "klamm", "elasticsearch": "klamm-elasticsearch", "sql": "klamm-sql"}
"""Our writers by their name in a configuration, with the name of their Spark data source."""

STARTS: Final = frozenset({"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"})
"""Options of a source that say where it begins, in place of `starting_offsets`; in small letters."""
AVAILABLE_NOW: Final = "available_now"
TIME: Final = r"\d+\s*(ms|milliseconds?|s|seconds?|minutes?|hours?)"
REAL_TIME: Final = re.compile(rf"(?i:real[-_ ]?time)\s+(?P<interval>{TIME})")
TRIGGER: Final = re.compile(rf"{AVAILABLE_NOW}|{TIME}|{REAL_TIME.pattern}")


@dataclass(frozen=True, slots=True)
class Poll:
    """Batch reads of a source: how often, and which rows are new.

    Without an interval the source is read once. Without a column every read takes everything. With a column a
    read takes the rows whose value is above the highest that was read and, with `delay` (for timestamps), older
    than this: a transaction that commits late brings rows that look old.
    """

    interval: str | None = None
    column: str | None = None
    start: str | None = None
    delay: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The input of a job: topics and the way their values become columns, or (`format`) any source of Spark's."""

    bootstrap_servers: str = ""
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
    connector: str = "klamm"
    drift: bool = True
    format: str | None = None
    read: str = "stream"
    poll: Poll = Poll()

    @property
    def infers(self) -> bool:
        return self.schema is not None and self.schema.strip().lower() == INFER

    def reader_options(self) -> dict[str, str]:
        """Returns the options of `format("klamm")`."""
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
        own = STARTS & {k.lower() for k in self.options}
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            **({} if own else {"startingOffsets": self.starting_offsets}),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "includeHeaders": str(self.include_headers).lower(),
            **where,
            **most,
            **self.options,
        }


@dataclass(frozen=True, slots=True)
class Query:
    """SQL over the view `input`, or a Python function `module:function(df, spark)`. Neither: the input as it is."""

    sql: str | None = None
    function: str | None = None
    views: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The function's third argument: nested tables and lists, as JSON can hold them."""


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    format: str
    mode: str = "append"
    query: str | None = None
    trigger: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    value: str | None = None
    """`json`: rows become records whose value is all columns as a JSON document. None: columns key and value exist."""
    key: tuple[str, ...] = ()
    """Columns that make the key of such records: one as text, several as a JSON document."""
    via: str | None = None
    """`stream` or `batch` (foreachBatch). None: what format and mode need."""

    @property
    def spark_format(self) -> str:
        return OUR_FORMATS.get(self.format, self.format)

    @property
    def by_batches(self) -> bool:
        """True for foreachBatch: Spark streams into Python data sources in append mode only, and into some formats never."""
        if self.via is not None:
            return self.via == "batch"
        return self.format in BATCH_ONLY or (self.format in OUR_FORMATS and self.mode != "append")

    @property
    def exactly_once(self) -> bool:
        """True for our format for topics with exactly-once delivery, in any of the spellings that the option takes."""
        options = {k.lower(): v for k, v in self.options.items()}
        said = options.get("deliveryguarantee", "").strip().replace("_", "-").lower()
        return self.format == "klamm" and said == "exactly-once"

    @property
    def real_time(self) -> str | None:
        """The interval between checkpoints of real-time mode; None for another trigger."""
        found = REAL_TIME.fullmatch((self.trigger or "").strip())
        return found["interval"] if found else None


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    checkpoint: str
    source: Source
    outputs: tuple[Output, ...]
    query: Query = Query()
    master: str = "local[*]"
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    python_path: tuple[str, ...] = ()
    available_now: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    accept_changes: bool = False
    """Start although the query does not fit the checkpoint of its earlier form."""
    position: str | None = None
    """The beginning of batch reads, as JSON, when somebody else keeps it; None: it is kept beside the checkpoint."""

    @property
    def ends(self) -> bool:
        """True if the job ends by itself, with the data that were there when it began."""
        if self.source.read == "batch":
            return self.available_now or self.source.poll.interval is None
        return self.available_now or all(o.trigger == AVAILABLE_NOW for o in self.outputs)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
