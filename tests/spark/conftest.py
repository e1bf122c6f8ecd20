"""One broker for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker import NO_RETENTION

from klamm.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", config=NO_RETENTION) as running:
        yield running
