"""A real schema registry for tests: Apicurio's, which has Confluent's REST API, and AvroData, which Confluent's converter shares.

It is looked for in APICURIO_HOME or ~/.cache/apicurio: the unpacked `apicurio-registry-app-3.0.9-all.tar.gz` of Maven
Central, and in `converter/` the jars `apicurio-registry-utils-converter` and `apicurio-registry-serde-common-avro` of the
same version.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support import kafka_oracle
from support.connect_worker import free_port

AVRO_SOURCE = Path(__file__).with_name("AvroOracle.java")


def home() -> Path:
    """Returns the folder of the installation; skips the calling test where there is none."""
    found = Path(os.environ.get("APICURIO_HOME", Path.home() / ".cache/apicurio"))
    if not list(found.glob("*runner.jar")):
        pytest.skip(
            f"the schema registry of Apicurio is not installed in {found}: unpack apicurio-registry-app-3.0.9-all.tar.gz of Maven Central there, or set APICURIO_HOME"
        )
    return found


class Apicurio:
    """The registry, in memory, on a free port; `url` is that of Confluent's API."""

    def __init__(self, directory: Path) -> None:
        oracle = kafka_oracle.require()
        runner = next(home().glob("*runner.jar"))
        ports = [free_port(), free_port()]
        self.url = f"http://127.0.0.1:{ports[0]}/apis/ccompat/v7"
        self._log = (directory / "apicurio.log").open("wb")
        flags = ["-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
        flags += [f"-Dquarkus.http.port={ports[0]}", f"-Dquarkus.management.port={ports[1]}"]
        self.process = subprocess.Popen(
            [oracle.java, *flags, "-jar", str(runner)], stdout=self._log, stderr=subprocess.STDOUT
        )
        self._wait(directory / "apicurio.log")

    def _wait(self, log: Path) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert self.process.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                time.sleep(0.2)
        raise AssertionError(f"the registry did not start:\n{log.read_text()}")

    def __enter__(self) -> Apicurio:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


def ask_avro_data(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what AvroData makes of them (AvroOracle.java)."""
    oracle = kafka_oracle.require()
    place = home()
    path = f"{oracle.home}/libs/*:{place}/converter/*:{place}/lib/*"
    result = subprocess.run(
        [oracle.java, "-Xmx256M", "-cp", path, str(AVRO_SOURCE)],
        input="".join(json.dumps(q) + "\n" for q in questions),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]
