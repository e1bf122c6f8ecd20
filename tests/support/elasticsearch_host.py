"""The process that runs the Elasticsearch of a run of the tests: see `support.shared`."""

from __future__ import annotations

from support import elasticsearch, shared

from klamm.testing.elasticsearch import ElasticsearchServer, Installation

QUICK = ("-XX:TieredStopAtLevel=1",)
"""A Java that starts in two thirds of the time instead of running fast."""

if __name__ == "__main__":
    installation = elasticsearch.installed()
    assert isinstance(installation, Installation), installation
    with ElasticsearchServer(installation, java_options=QUICK) as server:
        shared.serve(port=server.port)
