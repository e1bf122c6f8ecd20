"""Says at the end of a run how many tests met a real peer: a green run that skipped them all proves less."""

from __future__ import annotations

import logging
import os
import resource
from collections import Counter
from collections.abc import Generator

import hypothesis
import pytest
from support.elasticsearch import elasticsearch_server  # noqa: F401  one server for all test folders
from support.mariadb import mariadb, mariadb_database  # noqa: F401  one server for all test folders
from support.spark import spark  # noqa: F401  one session for all test folders

pytest_plugins = ["klamm.testing.fixtures"]  # as the tests of a plugin author

# Spark's gateway says goodbye at the end of the interpreter, to a stream that is closed by then.
logging.getLogger("py4j").setLevel(logging.WARNING)

# Tests that imitate crashes leave files open; 1024 is a usual limit.
_files, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(_files, min(_most, 8192)) if _most > 0 else 8192, _most))

# A machine that stands still for a moment is no failure of a property.
hypothesis.settings.register_profile("klamm", deadline=None)
hypothesis.settings.load_profile("klamm")

# Workers of tests have no plugins that whoever runs them has installed.
os.environ["KLAMM_PLUGINS_DIRECTORY"] = "/nonexistent/klamm-plugins"

PEERS = {
    "kafka": "Apache Kafka",
    "franz": "franz-go",
    "elasticsearch": "Elasticsearch",
    "mariadb": "MariaDB",
    "rsyslog": "rsyslog",
    "spark": "Apache Spark",
    "docker": "Docker",
}


@pytest.fixture(autouse=True)
def _logging_as_before() -> Generator[None]:
    """A command that is run in this process sets logging up, on a standard error that ends with its test."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = [h for h in root.handlers if h in handlers or type(h) is not logging.StreamHandler]
    root.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A report's keywords hold names of folders, too: `spark` there is no marker.
    report.peers = [marker for marker in PEERS if item.get_closest_marker(marker)]
    # What a test logged may hold half a surrogate pair, which cannot be sent from a test process to the main one.
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total, by_peer = Counter[str](), {marker: Counter[str]() for marker in PEERS}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        what = "skipped" if outcome == "skipped" else "ran"
        for report in terminalreporter.stats.get(outcome, []):
            peers = getattr(report, "peers", ())
            total[what] += bool(peers)
            for marker in peers:
                by_peer[marker][what] += 1
    if not total.total():
        return
    parts = [f"{PEERS[m]} {c['ran']} ran, {c['skipped']} skipped" for m, c in by_peer.items() if c.total()]
    said = f"{total['ran']} ran, {total['skipped']} skipped"
    terminalreporter.write_line(f"tests against real peers: {said} ({'; '.join(parts)})")
