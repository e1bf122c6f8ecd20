"""Worker properties: Kafka's names and defaults, every bad value with its place, nothing ignored in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.connect.config import IGNORED, WORKER_CONFIG, WorkerConfig
from klamm.web.listeners import parse_listeners
from klamm_base.errors import ConfigError
from klamm_base.properties import load_properties

# What connect-distributed.properties of Kafka's distribution sets.
KAFKAS = """
bootstrap.servers=localhost:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
offset.flush.interval.ms=10000
"""


def config(tmp_path: Path, more: str = "") -> WorkerConfig:
    path = tmp_path / "worker.properties"
    path.write_text(KAFKAS + more)
    return WorkerConfig.from_properties(load_properties(path))


def test_rest_worker_config_of_kafkas_distribution(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = config(tmp_path)
    assert caplog.text == ""
    assert found["listeners"] == ["http://127.0.0.1:8083"]
    assert found.storage("config") == ("connect-configs", 1, 1)
    assert found.storage("offset") == ("connect-offsets", 25, 1)
    assert found.storage("status") == ("connect-status", 5, 1)
    assert found["session.timeout.ms"] == 10_000
    assert found.client == {"bootstrap.servers": "localhost:9092"}
    tasks = found.for_tasks()
    assert tasks["offset.flush.interval.ms"] == "10000"
    assert tasks["key.converter.schemas.enable"] == "true"
    assert tasks["header.converter"] == "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("offset.storage.replication.factor=0", "must be -1 to use the Kafka broker default"),
        ("offset.flush.interval.ms=soon", "Not a number of type LONG"),
        ("listeners=127.0.0.1:8083", "not a listener; write http://HOST:PORT"),
        ("listeners=http://127.0.0.1:8083,https://127.0.0.1:8083", "are the same port"),
        ("listeners=http://127.0.0.1:99999", "not a listener"),
        ("bootstrap.servers=localhost", "not HOST:PORT, such as 127.0.0.1:9092"),
        ("group.id=", "String must be non-empty"),
        ("rest.advertised.listener=ftp", "String must be one of: http, https"),
        ("task.restart.max=-1", "Value must be at least 0"),
    ],
)
def test_rest_worker_config_names_file_line_key_and_what_is_right(
    tmp_path: Path, line: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as e:
        config(tmp_path, line + "\n")
    assert f"worker.properties:{KAFKAS.count(chr(10)) + 1}: " in str(e.value)
    assert line.partition("=")[0] in str(e.value)
    assert sentence in str(e.value)


def test_rest_worker_config_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as e:
        WorkerConfig.from_properties({"group.id": "g"})
    for key in ("bootstrap.servers", "key.converter", "config.storage.topic", "status.storage.topic"):
        assert f'Missing required configuration "{key}"' in str(e.value)


def test_rest_worker_config_warns_of_what_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config(tmp_path, "plugin.path=/opt\nofset.flush.interval.ms=1\nconfig.storage.partitions=4\n")
    assert "plugin.path has no effect: plugins are Python packages" in caplog.text
    assert "ofset.flush.interval.ms is not a worker property" in caplog.text
    assert "did you mean offset.flush.interval.ms?" in caplog.text
    assert "config.storage.partitions has no effect" in caplog.text
    first = KAFKAS.count("\n") + 1
    assert f"worker.properties:{first}: plugin.path" in caplog.text


def test_rest_worker_config_passes_connection_and_client_settings_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = config(tmp_path, "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nproducer.linger.ms=5\n")
    assert found.client["security.protocol"] == "SASL_SSL"
    assert found.for_tasks()["producer.linger.ms"] == "5"
    assert caplog.text == ""


def test_rest_worker_config_tables_do_not_overlap() -> None:
    assert not set(IGNORED) & set(WORKER_CONFIG.names)
    assert all(key.documentation for key in WORKER_CONFIG)


def test_rest_worker_config_listens_where_told(tmp_path: Path) -> None:
    def listeners(text: str) -> list[tuple[str, str, int]]:
        found = parse_listeners("listeners", config(tmp_path, text)["listeners"])
        return [(each.scheme, each.host, each.port) for each in found]

    assert listeners("listeners=http://:8090,HTTPS://127.0.0.1:1") == [
        ("http", "", 8090),
        ("https", "127.0.0.1", 1),
    ]
    assert listeners("listeners=HTTP://[::1]:8090") == [("http", "::1", 8090)]
