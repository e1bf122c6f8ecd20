"""The Elasticsearch sink: records of topics become documents, with the keys of Confluent's connector."""

from __future__ import annotations

from klamm_connectors.elasticsearch.connector import ElasticsearchSinkConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [ElasticsearchSinkConnector]
