"""A genuine Elasticsearch of `klamm.testing` that cannot start."""

from __future__ import annotations

import pytest
from support.elasticsearch import require

from klamm.testing.elasticsearch import ElasticsearchFailed, ElasticsearchServer


@pytest.mark.elasticsearch
@pytest.mark.slow
def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = ElasticsearchServer(require(), settings={"no.such.setting": "1"})
    with (
        pytest.raises(ElasticsearchFailed, match=r"did not start \(exit code \d+\):[^$]*no\.such\.setting"),
        server,
    ):
        pass
    assert not server.running
    assert not server.directory.exists()
