"""Two clusters of ours for tests of the mirror: fixtures `source` and `target`, one pair for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def source(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yields the cluster that is mirrored. Tests take topics, groups and aliases of their own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("source") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def target(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yields the cluster that it is mirrored to."""
    with EmbeddedBroker(tmp_path_factory.mktemp("target") / "data") as running:
        yield running
