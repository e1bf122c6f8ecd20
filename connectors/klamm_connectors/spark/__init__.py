"""SparkSink: records of topics through a Spark job (SQL or a Python function) into what Spark can write.

| module | what |
|---|---|
| `config.py` | configuration keys, and the job that they describe |
| `sink.py` | the connector class |
| `task.py` | the driver task: starts the job's process, follows its events |
"""

from __future__ import annotations

from klamm_connectors.spark.sink import SparkSinkConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [SparkSinkConnector]
