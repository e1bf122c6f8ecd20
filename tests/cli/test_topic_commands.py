"""`klamm topic`: analyse, copy, clone, edit, trim, add-partitions; and the figures of an analysis."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_name, new_topic
from support.klamm import KLAMM, klamm

from klamm.cli.saved_contexts import Contexts
from klamm.cli.times import parse_time
from klamm.topics.analysis import BUCKETS_MAX, KEY_BYTES_MAX, KEYS_MAX, TOP, Analysis, Sizes
from klamm_base.errors import ConfigError

RECORDS = st.tuples(
    st.integers(0, 3),
    st.integers(-1, 10**14),
    st.one_of(st.none(), st.binary(max_size=4)),
    st.one_of(st.none(), st.binary(max_size=40)),
)


def analysed(records):
    found = Analysis()
    for offset, (partition, at_ms, key, value) in enumerate(records):
        found.add(partition, offset, at_ms, key=key, value=value)
    return found


@given(st.lists(RECORDS, max_size=40))
def test_figures_are_those_of_the_records(records):
    found = analysed(records)
    facts = found.facts()
    sizes = [len(key or b"") + len(value or b"") for _, _, key, value in records]
    assert facts["records"] == len(records)
    assert facts["bytes"] == sum(sizes)
    assert facts["null_keys"] == sum(key is None for _, _, key, _ in records)
    assert facts["tombstones"] == sum(value is None for *_, value in records)
    assert facts["distinct_keys"] == str(len({key for _, _, key, _ in records if key is not None}))
    assert [r["bytes"] for r in found.largest_records()] == sorted(sizes, reverse=True)[:TOP]
    assert sum(r["records"] for r in found.by_partition()) == len(records)
    times = found.by_time()
    assert sum(r["records"] for r in times) == sum(at_ms >= 0 for _, at_ms, _, _ in records)
    assert len(times) <= BUCKETS_MAX


@given(st.lists(st.integers(0, 10**9), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_exact_to_the_next_power_of_two(sizes, share):
    found = Sizes()
    for size in sizes:
        found.add(size)
    exact = sorted(sizes)[max(0, -int(-share * len(sizes) // 1) - 1)]
    assert exact <= found.percentile(share) <= max(2 * exact, 1)


def test_memory_is_bounded():
    found = analysed([(0, 0, str(n).encode(), b"") for n in range(KEYS_MAX + 5)])
    assert len(found.keys) == KEYS_MAX
    assert found.facts()["distinct_keys"] == f"more than {KEYS_MAX}"
    found = analysed(
        [(0, 0, b"%d" % (n % 2) + bytes(KEY_BYTES_MAX // 3), b"") for n in range(4)]
        + [(0, 0, bytes(KEY_BYTES_MAX), b"")]
    )
    assert (sorted(found.keys.values()), found.other_keys) == ([2, 2], 1)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
        ("2026-03-01T00:00:00.001", 1_772_323_200_001),
        ("1969-12-31T23:59:59.999", 0),  # -1 and -2 are special times of brokers
    ],
)
def test_times(text, ms):
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"), [("90m", 5_400_000), ("1d", 86_400_000), ("5s", 5_000), ("2h", 7_200_000)]
)
def test_times_ago(text, ms):
    assert abs(time.time() * 1000 - parse_time(text) - ms) < 60_000


def test_no_time_is_refused():
    with pytest.raises(ConfigError, match="'noon' is no time"):
        parse_time("noon")


# ---- at a broker


@pytest.fixture
def topic(broker):
    name = new_topic(broker, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(10):
        producer.produce(
            name,
            b"x" * n,
            f"k{n % 3}",
            n % 2,
            timestamp=1_700_000_000_000 + n * 60_000,
            headers=[("h", b"1")],
        )
    producer.produce(name, None, None, 0, timestamp=1_700_000_000_000)
    assert producer.flush(60) == 0
    return name


def run(broker, *words, code=0, **env):
    done = klamm("topic", *words, "-b", broker.bootstrap, **env)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def values(broker, topic):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": new_name(),
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
    found, ended = [], 0
    while ended < 2:
        for m in consumer.consume(100, 1):
            if m.error() is None:
                found.append((m.partition(), m.key(), m.value(), m.timestamp(), m.headers()))
            else:
                ended += 1
    consumer.close()
    return sorted(found, key=str)


def test_a_topic_is_analysed(broker, topic):
    found = json.loads(run(broker, "analyse", topic, "-o", "json"))
    assert (found["records"], found["null_keys"], found["tombstones"], found["with_headers"]) == (
        11,
        1,
        1,
        10,
    )
    assert found["largest_records"][0] == {"partition": 1, "offset": 4, "bytes": 11}
    assert found["top_keys"][0] == {"key": "k0", "records": 4, "share": "36.4%"}
    assert found["stored_bytes"] > 0
    assert json.loads(run(broker, "analyse", topic, "--last", "2", "-o", "json"))["records"] == 4
    late = ("--from", "2023-11-14T22:20:00")
    assert (
        json.loads(run(broker, "analyse", topic, *late, "-o", "json"))["records"] == 4
    )  # and what is behind
    assert "distinct_keys" in run(broker, "analyse", topic)


def test_a_topic_is_cloned_and_copied(broker, topic):
    other = new_name()
    assert f"create topic {other}: partitions=2" in run(broker, "clone", topic, other)
    assert "no topic" in run(broker, "copy", topic, other, code=1)
    run(broker, "clone", topic, other, "--execute")
    assert "is there already" in run(broker, "clone", topic, other, code=1)
    assert run(broker, "copy", topic, other) == f"11 records copied from {topic} to {other}\n"
    assert values(broker, other) == values(broker, topic)
    narrow = new_topic(broker, 1)
    assert "give --by-key" in run(broker, "copy", topic, narrow, code=1)
    assert "11 records copied" in run(broker, "copy", topic, narrow, "--by-key")


def test_a_copy_may_go_to_the_cluster_of_a_context(broker, topic, tmp_path):
    Contexts(tmp_path / "klamm/contexts.toml", {"lab": {"bootstrap_server": broker.bootstrap}}).save()
    other, env = new_name(), {"XDG_CONFIG_HOME": str(tmp_path)}
    run(broker, "clone", topic, other, "--to-context", "lab", "--execute", **env)
    assert "11 records copied" in run(broker, "copy", topic, other, "--to-context", "lab", **env)
    assert "no context 'x'" in run(broker, "copy", topic, other, "--to-context", "x", code=1, **env)


def test_first_records_are_trimmed(broker, topic):
    def starts(*words):
        return [r["new_start_offset"] for r in json.loads(run(broker, "trim", topic, *words, "-o", "json"))]

    assert starts("--before-offset", "2") == [2, 2]
    assert starts("--before-time", "2023-11-14T22:18:00") == [3, 2]
    assert starts("--before-time", "2030-01-01", "-p", "1") == [5]
    assert starts("--before-offset", "3", "--execute") == [3, 3]
    assert len(values(broker, topic)) == 5
    assert starts("--all", "--execute") == [6, 5]
    assert values(broker, topic) == []
    assert "has no partition 7" in run(broker, "trim", topic, "--all", "-p", "7", code=1)
    assert "exactly one" in run(broker, "trim", topic, code=2)


def test_a_topic_is_edited(broker, topic, tmp_path):
    editor = tmp_path / "edit.py"
    editor.write_text(
        "import sys, pathlib\n"
        "p = pathlib.Path(sys.argv[1])\n"
        "p.write_text(p.read_text().replace('partitions: 2', 'partitions: 4') + '    configs:\\n      retention.ms: 7\\n')\n"
    )
    env = {"EDITOR": f"{sys.executable} {editor}", "VISUAL": ""}
    said = run(broker, "edit", topic, **env)
    assert said == f"change topic {topic}: partitions: 2 -> 4, retention.ms=7\n"
    assert run(broker, "edit", topic, "--execute", **env) == said
    assert "failed" in run(broker, "edit", topic, code=1, EDITOR="/absent", VISUAL="")
    assert "unchanged" in run(broker, "edit", topic, EDITOR="true", VISUAL="")
    twice = {"EDITOR": "sh -c 'echo --- >> $0; echo topics: >> $0'", "VISUAL": "", "TMPDIR": str(tmp_path)}
    assert "must be about topic" in run(broker, "edit", topic, code=2, **twice)


def test_partitions_are_added(broker, topic):
    assert run(broker, "add-partitions", topic, "-p", "3") == f"{topic} has 3 partitions now (2 before)\n"
    assert "never removed" in run(broker, "add-partitions", topic, "-p", "2", code=1)


def test_what_worked_is_said_beside_what_did_not(broker, topic):
    new, other = new_name(), new_name()
    done = klamm("topic", "create", topic, new, "-b", broker.bootstrap)
    assert (done.returncode, done.stdout) == (1, f"created {new}\n")
    assert done.stderr.startswith(f"klamm: cannot create {topic}: ")
    done = klamm("topic", "delete", new, other, "-b", broker.bootstrap)
    assert (done.returncode, done.stdout) == (1, f"deleted {new}\n")
    assert done.stderr == f"klamm: no topic {other} at {broker.bootstrap}\n"


def test_a_pattern_spares_names_with_an_underscore_in_front(broker):
    prefix = new_name()
    names = [new_topic(broker, name=f"{underscore}{prefix}") for underscore in ("", "__")]
    assert run(broker, "delete", "--regex", f".*{prefix}") == f"deleted {names[0]}\n"
    assert run(broker, "delete", "--regex", f"_.*{prefix}") == f"deleted {names[1]}\n"


def test_what_others_changed_meanwhile_is_not_undone(broker, topic, tmp_path):
    alter = ["config", "alter", "--entity-type", "topics", "--entity-name", topic, "-b", broker.bootstrap]
    editor = tmp_path / "edit.sh"
    editor.write_text(
        f"{KLAMM} {' '.join(alter)} --add-config retention.ms=5 >/dev/null\n"
        "printf '    configs:\\n      max.message.bytes: 7000\\n' >> \"$1\"\n"
    )
    said = run(broker, "edit", topic, "--execute", code=1, EDITOR=f"sh {editor}", VISUAL="")
    assert "was changed by others meanwhile: nothing is changed" in said
    file = Path(said.rpartition(" is in ")[2].rstrip(")\n"))
    assert "max.message.bytes: 7000" in file.read_text()
    shutil.rmtree(file.parent)
    (row, *_) = json.loads(run(broker, "describe", topic, "-o", "json"))
    assert row["configs"] == {"retention.ms": "5"}
