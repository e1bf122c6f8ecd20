"""FileStreamSource and FileStreamSink: lines of a file to a topic, records of topics to lines of a file."""

from __future__ import annotations

from klamm_connectors.file.sink.connector import FileStreamSinkConnector
from klamm_connectors.file.source.connector import FileStreamSourceConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [FileStreamSinkConnector, FileStreamSourceConnector]
