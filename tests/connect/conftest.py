"""A broker for the tests of the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.broker import NO_RETENTION

from klamm.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the address of a broker: Klamm's own, or another one (Apache Kafka) that KLAMM_TEST_BOOTSTRAP names."""
    given = os.environ.get("KLAMM_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    # One partition as in Kafka's recordings; short sessions so that tests need not wait for them to end.
    config = {"num.partitions": "1", "group.min.session.timeout.ms": "1000", **NO_RETENTION}
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", config=config) as broker:
        yield broker.bootstrap
