"""Jars of Spark's Kafka connector: from a repository that lays its files out as Maven's do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from klamm_base.errors import ConfigError
from klamm_spark import kafka_jars


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "repository"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", root
        server.shutdown()
        thread.join()


def publish(root: Path, coordinates: list[kafka_jars.Coordinate]) -> None:
    for group, artifact, version in coordinates:
        folder = root / group.replace(".", "/") / artifact / version
        folder.mkdir(parents=True, exist_ok=True)
        data = f"{artifact} {version}".encode()
        jar = folder / f"{artifact}-{version}.jar"
        jar.write_bytes(data)
        jar.with_name(jar.name + ".sha1").write_text(hashlib.sha1(data).hexdigest() + "  " + jar.name)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"KLAMM_SPARK_KAFKA_DIR": str(tmp_path / "data" / "jars")}


def test_the_connector_of_this_spark_comes_first(repository: tuple[str, Path], env: dict[str, str]) -> None:
    address, root = repository
    with pytest.raises(ConfigError, match="run `klamm spark setup --kafka-connector`"):
        kafka_jars.settings(env)
    publish(root, kafka_jars.coordinates(*kafka_jars.KNOWN_PAIR))
    version, jars = kafka_jars.fetch("4.9.9", address, env)
    assert (version, len(jars)) == (kafka_jars.KNOWN_PAIR[0], 4), "the repository lacks the others"
    publish(root, kafka_jars.coordinates("4.9.9", "4.9.9"))
    version, jars = kafka_jars.fetch("4.9.9", address, env)
    assert version == "4.9.9"
    assert kafka_jars.settings(env) == {"spark.jars": ",".join(map(str, jars))}
    assert "spark-sql-kafka-0-10_2.13-4.9.9.jar" in {j.name for j in jars}


def test_a_file_that_is_not_what_the_repository_says_is_refused(
    repository: tuple[str, Path], env: dict[str, str]
) -> None:
    address, root = repository
    publish(root, kafka_jars.coordinates("4.9.9", "4.9.9"))
    jar = next(root.rglob("kafka-clients-*.jar"))
    jar.write_bytes(b"something else")
    with pytest.raises(kafka_jars.JarsError, match=r"kafka-clients-.*its SHA-1 is .*the repository says"):
        kafka_jars.fetch("4.9.9", address, env)
    assert kafka_jars.find(env) == [], "nothing is half there"


def test_a_repository_that_has_none_of_it(env: dict[str, str]) -> None:
    with pytest.raises(kafka_jars.JarsError, match=r"4\.9\.9: .*; 4\.2\.0: "):
        kafka_jars.fetch("4.9.9", "http://127.0.0.1:1", env)
    with pytest.raises(kafka_jars.JarsError, match="is no address of a repository"):
        kafka_jars.fetch("4.9.9", "file:///etc", env)


def test_the_project_for_maven_leaves_out_what_spark_brings() -> None:
    text = kafka_jars.project(kafka_jars.coordinates("4.3.0", "4.2.0"))
    assert text.count("<exclusion><groupId>*</groupId>") == 4
    assert "<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>4.3.0</version>" in text
    assert "<artifactId>spark-token-provider-kafka-0-10_2.13</artifactId><version>4.2.0</version>" in text
