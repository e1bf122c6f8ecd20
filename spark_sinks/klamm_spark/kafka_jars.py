"""The jars of Spark's own Kafka connector: `klamm spark setup --kafka-connector` fetches them, sessions find
them.

They come from a Maven repository, by Maven where it is installed (its settings count), else over HTTP with
the repository's checksums. Transitive dependencies are left out, because Spark brings them. Spark's own
`spark.jars.packages` does the same if its resolver reaches every repository that Spark's parent project
names.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from klamm_base.errors import ConfigError, KlammError

CENTRAL: Final = "https://repo1.maven.org/maven2"
KNOWN_PAIR: Final = ("4.2.0", "4.1.0-preview1")
"""A connector and token provider that run on Spark 4.2 and 4.3, for repositories that lack others."""
CLIENTS: Final = "3.9.2"
POOL: Final = "2.13.1"
SCALA: Final = "2.13"
_TIMEOUT_S: Final = 60.0
Coordinate = tuple[str, str, str]
"""Group, artifact, version."""


class JarsError(KlammError):
    """The connector's jars could not be fetched."""


def place(env: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder of the jars: KLAMM_SPARK_KAFKA_DIR, else below the user's data directory."""
    if given := env.get("KLAMM_SPARK_KAFKA_DIR"):
        return Path(given)
    data = env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "klamm" / "spark-kafka"


def find(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the jars; none where the connector is not installed."""
    jars = sorted(place(env).glob("*.jar"))
    return jars if any(j.name.startswith("spark-sql-kafka") for j in jars) else []


def settings(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns settings of a session that has the connector. Raises ConfigError, which says how to get it."""
    jars = find(env)
    if not jars:
        raise ConfigError(
            f"Spark's Kafka connector is not in {place(env)}: run `klamm spark setup --kafka-connector`",
            key="source.connector",
        )
    return {"spark.jars": ",".join(map(str, jars))}


def coordinates(connector: str, token_provider: str) -> list[Coordinate]:
    return [
        ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", connector),
        ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", token_provider),
        ("org.apache.kafka", "kafka-clients", CLIENTS),
        ("org.apache.commons", "commons-pool2", POOL),
    ]


def candidates(spark_version: str) -> list[tuple[str, str]]:
    """Returns connector and token provider in the order of trial: those of this Spark, then the known pair."""
    return list(dict.fromkeys([(spark_version, spark_version), KNOWN_PAIR]))


def fetch(
    spark_version: str, repository: str | None = None, env: Mapping[str, str] = os.environ
) -> tuple[str, list[Path]]:
    """Brings the jars into `place`. Returns the connector's version and the files. Raises JarsError.

    `repository`: a Maven repository's address, read over HTTP. Without one Maven decides, or Maven Central is
    used.
    """
    target = place(env)
    target.parent.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    for connector, token_provider in candidates(spark_version):
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".spark-kafka-") as work:
            new = Path(work) / "jars"
            new.mkdir()
            try:
                _bring(coordinates(connector, token_provider), new, repository)
            except JarsError as e:
                said.append(f"{connector}: {e}")
                continue
            shutil.rmtree(target, ignore_errors=True)
            new.rename(target)
            return connector, sorted(target.glob("*.jar"))
    raise JarsError(f"Spark's Kafka connector could not be fetched ({'; '.join(said)})")


def _bring(wanted: list[Coordinate], target: Path, repository: str | None) -> None:
    maven = shutil.which("mvn")
    if repository is None and maven is not None:
        _by_maven(maven, wanted, target)
    else:
        for coordinate in wanted:
            _download(repository or CENTRAL, coordinate, target)


def _by_maven(maven: str, wanted: list[Coordinate], target: Path) -> None:
    pom = target.parent / "pom.xml"
    pom.write_text(project(wanted))
    command = [
        maven,
        "-q",
        "-B",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={target}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line] or [
            "mvn said nothing"
        ]
        raise JarsError(lines[0].removeprefix("[ERROR] ").strip()[:300])


def project(wanted: Iterable[Coordinate]) -> str:
    """Returns a Maven project that depends on these and on nothing behind them."""
    without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    each = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version>{without}</dependency>"
        for g, a, v in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>klamm</groupId>'
        "<artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{each}</dependencies></project>"
    )


def _download(repository: str, coordinate: Coordinate, target: Path) -> None:
    """Fetches one jar and its checksum, in the layout of every Maven repository."""
    group, artifact, version = coordinate
    name = f"{artifact}-{version}.jar"
    address = f"{repository.rstrip('/')}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
    data = _get(address)
    expected = _get(f"{address}.sha1").decode("ascii", "replace").split()[:1]
    found = hashlib.sha1(data, usedforsecurity=False).hexdigest()  # what repositories have for every file
    if expected != [found]:
        raise JarsError(
            f"{address}: its SHA-1 is {found}, the repository says {' '.join(expected) or 'nothing'}"
        )
    (target / name).write_bytes(data)


def _get(address: str) -> bytes:
    if not address.startswith(("https://", "http://")):
        raise JarsError(f"{address} is no address of a repository: https://…")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as e:
        raise JarsError(f"{address}: {e}") from None
