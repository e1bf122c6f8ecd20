"""The kinds of tests, which follow from the fixtures that a test takes.

*pure* starts no process, *process* starts ours, *peer* starts somebody else's, *suite* runs the test suite of another
client, *soak* takes minutes by itself. A test that starts processes in its body, and not by a fixture of the table
below, takes `processes` or the fixtures of its peers (`support.needs`), as arguments or by `pytest.mark.usefixtures`. A pure test that starts
a process fails (`support.starts`), so that the kinds are true.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

KINDS = ("pure", "process", "peer", "suite", "soak")
"""The kinds in their order: a test is of the last kind that one of its fixtures asks for."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The kind of a test that takes a fixture, and the peer that it meets by it."""

    kind: str
    peer: str | None = None


PROCESS = Needs("process")
KAFKA = Needs("peer", "Apache Kafka")
FRANZ_GO = Needs("peer", "franz-go")
ELASTICSEARCH = Needs("peer", "Elasticsearch")
MARIADB = Needs("peer", "MariaDB")
POSTGRESQL = Needs("peer", "PostgreSQL")
RSYSLOG = Needs("peer", "rsyslog")
SPARK = Needs("peer", "Apache Spark")
KERBEROS = Needs("peer", "Kerberos")
DOCKER = Needs("peer", "Docker")
CHROMIUM = Needs("peer", "Chromium")

FIXTURES = {
    "processes": PROCESS,
    "bootstrap": PROCESS,
    "broker": PROCESS,
    "klamm_bootstrap": PROCESS,
    "klamm_broker": PROCESS,
    "klamm_own_broker": PROCESS,
    "klamm_worker_of": PROCESS,
    "apache_kafka": KAFKA,
    "kafka_tools": KAFKA,
    "two_brokers": KAFKA,
    "franz_go": FRANZ_GO,
    "elasticsearch": ELASTICSEARCH,
    "elasticsearch_server": ELASTICSEARCH,
    "mariadb": MARIADB,
    "mariadb_server": MARIADB,
    "postgresql": POSTGRESQL,
    "rsyslog": RSYSLOG,
    "apache_spark": SPARK,
    "spark": SPARK,
    "kdc": KERBEROS,
    "docker_engine": DOCKER,
    "docker_services": DOCKER,
    "chromium": CHROMIUM,
    "java_runtime": Needs("peer"),
    "go_runtime": Needs("peer"),
    "journald": Needs("peer"),
    "prometheus_server": Needs("peer"),
    "systemd_host": Needs("peer", "systemd"),
    "tls_scanner": Needs("peer"),
    "client_suite": Needs("suite"),
    "soak": Needs("soak"),
}
PEERS = list(dict.fromkeys(needs.peer for needs in FIXTURES.values() if needs.peer))


def kind_of(item: pytest.Item) -> str:
    """Returns the kind of a collected test."""
    needed = {FIXTURES[name].kind for name in _fixtures_of(item) if name in FIXTURES}
    return max(needed, key=KINDS.index, default="pure")


def peers_of(item: pytest.Item) -> list[str]:
    """Returns the names of the peers that a collected test meets."""
    met = {FIXTURES[name].peer for name in _fixtures_of(item) if name in FIXTURES}
    return [peer for peer in PEERS if peer in met]


def _fixtures_of(item: pytest.Item) -> list[str]:
    """Returns the names of the fixtures of a test; a doctest may have none."""
    return getattr(item, "fixturenames", [])


def mark(items: list[pytest.Item]) -> None:
    """Gives each test the marker of its kind.

    A parameter asks for a fixture by `pytest.param(…, marks=pytest.mark.needs("apache_kafka"))`, where pytest refuses
    `usefixtures`.
    """
    for item in items:
        asked = [name for m in item.iter_markers("needs") for name in m.args]
        missing = [name for name in asked if name not in _fixtures_of(item)]
        if missing and isinstance(item, pytest.Function):
            item.fixturenames = [
                *missing,
                *item.fixturenames,
            ]  # the list is that of all parameters of the function
        item.add_marker(kind_of(item))


def order(items: list[pytest.Item]) -> None:
    """Puts files that start processes first, the slowest kinds before the others: nobody waits for one of them at the end."""
    ranks: dict[Path, int] = {}
    for item in items:
        ranks[item.path] = max(ranks.get(item.path, 0), KINDS.index(kind_of(item)))
    items.sort(key=lambda item: -ranks[item.path])
