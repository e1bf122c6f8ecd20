"""Apache Kafka as an oracle: finds its jars and runs its classes.

A runtime is a directory with `libs/*.jar`: `KAFKA_HOME`, or `~/.cache/kafka-oracle`. Tests that need it take
the fixture `apache_kafka`; `kafka_oracle.require()` gives the oracle, or skips with a reason.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
BROKER = "kafka.Kafka"
STORAGE = "kafka.tools.StorageTool"

_LOGGING = """\
status = error
appender.c.type = Console
appender.c.name = C
appender.c.target = SYSTEM_ERR
appender.c.follow = true
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
"""


@dataclass(frozen=True, slots=True)
class KafkaOracle:
    """A Kafka installation and the Java to run it."""

    home: Path
    java: str

    def command(
        self, main_class: str, *args: str, heap: str = "-Xmx128M", log4j: Path | None = None
    ) -> list[str]:
        """Returns the command line that runs a class, for tests that start a process of their own."""
        logging = [f"-Dlog4j2.configurationFile={log4j}"] if log4j else []
        flags = [heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true", *logging]
        return [self.java, *flags, "-cp", f"{self.home}/libs/*", main_class, *args]

    def run(
        self, main_class: str, *args: str, timeout: float = 150, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a class to its end; standard output and error are kept apart. Does not judge the exit code."""
        return subprocess.run(
            self.command(main_class, *args),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@functools.cache
def find() -> KafkaOracle | str:
    """Returns the installation, or the reason why there is none."""
    candidates = [Path.home() / ".cache/kafka-oracle"]
    if configured := os.environ.get("KAFKA_HOME"):
        candidates.insert(0, Path(configured))
    home = next((c for c in candidates if any(c.glob("libs/kafka-clients-*.jar"))), None)
    if home is None:
        return "Apache Kafka is not installed (no libs/kafka-clients-*.jar in KAFKA_HOME or ~/.cache/kafka-oracle): tests/peers/fetch_kafka.sh fetches it"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin" if java_home else None)
    if java is None:
        return "Java is not installed (no java on PATH or in JAVA_HOME; Debian: apt-get install default-jdk-headless)"
    return KafkaOracle(home, java)


def skip_reason() -> str | None:
    """Returns why the oracle cannot be used here; None if it can."""
    found = find()
    return found if isinstance(found, str) else None


def require() -> KafkaOracle:
    """Returns the oracle; skips the calling test, saying why, where there is none."""
    found = find()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def write_log4j(directory: Path) -> Path:
    """Writes a quiet logging configuration (warnings, to standard error) for `command`."""
    path = directory / "log4j2.properties"
    path.write_text(_LOGGING)
    return path
