"""Fixtures by which a test says which processes it starts in its body; each skips, with a reason, where the peer is absent."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from klamm_base.extras import how_to_install


def absent(name: str, extra: str | None = None) -> str:
    """Returns the reason to skip where a module of an extra, or of the group `dev`, is absent."""
    how = how_to_install(extra) if extra else "./dev installs it (dependency group dev)"
    return f"{name} is not installed: {how}"


def module(name: str, *, extra: str | None = None) -> Any:
    """Imports a module; skips, and says how to install it, where it is absent."""
    return pytest.importorskip(name, reason=absent(name, extra))


@pytest.fixture(scope="session")
def processes() -> None:
    """Says that a test starts processes of ours."""


@pytest.fixture(scope="session")
def soak() -> None:
    """Says that a test takes minutes by itself, with chance in it: `./dev test --soak` runs it."""


@pytest.fixture(scope="session")
def client_suite() -> None:
    """Says that a test runs the test suite of another client: `./dev test --suites` runs it."""


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    """Says that a test starts Apache Kafka, or runs its classes."""
    from support import kafka_oracle

    kafka_oracle.require()


@pytest.fixture(scope="session")
def apache_spark() -> None:
    """Says that a test starts Spark."""
    from support.spark import require_spark

    require_spark()


@pytest.fixture(scope="session")
def kdc() -> None:
    """Says that a test starts a Kerberos KDC."""
    from support.kerberos import require

    require()


@pytest.fixture(scope="session")
def tls_scanner() -> None:
    """Says that a test runs the TLS scanner SSLyze."""
    from support.tls_scan import require

    require()


@pytest.fixture(scope="session")
def elasticsearch() -> None:
    """Says that a test starts an Elasticsearch of its own."""
    from support.elasticsearch import require

    require()


@pytest.fixture(scope="session")
def mariadb_server() -> None:
    """Says that a test starts a MariaDB of its own."""
    from support.mariadb import require

    require()


@pytest.fixture(scope="session")
def rsyslog() -> None:
    """Says that a test starts rsyslog."""
    if shutil.which("rsyslogd", path="/usr/sbin:/usr/bin:/sbin") is None and shutil.which("rsyslogd") is None:
        pytest.skip("rsyslogd is not installed (Debian: apt-get install rsyslog rsyslog-kafka)")


@pytest.fixture(scope="session")
def java_runtime() -> None:
    """Says that a test runs Java."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed (no java on PATH; Debian: apt-get install default-jdk-headless)")


@pytest.fixture(scope="session")
def prometheus_server() -> None:
    """Says that a test starts Prometheus."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")


@pytest.fixture(scope="session")
def systemd_host() -> None:
    """Says that a test starts a systemd of its own."""
    from support.systemd import why_not

    if (why := why_not()) is not None:
        pytest.skip(why)


@pytest.fixture(scope="session")
def franz_go() -> None:
    """Says that a test builds a program with franz-go."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed (no go on PATH; Debian: apt-get install golang)")


@pytest.fixture(scope="session")
def go_runtime() -> None:
    """Says that a test builds a program in Go."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed (no go on PATH; Debian: apt-get install golang)")


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Says that a test runs containers."""
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as e:
        pytest.skip(f"no Docker here (Debian: apt-get install docker.io): {e}")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"`docker info` ended with {done.returncode}"]
        pytest.skip(f"no Docker engine (Debian: apt-get install docker.io, and start it): {said[-1]}")
