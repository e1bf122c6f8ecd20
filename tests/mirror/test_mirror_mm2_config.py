"""mm2.properties: what MirrorMaker 4.3.1 derived from a file is what we derive; mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.mirror.files import load
from klamm_base.errors import ConfigError
from klamm_base.properties import load_properties
from klamm_mirror.settings import mm2_config
from klamm_mirror.settings.mm2_config import connectors_of

RECORDED = Path(__file__).parent / "recordings" / "configs.jsonl"
KEYS = {
    "topics",
    "groups",
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "emit.checkpoints.interval.seconds",
    "emit.heartbeats.interval.seconds",
    "emit.heartbeats.enabled",
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "sync.group.offsets.enabled",
    "sync.group.offsets.interval.seconds",
}
# The file that the recordings were made with
RECORDED_FILE = """
clusters=source,target
source.bootstrap.servers=127.0.0.1:19092
target.bootstrap.servers=127.0.0.1:22092
source->target.enabled=true
source->target.topics=mm-src
target->source.enabled=false
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
emit.checkpoints.interval.seconds=5
emit.heartbeats.interval.seconds=5
refresh.topics.interval.seconds=5
refresh.groups.interval.seconds=5
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=5
"""
AB = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
"""


def parse(text: str, tmp_path: Path) -> mm2_config.MirrorConfig:
    path = tmp_path / "mm2.properties"
    path.write_text(text)
    return mm2_config.parse(load_properties(path), KEYS)


def test_connectors_are_configured_as_mirrormaker_configured_them(tmp_path):
    config = parse(RECORDED_FILE, tmp_path)
    assert config.warnings == ()
    recorded = {}
    for line in RECORDED.read_text().splitlines():
        record = json.loads(line)
        if record["key"]["text"].startswith("connector-"):
            recorded[record["key"]["text"].removeprefix("connector-")] = json.loads(record["value"]["text"])
    assert len(recorded) == 3
    for name, value in recorded.items():
        assert dict(config.flow("source->target").connectors[name]) == value["properties"]


def test_a_flow_that_is_not_enabled_sends_heartbeats_only(tmp_path):
    config = parse(RECORDED_FILE, tmp_path)
    assert [(f.name, f.enabled) for f in config.flows] == [
        ("source->target", True),
        ("target->source", False),
    ]
    assert config.flow("target->source").connectors["MirrorSourceConnector"]["enabled"] == "false"
    config = parse(RECORDED_FILE + "emit.heartbeats.enabled=false\n", tmp_path)
    assert [f.name for f in config.flows] == ["source->target"]
    config = parse(RECORDED_FILE + "target->source.emit.heartbeats.enabled=false\n", tmp_path)
    assert [f.name for f in config.flows] == ["source->target"]


def test_the_worker_runs_at_the_target(tmp_path):
    text = AB + "A->B.enabled=true\nB.session.timeout.ms=500\noffset.storage.partitions=3\nA.x=1\n"
    worker = parse(text, tmp_path).flow("A->B").worker
    assert worker["bootstrap.servers"] == "b:9092"
    assert worker["group.id"] == "A-mm2"
    assert worker["config.storage.topic"] == "mm2-configs.A.internal"
    assert worker["offset.storage.topic"] == "mm2-offsets.A.internal"
    assert worker["status.storage.topic"] == "mm2-status.A.internal"
    assert worker["session.timeout.ms"] == "500"
    assert worker["offset.storage.partitions"] == "3"
    assert "x" not in worker


def test_what_counts_more_the_nearer_it_is_to_the_flow(tmp_path):
    text = (
        AB
        + "A->B.enabled=true\nB->A.enabled=true\ntopics=all\nA->B.topics=${file:secrets:topics}\ntasks.max=4\n"
    )
    text += "A->B.producer.max.request.size=5\nA.security.protocol=SSL\nsecurity.protocol=PLAINTEXT\nA.consumer.fetch.min.bytes=1\n"
    config = parse(text, tmp_path)
    ab = config.flow("A->B").connectors["MirrorSourceConnector"]
    ba = config.flow("B->A").connectors["MirrorSourceConnector"]
    assert (ab["topics"], ba["topics"]) == ("${file:secrets:topics}", "all")
    assert ab["tasks.max"] == "4"
    assert ab["producer.max.request.size"] == "5"
    assert ab["source.cluster.security.protocol"] == ab["source.admin.security.protocol"] == "SSL"
    assert ab["target.cluster.security.protocol"] == ab["target.producer.security.protocol"] == "PLAINTEXT"
    assert ab["source.consumer.fetch.min.bytes"] == "1"


def test_only_flows_into_some_clusters(tmp_path):
    config = parse(AB + "A->B.enabled=true\nB->A.enabled=true\n", tmp_path)
    assert [f.name for f in config.towards(["B"]).flows] == ["A->B"]
    with pytest.raises(ConfigError, match="--clusters: no cluster C in clusters=A, B"):
        config.towards(["C"])
    one_way = parse(AB + "A->B.enabled=true\n", tmp_path)
    with pytest.raises(ConfigError, match="no flow into A is enabled"):
        one_way.towards(["A"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A.bootstrap.servers=a:1\n", "clusters is missing"),
        ("clusters=A\n", "needs two clusters"),
        ("clusters=A,A\n", "names a cluster twice"),
        (AB, r"no flow is enabled: set A->B\.enabled=true"),
        (AB + "A->B.enabled=false\n", "no flow is enabled"),
        (AB + "A->B.enabled=yes\n", "A->B.enabled=yes: must be true or false"),
        (
            AB.replace("a:9092", "zz"),
            r"A.bootstrap.servers: 'zz' must look like host:port",
        ),
        (AB + "A->C.enabled=true\n", r"mm2.properties:5.*A->C.enabled: no cluster C in clusters=A, B"),
        (AB + "A->A.enabled=true\n", "A->A.enabled: a cluster cannot be mirrored to itself"),
        (AB + "A->.enabled=true\n", "is not SOURCE->TARGET.SETTING"),
        (AB + "Bb.bootstrap.servers=c:1\n", "no cluster Bb in clusters=A, B"),
        ("clusters=A,B\nA.bootstrap.servers=a:1\nA->B.enabled=true\n", "B.bootstrap.servers is missing"),
        (
            "clusters=A,B\nA.bootstrap.servers=x:1,a:1\nB.bootstrap.servers=a:1\nA->B.enabled=true\n",
            "A and B have a server in common",
        ),
    ],
)
def test_mistakes_are_named(text, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        parse(text, tmp_path)


def test_all_mistakes_are_named_at_once(tmp_path):
    text = "clusters=A,B\nA.bootstrap.servers=zz\nB.bootstrap.servers=b:1\nA->B.enabled=yes\nA->C.topics=x\n"
    with pytest.raises(ConfigError) as caught:
        parse(text, tmp_path)
    assert [line.partition("mm2.properties:")[2] for line in str(caught.value).splitlines()] == [
        "5: A->C.topics: no cluster C in clusters=A, B",
        "4: A->B.enabled=yes: must be true or false",
        "2: A.bootstrap.servers: 'zz' must look like host:port",
    ]


def test_what_has_no_effect_is_said(tmp_path):
    config = parse(AB + "A->B.enabled=true\nB->A.topics=x\nreplication.facter=1\n", tmp_path)
    assert len(config.warnings) == 2
    assert "B->A.topics has no effect: B->A is not enabled" in config.warnings[0]
    assert "replication.facter has no effect: it is no setting" in config.warnings[1]
    assert "did you mean replication.factor?" in config.warnings[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tasks.max=abc", "Invalid value abc for configuration tasks.max"),
        ("A->B.tasks.max=0", "Value must be at least 1"),
        ("errors.tolerance=some", "Invalid value some for configuration errors.tolerance"),
        ("B.exactly.once.source.support=true", "must be one of: disabled, preparing, enabled"),
        ("offset.storage.partitions=x", "Invalid value x for configuration offset.storage.partitions"),
        (
            "A.consumer.fetch.max.bytes=abc",
            "Invalid value abc for configuration source.consumer.fetch.max.bytes",
        ),
        ("A->B.consumer.isolation.level=read_all", "Must be read_committed or read_uncommitted"),
        ("B.producer.compression.type=zst", "Must be one of none, gzip, snappy, lz4, zstd"),
    ],
)
def test_values_of_workers_and_of_every_connector_are_checked_with_the_file(line, said, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(f"{AB}A->B.enabled=true\n{line}\n")
    with pytest.raises(ConfigError, match=rf"mm2\.properties:6: A->B: .*{said}"):
        load(path)


def test_a_class_that_no_plugin_has_is_refused_with_its_place(processes, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(f"{AB}A->B.enabled=true\nreplication.policy.class=FooPolicy\n")
    with pytest.raises(ConfigError, match=r"mm2\.properties:6: A->B: .*Class FooPolicy could not be found"):
        load(path, plugins=True)


def test_names_that_mirrormaker_had_before_are_told(tmp_path):
    config = parse(AB + "A->B.enabled=true\ntopics.blacklist=x\nA->B.groups.blacklist=y\n", tmp_path)
    assert ["write topics.exclude" in w or "write groups.exclude" in w for w in config.warnings] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", set(mm2_config.CONNECTORS)),
        ("A->B.emit.checkpoints.enabled=false", {mm2_config.SOURCE, mm2_config.HEARTBEAT}),
        ("emit.checkpoints.enabled=false\nsync.group.offsets.enabled=true", set(mm2_config.CONNECTORS)),
    ],
)
def test_checkpoints_that_are_switched_off_keep_no_flow_from_running(settings, expected, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(f"{AB}A->B.enabled=true\n{settings}\n")
    assert set(connectors_of(load(path).flow("A->B"))) == expected
