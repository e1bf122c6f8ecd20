"""The small files and values of a log directory: topic configurations, checkpoints, epochs, snapshots, names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.configdef import to_string
from klamm_base.errors import ConfigError
from klamm_broker.log import checkpoints, producer_snapshot
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.files import delete_dir_name, is_delete_dir, parse_partition_dir
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.producer_state import BatchMetadata, ProducerEntry
from klamm_broker.log.retention import SegmentFacts, deletable
from klamm_broker.log.topic_config import SERVER_DEFAULTS, TOPIC_CONFIGS

KAFKAS_CONFIGS = json.loads(
    (Path(__file__).parents[1] / "fixtures/kafka-4.3.1/topic-configs.json").read_text()
)

# Topic configurations


def test_topic_configs_and_defaults_are_kafkas():
    ours = {key.name: to_string(key.default, key.type) for key in TOPIC_CONFIGS if not key.internal}
    assert ours == {name: config["default"] for name, config in KAFKAS_CONFIGS.items()}


@pytest.mark.parametrize("name", sorted(KAFKAS_CONFIGS))
def test_broker_property_behind_each_topic_config(name):
    if KAFKAS_CONFIGS[name]["broker"]:
        assert SERVER_DEFAULTS[name] == KAFKAS_CONFIGS[name]["broker"]


def test_every_topic_config_is_documented_and_its_default_is_valid():
    for key in TOPIC_CONFIGS:
        assert len(key.documentation) > 40, key.name
        assert key.documentation.endswith("."), key.name
    assert LogConfig.from_topic({}) == LogConfig()


def test_log_config_defaults_are_the_definitions():
    for field in dataclasses.fields(LogConfig):
        name = field.name.replace("_", ".")
        if name in TOPIC_CONFIGS:
            default = TOPIC_CONFIGS[name].default
            assert field.default == (tuple(default) if isinstance(default, list) else default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.gzip.level", "0"), ("compression.lz4.level", "18"), ("cleanup.policy", "delete,delete"),
        ("leader.replication.throttled.replicas", "0:1,x"), ("min.cleanable.dirty.ratio", "1.1"),
        ("message.timestamp.type", "createtime"), ("preallocate", "yes"),
    ],
)  # fmt: skip
def test_bad_values_are_named(name, value):
    with pytest.raises(ConfigError, match=f"for configuration {name}"):
        LogConfig.from_topic({name: value})


def test_cleanup_policies():
    both = LogConfig.from_topic({"cleanup.policy": "compact,delete"})
    assert both.compact
    assert both.delete
    keep = LogConfig.from_topic({"cleanup.policy": ""})
    assert not keep.compact
    assert not keep.delete


# Names


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("a-0", ("a", 0)), ("a-b-12", ("a-b", 12)), ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("a", None), ("a-", None), ("-1", None), ("a-x", None), ("ü-1", None),
        ("a-0.0123456789abcdef0123456789abcdef-delete", None),
        ("a-0.0123456789abcdef0123456789abcdef-future", None),
    ],
)  # fmt: skip
def test_partition_directories(name, parsed):
    assert parse_partition_dir(name) == parsed


@given(st.text("abc._-", min_size=1, max_size=249), st.integers(0, 2**31 - 1), st.uuids())
def test_names_of_deleted_directories(topic, partition, unique):
    name = delete_dir_name(topic, partition, unique.hex)
    assert len(name) <= 255
    assert is_delete_dir(name)
    assert parse_partition_dir(name) is None


# Checkpoints

offsets = st.dictionaries(
    st.tuples(st.text("abcXYZ019._-", min_size=1), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)
)


@given(offsets)
def test_checkpoints_round_trip(tmp_path_factory, entries):
    path = tmp_path_factory.mktemp("checkpoint") / "recovery-point-offset-checkpoint"
    checkpoints.write_offsets(path, entries)
    assert checkpoints.read_offsets(path) == entries
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no temporary file stays"


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"0\n1\n", b"1\n0\n", b"0\n1\nt 0\n", b"0\n0\nt 0 1\n", b"\xff"]
)
def test_damaged_checkpoints_are_refused_whole(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=str(path)):
        checkpoints.read_offsets(path)


# Leader epochs (cases as in Kafka's protocol: KIP-320, KIP-595)


@pytest.fixture
def epochs(tmp_path):
    cache = LeaderEpochCache(tmp_path / "leader-epoch-checkpoint")
    for epoch, start in [(2, 10), (4, 20), (7, 30)]:
        cache.assign(epoch, start)
    return cache


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, 99)),
        (8, (-1, -1)),
    ],
)
def test_end_offset_of_an_epoch(epochs, asked, answer):
    assert epochs.end_offset(asked, 99) == answer
    assert LeaderEpochCache.load(epochs.path).end_offset(asked, 99) == answer


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (7, 35, [(2, 10), (4, 20), (7, 30)]),
        (8, 40, [(2, 10), (4, 20), (7, 30), (8, 40)]),
        (8, 25, [(2, 10), (4, 20), (8, 25)]),
        (3, 40, [(2, 10), (3, 40)]),
        (7, 20, [(2, 10), (7, 20)]),
    ],
)
def test_assigning_epochs_drops_what_contradicts(epochs, epoch, start, entries):
    epochs.assign(epoch, start)
    assert epochs.entries == LeaderEpochCache.load(epochs.path).entries == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (0, [(2, 10), (4, 20), (7, 30)]),
        (10, [(2, 10), (4, 20), (7, 30)]),
        (15, [(2, 15), (4, 20), (7, 30)]),
        (20, [(4, 20), (7, 30)]),
        (99, [(7, 99)]),
    ],
)
def test_the_log_start_moves_the_epoch_in_force(epochs, start, entries):
    epochs.truncate_from_start(start)
    assert epochs.entries == entries


@pytest.mark.parametrize(("end", "count"), [(31, 3), (30, 2), (20, 1), (10, 0), (0, 0)])
def test_truncation_forgets_epochs(epochs, end, count):
    epochs.truncate_from_end(end)
    assert len(epochs.entries) == count


def test_epoch_of_an_offset(epochs):
    assert [epochs.epoch_at(o) for o in (9, 10, 19, 20, 30, 1000)] == [-1, 2, 2, 4, 7, 7]


# Snapshots

longs = st.integers(0, 2**63 - 1)
ints = st.integers(0, 2**31 - 1)
entries = st.lists(
    st.builds(
        ProducerEntry,
        longs,
        st.integers(0, 2**15 - 1),
        st.lists(st.builds(BatchMetadata, ints, longs, ints, st.just(5)), max_size=1),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
        last_timestamp=st.just(5),
        current_txn_first_offset=st.none() | longs,
    ),
    max_size=5,
)


@given(entries)
def test_snapshots_round_trip(rows):
    assert producer_snapshot.decode(producer_snapshot.encode(rows), Path("x")) == rows


@given(entries, st.data())
def test_any_damage_to_a_snapshot_is_noticed(rows, data):
    good = producer_snapshot.encode(rows)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    for broken in (bytes(bad), good[:at], good + b"\0"):
        with pytest.raises(CorruptFile):
            producer_snapshot.decode(broken, Path("x"))


# Retention


def segments(*rows: tuple[int, int]) -> list[SegmentFacts]:
    """Returns segments of these (size, timestamp), with ten offsets in each."""
    return [SegmentFacts(size=s, end_offset=10 * (i + 1), timestamp=t) for i, (s, t) in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "rules", "count"),
    [
        ([(100, 0), (100, 0), (100, 0)], {}, 0),
        ([(100, 0), (100, 50), (100, 99)], {"retention_ms": 60}, 1),
        ([(100, 50), (100, 0), (100, 99)], {"retention_ms": 60}, 0),
        ([(100, 0), (100, 0)], {"retention_ms": 60}, 2),
        ([(100, 0), (0, 0)], {"retention_ms": 60}, 1),
        ([(100, 40)], {"retention_ms": 60}, 0),
        ([(100, 39)], {"retention_ms": 60}, 1),
        ([(100, 0), (100, 0), (100, 0)], {"retention_bytes": 200}, 1),
        ([(100, 0), (100, 0), (100, 0)], {"retention_bytes": 201}, 0),
        ([(100, 0), (100, 0), (100, 0)], {"retention_bytes": 0}, 3),
        ([(100, 0), (100, 0), (100, 0)], {"retention_bytes": 0, "high_watermark": 15}, 1),
        ([(100, 0), (100, 0), (100, 0)], {"retention_bytes": 0, "delete_policy": False}, 0),
        ([(100, 0), (100, 0), (100, 0)], {"log_start_offset": 20, "delete_policy": False}, 2),
        ([(100, 0), (100, 0), (100, 0)], {"log_start_offset": 30}, 2),
        ([(100, 0), (100, 0), (100, 0)], {"log_start_offset": 19}, 1),
    ],
)
def test_retention(rows, rules, count):
    defaults = {
        "now_ms": 100, "retention_ms": -1, "retention_bytes": -1, "log_start_offset": 0, "high_watermark": 1000,
        "delete_policy": True,
    }  # fmt: skip
    assert deletable(segments(*rows), **{**defaults, **rules}) == count
