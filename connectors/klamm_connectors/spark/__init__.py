"""SparkSink and SparkSource: topics through a Spark job into what Spark can write, and what it can read into a topic."""

from __future__ import annotations

from klamm_connectors.spark.sink.connector import SparkSinkConnector
from klamm_connectors.spark.source.connector import SparkSourceConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [SparkSinkConnector, SparkSourceConnector]
