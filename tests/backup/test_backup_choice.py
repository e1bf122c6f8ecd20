"""Parts of a backup that are restored without its topics."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient
from support.backups import backup, commit, committed, read, write, write_transaction
from support.broker import new_topic
from support.klamm import klamm


def there(broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics)


@pytest.fixture
def moved(broker, tmp_path):
    """A backup of a topic whose copy has other offsets, with a group at the record behind an aborted transaction."""
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 60, 2)
    write_transaction(broker.bootstrap, topic, [b"never"] * 3, commit=False)
    write(broker.bootstrap, topic, 60, 20, 2)
    commit(broker.bootstrap, f"g-{topic}", {(topic, 0): 36, (topic, 1): 7})
    cut = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 10}]}
    (tmp_path / "cut.json").write_text(json.dumps(cut))
    where = ("--offset-json-file", str(tmp_path / "cut.json"), "--bootstrap-server", broker.bootstrap)
    assert klamm("kafka-delete-records", *where).returncode == 0
    backup("create", tmp_path / "b", *at, "-t", topic)
    return topic


def test_rules_alone_make_no_topic_and_send_nothing(broker, moved, tmp_path):
    before = there(broker)
    said = backup(
        "restore", tmp_path / "b", "-b", broker.bootstrap, "--parts", "acls,quotas", "--prefix", "no-"
    )
    assert said == "restored: 0 topics, 0 records, 0 offsets of 0 groups, 0 ACLs, 0 quotas, 0 connectors\n"
    assert there(broker) == before
    # nor is a topic in the way that is there
    backup("restore", tmp_path / "b", "-b", broker.bootstrap, "--parts", "acls")
    refused = klamm(
        "backup", "restore", str(tmp_path / "b"), "-b", broker.bootstrap, "--parts", "acls", "--resume"
    )
    assert (
        refused.returncode,
        "--resume is about topics, which --parts acls leaves out" in refused.stderr,
    ) == (2, True)


@pytest.mark.parametrize("how", [[], ["--keep-offsets"]])
def test_groups_alone_find_their_places_in_a_copy(broker, moved, tmp_path, how):
    """Partition 0 lost ten records before the backup, and four offsets of a transaction are no records in a copy."""
    at, prefix = ("-b", broker.bootstrap), f"c{len(how)}-"
    copy, group = f"{prefix}{moved}", f"g-{moved}"
    backup("restore", tmp_path / "b", *at, "--prefix", prefix, "--parts", "topics", *how)
    write(broker.bootstrap, copy, 80, 10, 2)  # it has gone on
    wanted = ("restore", tmp_path / "b", *at, "--prefix", prefix, "--parts", "groups")
    assert "0 topics, 0 records, 2 offsets of 1 group" in backup(*wanted)
    found = committed(broker.bootstrap, group, [(copy, 0), (copy, 1)])
    assert found == [32 if how else 22, 7]
    value = {row[0]: row[3] for row in read(broker.bootstrap, copy, 2)[0]}[found[0]]
    assert value == {row[0]: row[3] for row in read(broker.bootstrap, moved, 2)[0]}[36]


def test_groups_alone_keep_their_offsets_in_the_topic_that_was_backed_up(broker, moved, tmp_path):
    group = f"g-{moved}"
    commit(broker.bootstrap, group, {(moved, 0): 40, (moved, 1): 40})
    assert "2 offsets of 1 group" in backup(
        "restore", tmp_path / "b", "-b", broker.bootstrap, "--parts", "groups"
    )
    assert committed(broker.bootstrap, group, [(moved, 0), (moved, 1)]) == [36, 7]


def test_groups_alone_are_refused_where_their_records_are_not(broker, moved, tmp_path):
    wanted = ("backup", "restore", str(tmp_path / "b"), "-b", broker.bootstrap, "--parts", "groups")
    refused = klamm(*wanted, "--prefix", "nowhere-")
    assert refused.returncode == 1
    assert (
        f"topic nowhere-{moved} is not there, so that its offsets have no place: restore it, too"
        in refused.stderr
    )
    other = new_topic(broker, 2)
    write(broker.bootstrap, other, 1000, 200, 2)
    refused = klamm(*wanted, "--rename", f"{moved}={other}")
    assert (refused.returncode, f"{other}-0 does not hold the backup's records" in refused.stderr) == (
        1,
        True,
    )
    narrow = new_topic(broker)
    refused = klamm(*wanted, "--rename", f"{moved}={narrow}")
    assert f"topic {narrow} has 1 partitions, the backup has partition 1" in refused.stderr
