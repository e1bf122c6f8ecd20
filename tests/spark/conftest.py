"""One broker for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running
