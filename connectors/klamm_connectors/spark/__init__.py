"""SparkSink: topics through a Spark job (SQL or a Python function) into what Spark can write. SparkSource: what Spark can
read, through a job, into a topic.

| module | what |
|---|---|
| `keys.py`, `config.py`, `source_config.py` | configuration keys, and the job that they describe |
| `sink.py`, `source.py` | the connector classes |
| `driver_task.py` | a driver task: starts the job's process, follows its events |
| `task.py`, `source_task.py` | where each of them begins, and what it commits |
"""

from __future__ import annotations

from klamm_connectors.spark.sink import SparkSinkConnector
from klamm_connectors.spark.source import SparkSourceConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [SparkSinkConnector, SparkSourceConnector]
