"""The Elasticsearch sink: records of topics become documents, with the keys of Confluent's connector.

| module | what |
|---|---|
| `connector.py` | the connector class (imports no client) |
| `config.py`, `config_checks.py` | configuration keys and typed settings; what cannot be used and why |
| `documents.py`, `mapping.py` (pure) | a record as an action of a bulk request; a schema as a mapping |
| `tracker.py`, `window.py`, `buffer.py` (pure) | what may be committed; how much may be under way; what is sent next |
| `answers.py`, `conflicts.py` (pure) | what an answer of the server means for each document; what it had already |
| `client.py`, `sender.py` | the official client's transport; threads that keep several requests under way |
| `task.py` | the sink task |
"""

from __future__ import annotations

from klamm_connectors.elasticsearch.connector import ElasticsearchSinkConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [ElasticsearchSinkConnector]
