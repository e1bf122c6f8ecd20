"""Every key of MirrorMaker 2 is honoured, refused or warned of by name: the whole table, through the real code."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import original_keys

from klamm.connect.config import WORKER_CONFIG, WorkerConfig
from klamm.connect.validation import definitions
from klamm.mirror.files import load as load_file
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties
from klamm_mirror.clients import ClientSettings
from klamm_mirror.plugin import CONNECTORS as CLASSES
from klamm_mirror.settings.common_config import client_settings
from klamm_mirror.settings.mm2_config import CONNECTORS, MirrorConfig, parse
from klamm_mirror.settings.mm2_keys import table
from klamm_mirror.source.config import parse as parse_source
from klamm_mirror.source.connector import MirrorSourceConnector
from klamm_plugins.original_keys import Key, Verdict, taken

FILE = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
}
JSON = {
    "name": "m",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "source.cluster.bootstrap.servers": "a:1",
    "target.cluster.bootstrap.servers": "b:1",
}
OWN = {name for cls in CLASSES for name in cls.config().names} | set(definitions.SOURCE.names)
SAMPLES = {"BOOLEAN": "true", "INT": "7", "LONG": "7", "SHORT": "7", "DOUBLE": "0.5"}
GIVEN = {"clusters", "enabled", "bootstrap.servers", "name", "connector.class"}
"""Keys that FILE has, or that make another flow of it."""
DATA = (("source", "consumer"), ("target", "producer"), ("source", "admin"), ("target", "admin"))


def sample(key: Key) -> str:
    """Returns a value that is no exception to the verdict."""
    if key.default not in {"", "null", "required"} and key.default not in key.fine:
        return key.default
    return "false" if "true" in key.fine else SAMPLES.get(key.type, "sample")


def rows(*spaces: str) -> Iterator[tuple[str, Key]]:
    for space in spaces:
        yield from ((name, key) for name, key in table()[space].items() if name not in GIVEN)


def load(key: str, value: str) -> MirrorConfig:
    return parse(Properties(FILE | {key: value}), OWN, WORKER_CONFIG.names)


def values(config: MirrorConfig) -> list[tuple[str, str]]:
    """Returns all settings of all workers and connectors, without those of the empty file."""
    return [
        item
        for flow in config.flows
        for part in (flow.worker, *(flow.connectors[name] for name in CONNECTORS))
        for item in part.items()
    ]


def check(key: str, row: Key, *, verdict: Verdict | None = None) -> None:
    """Checks the verdict on a key of a file: exactly one of arrival, error and warning, which names the key."""
    value, expected = sample(row), verdict or row.verdict
    if expected is Verdict.REFUSED:
        with pytest.raises(ConfigError) as caught:
            load(key, value)
        assert str(caught.value).startswith(f"{key}={value} cannot be used: "), key
        return
    config = load(key, value)
    name = key.split(".", 1)[1] if key.startswith(("A.", "B.", "A->B.")) else key
    arrived = [n for n, v in values(config) if (n == name or n.endswith(f".{name}")) and v == value]
    if expected is Verdict.WARNED:
        assert len(config.warnings) == 1, (key, config.warnings)
        assert config.warnings[0].startswith(f"{key} has no effect: "), key
        before = values(parse(Properties(FILE), OWN, WORKER_CONFIG.names))
        assert values(config) == before, f"{key} goes further although it has no effect"
    else:
        assert config.warnings == (), key
        assert arrived or key in table()["file"], f"{key} arrives nowhere"
    for fine in row.fine if verdict is None else ():
        assert load(key, fine).warnings == (), (key, fine)


def test_keys_of_flows() -> None:
    for name, row in rows("connector"):
        check(f"A->B.{name}", row)
    for name, row in rows("common"):
        check(f"A->B.{name}", row)


def test_keys_of_the_file() -> None:
    for name, row in rows("connector", "file", "common"):
        check(name, row)


def test_keys_of_clusters() -> None:
    clients = {name for kind in ("consumer", "producer", "admin") for name in table()[kind]}
    for name, row in rows("common"):
        check(f"B.{name}", row)
    for name, row in rows("worker"):
        if name not in clients:
            check(f"B.{name}", row)


@pytest.mark.parametrize(("side", "kind"), DATA)
def test_keys_of_clients(side: str, kind: str) -> None:
    alias = "A" if side == "source" else "B"
    for name, row in rows(kind, "common"):
        check(f"A->B.{side}.{kind}.{name}", row)
        check(f"A->B.{side}.cluster.{kind}.{name}", row)
        check(f"{alias}.{kind}.{name}", row)
    if kind == "producer":
        for name, row in rows(kind, "common"):
            check(f"A->B.producer.override.{name}", row)


def test_clients_that_carry_no_records_take_connection_settings_only() -> None:
    for name, row in rows("consumer", "common"):
        check(f"B.consumer.{name}", row, verdict=Verdict.WARNED)
    for name, row in rows("producer"):
        honoured = name in {"client.id", "request.timeout.ms"}
        check(f"A.producer.{name}", row, verdict=Verdict.HONOURED if honoured else Verdict.WARNED)


def test_no_warning_from_a_worker_or_a_connector_for_what_the_file_gives_them(caplog) -> None:
    honoured = [
        *((f"A->B.{n}", k) for n, k in rows("connector") if k.verdict is Verdict.HONOURED),
        *((f"B.{n}", k) for n, k in rows("worker") if k.verdict is Verdict.HONOURED),
        *((f"A.consumer.{n}", k) for n, k in rows("consumer") if k.verdict is Verdict.HONOURED),
        *((f"B.producer.{n}", k) for n, k in rows("producer") if k.verdict is Verdict.HONOURED),
        ("tasks.max", Key("INT", "4", Verdict.HONOURED)),
        ("emit.checkpoints.interval.seconds", Key("LONG", "4", Verdict.HONOURED)),
    ]
    for key, row in honoured:
        if row.type in SAMPLES:  # classes and lists have values that must exist
            for flow in load(key, sample(row)).flows:
                WorkerConfig.from_properties(flow.worker)
                for config in flow.connectors.values():
                    assert MirrorSourceConnector.warnings(config) == {}
    assert caplog.messages == []


def test_the_shipped_example_causes_no_warning() -> None:
    classes = {cls.__name__: cls for cls in CLASSES}
    for flow in load_file(Path(__file__).parents[2] / "examples" / "mm2.properties").flows:
        for name, config in flow.connectors.items():
            assert classes[name].warnings(config) == {}
            unknown = config.keys() - set(taken(classes[name].original_keys, config))
            assert unknown <= {"enabled", *classes[name].config().names, *definitions.SOURCE.names}


def test_a_posted_connector_judges_as_a_file_does() -> None:
    posted = [
        *((n, k) for n, k in rows("connector", "common") if n not in JSON),
        *((f"{side}.{kind}.{n}", k) for side, kind in DATA for n, k in rows(kind, "common")),
        *((f"producer.override.{n}", k) for n, k in rows("producer")),
        *((f"consumer.{n}", k) for n, k in rows("consumer")),
    ]
    connector = MirrorSourceConnector()
    for name, row in posted:
        value = sample(row)
        config = JSON | {name: value}
        refusals = [
            e for v in connector.validate(config) for e in v.errors if f"{name}={value} cannot be" in e
        ]
        warnings = list(connector.warnings(config).values())
        assert all(warning.startswith(f"{name} has no effect: ") for warning in warnings), (name, warnings)
        found = {Verdict.REFUSED: (1, 0), Verdict.WARNED: (0, 1), Verdict.HONOURED: (0, 0)}[row.verdict]
        assert (len(refusals), len(warnings)) == found, name


def test_a_key_that_repeats_its_cluster_is_known() -> None:
    repeated = {"source.cluster.client.id": "c", "source.consumer.client.id": "c"}
    assert MirrorSourceConnector.warnings(JSON | repeated) == {}
    assert set(taken(MirrorSourceConnector.original_keys, JSON | repeated)) >= repeated.keys()


def test_settings_of_clients_reach_them() -> None:
    """Each honoured setting of a client changes the settings with which a task runs."""
    different = {
        "auto.offset.reset": "latest", "isolation.level": "read_uncommitted", "client.id": "c",
        "max.in.flight.requests.per.connection": "3", "compression.type": "zstd",
    }  # fmt: skip
    for side, kind in DATA:
        for name, row in rows(kind):
            if row.verdict is not Verdict.HONOURED:
                continue
            codec = (
                name.split(".")[1]
                if name.startswith("compression.") and name != "compression.type"
                else "snappy"
            )
            base = JSON | {"target.producer.compression.type": codec} if codec != "snappy" else JSON
            value = different.get(name, "7")
            for prefix in (f"{side}.cluster.", f"{kind}.", f"{side}.cluster.{kind}.", f"{side}.{kind}."):
                changed = base | {prefix + name: value}
                if kind == "admin":
                    assert ClientSettings.of(changed, side, kind) != ClientSettings.of(JSON, side, kind), name
                else:
                    assert parse_source(changed).copier != parse_source(base).copier, prefix + name


def test_security_reaches_every_client() -> None:
    for name, row in rows("common"):
        if row.verdict is Verdict.HONOURED and name.startswith(("ssl.", "sasl.", "security.")):
            for flow in load(f"A.{name}", "x").flows[:1]:
                config = flow.connectors["MirrorSourceConnector"]
                for kind in ("consumer", "producer", "admin"):
                    assert client_settings(config, "source", kind)[name] == "x", name
                    assert name not in client_settings(config, "target", kind), name


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("A->B.topic", "it is no setting of the mirror's connectors; did you mean topics?"),
        ("A->B.source.consumer.isolation.levle", "no setting of a consumer; did you mean isolation.level?"),
        ("B.producer.compresion.type", "no setting of a producer; did you mean compression.type?"),
        ("B.exactly.once.source.suport", "clusters; did you mean exactly.once.source.support?"),
        ("dedicated.mode.enable.internal.rset", "did you mean dedicated.mode.enable.internal.rest?"),
        ("A.topics", "it is a setting of flows: write SOURCE->TARGET.topics"),
        ("producer.max.request.size", "it needs a flow or a cluster: write SOURCE->TARGET.producer.max"),
        ("session.timeout.ms", "it is a worker's setting: write TARGET.session.timeout.ms"),
        ("B.consumer.isolation.level", "no records pass the consumer at the target"),
        ("A.klamm.metrics.port", "klamm.metrics.port without a cluster is for all flows"),
    ],
)
def test_what_a_warning_says(key: str, said: str) -> None:
    [warning] = load(key, "77").warnings
    assert warning.startswith(f"{key} has no effect: ")
    assert said in warning


def test_families_have_the_verdict_of_their_key() -> None:
    for name in ("transforms.t.type", "predicates.p.type", "value.converter.schemas.enable"):
        for key in (f"A->B.{name}", name):
            config = load(key, "x")
            assert config.warnings == ()
            assert config.flow("A->B").connectors["MirrorSourceConnector"][name] == "x"
            assert name not in config.flow("A->B").connectors["MirrorHeartbeatConnector"]
    with pytest.raises(ConfigError, match=r"write SOURCE->TARGET.value.converter"):
        load("B.value.converter.schemas.enable", "x")
    assert len(load("A->B.topic.creation.default.partitions", "3").warnings) == 1
    assert load("config.providers.file.class", "FileConfigProvider").warnings == ()


def test_heartbeats_of_a_flow_that_is_not_enabled_count() -> None:
    config = load("B->A.emit.heartbeats.interval.seconds", "5")
    assert config.warnings == ()
    heartbeat = config.flow("B->A").connectors["MirrorHeartbeatConnector"]
    assert heartbeat["emit.heartbeats.interval.seconds"] == "5"


@pytest.mark.usefixtures("apache_kafka")
def test_the_table_has_the_keys_of_kafkas_jars() -> None:
    mirror = original_keys.ORIGINALS["mirror"]
    made = original_keys.merged(mirror.rows(), original_keys.written(mirror))
    assert original_keys.as_text(made) == mirror.path.read_text("utf-8")


def test_the_page_of_keys_is_up_to_date() -> None:
    made = runpy.run_path(str(original_keys.ROOT / "docs/reference/make_keys.py"))
    assert made["mirror_page"]() == made["MIRROR_PAGE"].read_text("utf-8"), "run ./dev docs"
