"""`klamm backup` from end to end, on our broker."""

from __future__ import annotations

from support.backups import backup, commit, committed, contents, read, write, write_transaction
from support.broker import new_topic


def test_there_and_back(broker, tmp_path):
    """Backed up twice, the second time only what is new; committed records come back, with groups' offsets in their places."""
    folder, at = tmp_path / "backups", ("--bootstrap-server", broker.bootstrap)
    topic = new_topic(broker, 2, {"max.message.bytes": "2000000", "message.timestamp.type": "CreateTime"})
    write(broker.bootstrap, topic, 0, 600, 2)
    first = backup("create", folder, *at, "--topic", topic)
    assert "600 records" in first
    write(broker.bootstrap, topic, 600, 200, 2, **{"compression.type": "lz4"})
    write_transaction(broker.bootstrap, topic, [b"never"] * 3, commit=False)
    write_transaction(broker.bootstrap, topic, [b"surely"] * 2, commit=True)
    commit(broker.bootstrap, "readers", {(topic, 0): 405, (topic, 1): 17})
    second = backup("create", folder, *at, "--topic", topic)
    assert "802 records" in second
    assert "good: 2 backups, 4 chunks, 802 records" in backup("verify", folder)

    said = backup("restore", folder, *at, "--rename", f"{topic}={topic}-b", "--parts", "topics,groups")
    assert "802 records" in said
    before, after = read(broker.bootstrap, topic, 2), read(broker.bootstrap, f"{topic}-b", 2)
    assert contents(after) == contents(before)
    assert [row[0] for row in after[0]] == list(range(402))
    # 405 is the second record of the committed transaction: three aborted ones and a marker are before it
    assert committed(broker.bootstrap, "readers", [(f"{topic}-b", 0), (f"{topic}-b", 1)]) == [401, 17]
