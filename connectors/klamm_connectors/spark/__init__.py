"""SparkSink and SparkSource: topics through a Spark job into what Spark can write, and what it can read into a topic. SparkSource: what Spark can
read, through a job, into a topic.

| module | what |
|---|---|
| `sink/`, `source/` | each connector: its class, its configuration as a Spark job, its task |
| `common_config.py` | the keys that both connectors have |
| `driver_task.py` | the base of both tasks: starts the job's process, follows its events |
"""

from __future__ import annotations

from klamm_connectors.spark.sink.connector import SparkSinkConnector
from klamm_connectors.spark.source.connector import SparkSourceConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [SparkSinkConnector, SparkSourceConnector]
