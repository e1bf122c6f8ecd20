"""Says at the end of a run how many tests met a real peer: a green run that skipped them all proves less."""

from __future__ import annotations

from collections import Counter

import pytest
from support.elasticsearch import elasticsearch_server  # noqa: F401  one server for all test folders
from support.mariadb import mariadb, mariadb_database  # noqa: F401  one server for all test folders

PEERS = {
    "kafka": "Apache Kafka",
    "franz": "franz-go",
    "elasticsearch": "Elasticsearch",
    "mariadb": "MariaDB",
    "rsyslog": "rsyslog",
    "spark": "Apache Spark",
    "docker": "Docker",
}


def peer_counts(stats: dict[str, list[pytest.TestReport]]) -> dict[str, Counter[str]]:
    """Per peer marker: how many tests ran and how many were skipped, from the reports by outcome."""
    counts: dict[str, Counter[str]] = {marker: Counter() for marker in PEERS}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        for report in stats.get(outcome, []):
            for marker in PEERS:
                if marker in getattr(report, "keywords", ()):
                    counts[marker]["skipped" if outcome == "skipped" else "ran"] += 1
    return counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = peer_counts(terminalreporter.stats)
    if not any(c.total() for c in counts.values()):
        return
    parts = [f"{PEERS[m]} {c['ran']} ran, {c['skipped']} skipped" for m, c in counts.items() if c.total()]
    ran, skipped = (sum(c[what] for c in counts.values()) for what in ("ran", "skipped"))
    terminalreporter.write_line(f"against real peers: {ran} ran, {skipped} skipped ({'; '.join(parts)})")
