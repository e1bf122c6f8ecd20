"""Says at the end of a run how many tests met a real peer: a green run that skipped them all proves less."""

from __future__ import annotations

import gc
import logging
import os
import resource
from collections import Counter
from collections.abc import Generator, Iterator

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from support import essential, kinds, secret_watch, starts
from support.broker import NO_RETENTION

from klamm.testing import EmbeddedBroker

pytest_plugins = [
    "klamm.testing.fixtures",  # as the tests of a plugin author
    "support.needs",
    "support.elasticsearch",  # one server for all test folders
    "support.mariadb",
    "support.postgresql",
    "support.spark",
]

# Spark's gateway says goodbye at the end of the interpreter, to a stream that is closed by then.
logging.getLogger("py4j").setLevel(logging.WARNING)

# Tests that imitate crashes leave files open; 1024 is a usual limit.
_files, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(_files, min(_most, 8192)) if _most > 0 else 8192, _most))

# A machine that stands still for a moment is no failure of a property.
hypothesis.settings.register_profile("klamm", deadline=None)
# A landing's run says something of the change: it tries the same cases each time. Every other run tries new ones.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
if "KLAMM_CI_STARTED" in os.environ:
    hypothesis.settings.load_profile("ci")
    # The values in our modules, which would depend on what has been imported by then: each test process parses all of them for it.
    providers.is_local_module_file = lambda path: False
else:
    hypothesis.settings.load_profile("klamm")

# Workers of tests have no plugins that whoever runs them has installed.
os.environ["KLAMM_PLUGINS_DIRECTORY"] = "/nonexistent/klamm-plugins"
# Commands of tests work in no context of theirs.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent/klamm-config"

STARTS = pytest.StashKey[starts.Starts]()
starts.watch()
secret_watch.watch()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector away from the tests, which all stay: looking at them again and again takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kinds.mark(items)
    kinds.order(items)
    essential.mark(items)


@pytest.fixture(scope="session")
def klamm_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yields the broker of `klamm.testing.fixtures`, which keeps records of years ago here."""
    config = {"group.min.session.timeout.ms": "500", **NO_RETENTION}
    with EmbeddedBroker(tmp_path_factory.mktemp("klamm-broker") / "data", config=config) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _logging_as_before() -> Generator[None]:
    """Restores logging: a command that is run in this process sets it up, on a standard error that ends with its test."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = [h for h in root.handlers if h in handlers or type(h) is not logging.StreamHandler]
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _no_start_in_teardown(request: pytest.FixtureRequest) -> Generator[None]:
    """Ends after all fixtures of the test itself, and before those of the module and the session, which others may have started."""
    yield from _no_start_of_a_pure_test(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[STARTS] = starts.begin()
    return (yield)


def _no_start_of_a_pure_test(item: pytest.Item) -> Generator[None]:
    yield
    seen = item.stash[STARTS]
    if seen.first and kinds.kind_of(item) == "pure":
        first, seen.first = seen.first, ""
        pytest.fail(
            f"a test of the kind pure starts a process ({first}): it takes the fixture `processes`, or that of "
            "its peer (tests/support/kinds.py has the table), as an argument or by pytest.mark.usefixtures",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    yield from _no_start_of_a_pure_test(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    yield from _no_start_of_a_pure_test(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.kind, report.peers = kinds.kind_of(item), kinds.peers_of(item)
    report.essential, report.starts = essential.is_essential(item.nodeid), item.stash[STARTS].count
    # What a test logged may hold half a surrogate pair, which cannot be sent from a test process to the main one.
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total, by_peer = Counter[str](), {peer: Counter[str]() for peer in kinds.PEERS}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        what = "skipped" if outcome == "skipped" else "ran"
        for report in terminalreporter.stats.get(outcome, []):
            peers = getattr(report, "peers", ())
            total[what] += bool(peers)
            for peer in peers:
                by_peer[peer][what] += 1
    if not total.total():
        return
    parts = [f"{peer} {c['ran']} ran, {c['skipped']} skipped" for peer, c in by_peer.items() if c.total()]
    said = f"{total['ran']} ran, {total['skipped']} skipped"
    terminalreporter.write_line(f"tests against real peers: {said} ({'; '.join(parts)})")
