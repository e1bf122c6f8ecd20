"""Fixtures for pytest: put `pytest_plugins = ["klamm.testing.fixtures"]` into the conftest.py at the root of the tests.

Nothing starts before a test asks for it, and then once a session. KLAMM_TEST_BOOTSTRAP names a cluster (an Apache Kafka, say)
that takes the place of the embedded broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from klamm.testing.broker import EmbeddedBroker
from klamm.testing.clock import FakeClock
from klamm.testing.topics import make_topic
from klamm.testing.worker import EmbeddedWorker

pytest.register_assert_rewrite(
    "klamm.testing.source_suite",
    "klamm.testing.sink_suite",
    "klamm.testing.connector_suite",
    "klamm_plugins.testing",
)

BOOTSTRAP_VARIABLE: Final = "KLAMM_TEST_BOOTSTRAP"
# The broker notices a killed member soon. Other clusters do not allow that; there a sink waits for ten seconds more.
SHORT_SESSIONS: Final = {"consumer.session.timeout.ms": "1500", "consumer.heartbeat.interval.ms": "200"}

WorkerOf = Callable[..., EmbeddedWorker]


@pytest.fixture(scope="session")
def klamm_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker for the session. Tests that stop or kill a broker start one of their own."""
    config = {"group.min.session.timeout.ms": "500"}
    with EmbeddedBroker(tmp_path_factory.mktemp("klamm-broker") / "data", config=config) as broker:
        yield broker


@pytest.fixture(scope="session")
def klamm_own_broker(request: pytest.FixtureRequest) -> EmbeddedBroker | None:
    """Returns `klamm_broker`, or None where the tests run on a cluster that they must not stop."""
    if os.environ.get(BOOTSTRAP_VARIABLE):
        return None
    broker: EmbeddedBroker = request.getfixturevalue("klamm_broker")
    return broker


@pytest.fixture(scope="session")
def klamm_bootstrap(klamm_own_broker: EmbeddedBroker | None) -> str:
    """Returns the address of `klamm_broker`, or of the cluster that KLAMM_TEST_BOOTSTRAP names."""
    return klamm_own_broker.bootstrap if klamm_own_broker else os.environ[BOOTSTRAP_VARIABLE]


@pytest.fixture(scope="session")
def klamm_worker_of(klamm_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerOf]:
    """Returns `klamm_worker_of(*plugins)`, which gives a worker that knows these plugin classes: one worker for each set, started
    again if it has ended.
    """
    workers: dict[tuple[type, ...], EmbeddedWorker] = {}
    config = SHORT_SESSIONS if klamm_own_broker else {}

    def worker_of(*plugins: type) -> EmbeddedWorker:
        if plugins not in workers:
            workers[plugins] = EmbeddedWorker(
                klamm_bootstrap,
                config=config,
                plugins=plugins,
                directory=tmp_path_factory.mktemp("klamm-worker"),
            )
        found = workers[plugins]
        return found if found.running else found.start()

    yield worker_of
    for worker in workers.values():
        worker.stop()


@pytest.fixture
def klamm_worker(klamm_worker_of: WorkerOf) -> EmbeddedWorker:
    """A worker for the session, with the installed plugins. Remove connectors that a test makes."""
    return klamm_worker_of()


@pytest.fixture
def klamm_topic(klamm_bootstrap: str) -> str:
    """A new topic with one partition."""
    return make_topic(klamm_bootstrap)


@pytest.fixture
def fake_clock() -> FakeClock:
    """Time that passes only when somebody waits."""
    return FakeClock()
