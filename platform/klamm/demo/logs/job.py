"""The Spark job of the demonstration as data, and the sink connectors behind it where the target is SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from klamm.demo.logs.lines import ID_PATTERN, SERVICES
from klamm.demo.logs.target import NAMES, ElasticsearchTarget, SqliteTarget, Target
from klamm_spark.model import Job, Output, Query, Source

WINDOW_MS: Final = 10_000
INPUTS: Final = ("logs.access", "logs.app")
JOB: Final = "demo-logs"
DOCUMENTS: Final = "documents"
PARTITIONS: Final = 2
ACCESS: Final = (
    r'^(?<client>\S+) \S+ (?<user>\S+) \[(?<timestamp>[^\]]+)\] "(?<method>\S+) (?<path>\S+) HTTP/(?<version>[^"]+)" '
    r'(?<status>\d{3}) (?:-|(?<bytes>\d+)) "(?<referrer>[^"]*)" "(?<agent>[^"]*)" (?<seconds>\d+\.\d+) (?<service>\S+) '
    r"rid=(?<id>[0-9a-f]{32})$"
)
"""Nginx's combined format, followed by $request_time, $host and rid=$request_id."""
APPLICATION: Final = "`@timestamp` string, id string, level string, service string, trace_id string, duration_ms double, message string"

_TOGETHER: Final = "minRecordsPerPartition"
"""A task waits for Elasticsearch's answers in one of the two slots. Two tasks of small ranges wait once, four wait twice."""
_ON_TWO_CORES: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "465m",  # Spark refuses a heap of less than 450 MiB
    # The first documents are on their way while the others are parsed
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # There is nothing to adapt in a batch of a second, and planning it in stages costs more than one plan
    "spark.sql.adaptive.enabled": "false",
    # The parallel collectors' threads only take CPU and memory from the job. What a line leaves is young, and some 100 MB stay: a
    # heap that begins small does not reach its bound, and collections cost the same. Without a bound for what is
    # free after one, the old generation grows to three times what lives in it. Java's second compiler waits longer for methods to be
    # worth its time: planning has thousands that run once a batch, and compiling them took 40 % of a core for minutes.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -Xms160m -Xmn96m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=50 -XX:-ShrinkHeapInSteps"
        " -XX:Tier4InvocationThreshold=30000 -XX:Tier4MinInvocationThreshold=5000"
        " -XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=120000"
    ),
}
"""Settings of Spark's for a machine of two cores that the whole pipeline shares."""


def spark_job(bootstrap: str, checkpoint: Path, target: Target) -> Job:
    """Returns the job that reads the topics and writes events, unparsed lines and rates."""
    direct = isinstance(target, ElasticsearchTarget)
    return Job(
        name=JOB,
        checkpoint=str(checkpoint),
        master="local[2]",
        source=Source(
            bootstrap_servers=bootstrap,
            topics=INPUTS,
            starting_offsets="earliest",
            options={_TOGETHER: "3000"},
        ),
        query=Query(
            function=f"klamm_spark.jobs.{'logs' if direct else 'log_connect'}:logs", options=log_options()
        ),
        outputs=(_documents(target), _rates(target)),
        spark=_ON_TWO_CORES,
    )


def log_options() -> dict[str, Any]:
    """Returns the log job's options: the formats of JSON and access lines, and a table of services."""
    access = {
        "client": "source.address", "user": "user.name", "method": "http.request.method", "path": "url.original",
        "version": "http.version", "status": "http.response.status_code", "bytes": "http.response.body.bytes",
        "referrer": "http.request.referrer", "agent": "user_agent.original", "service": "service.name", "id": "event.id",
    }  # fmt: skip
    services = [{"service": s.name, "owner": s.owner, "tier": s.tier} for s in SERVICES]
    return {
        "window": f"{WINDOW_MS} milliseconds",
        "id_pattern": ID_PATTERN,
        "formats": [
            {"name": "app", "type": "json", "schema": APPLICATION, "duration": {"field": "duration_ms"}},
            {
                "name": "access", "type": "regex", "pattern": ACCESS, "rename": access,
                "duration": {"field": "seconds", "unit": "s"},
            },
        ],
        "lookups": [
            {
                "rows": services, "on": "service.name", "key": "service", "default": "unknown",
                "fields": {"owner": "service.owner", "tier": "service.tier"},
            }
        ],
    }  # fmt: skip


def _documents(target: Target) -> Output:
    """Returns the output of events and unparsed lines. One query reads and parses the topics once for both."""
    if isinstance(target, ElasticsearchTarget):
        query = f"SELECT doc_id, concat('{target.index('')}', kind) AS _index, document FROM {DOCUMENTS}"  # noqa: S608
        options = {"hosts": target.url, "id": "doc_id", "document": "document", "refresh": "true"}
        return Output(DOCUMENTS, "elasticsearch", query=query, trigger="1 second", options=options)
    query = f"SELECT key, value, concat('{topic('')}', kind) AS topic FROM {DOCUMENTS}"  # noqa: S608
    return Output(DOCUMENTS, "klamm", query=query, trigger="1 second")


def _rates(target: Target) -> Output:
    # Spark writes a window's row again while the window grows
    if isinstance(target, ElasticsearchTarget):
        options = {"hosts": target.url, "index": target.index("rates"), "id": "doc_id"}
        return Output("rates", "elasticsearch", mode="update", trigger="5 seconds", options=options)
    return Output("rates", "klamm", mode="update", trigger="5 seconds", options={"topic": topic("rates")})


def topic(name: str) -> str:
    """Returns the name of a topic between Spark and the sink connector."""
    return f"demo.{name}"


def connectors(target: SqliteTarget) -> list[dict[str, Any]]:
    """Returns one sink connector per table. Each upserts by `doc_id`, so that a record that Spark writes twice is one row."""
    return [
        {
            "name": f"demo-{name}",
            "config": {
                "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
                "tasks.max": "1",
                "topics": topic(name),
                "connection.url": f"sqlite:///{target.file}",
                "table.name.format": name,
                "insert.mode": "upsert",
                "pk.mode": "record_value",
                "pk.fields": "doc_id",
                "auto.create": "true",
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "true",
            },
        }
        for name in NAMES
    ]
