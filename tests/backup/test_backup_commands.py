"""`klamm backup` from end to end, on our broker."""

from __future__ import annotations

import json
import shutil

from confluent_kafka import Producer
from support.backups import backup, commit, committed, contents, read, write, write_transaction
from support.broker import new_topic
from support.klamm import klamm


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


def test_a_backup_is_compared_with_the_cluster_and_its_copy(broker, tmp_path):
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 400, 2)
    write_transaction(broker.bootstrap, topic, [b"never"], commit=False)
    write(broker.bootstrap, topic, 400, 100, 2)
    commit(broker.bootstrap, "compared", {(topic, 0): 230})
    backup("create", tmp_path / "b", *at, "-t", topic)
    backup("restore", tmp_path / "b", *at, "--prefix", "copy-", "--parts", "topics,groups")
    against = ("verify", str(tmp_path / "b"), "--against", broker.bootstrap)
    assert backup(*against) == "equal: 1 topic, 500 records, 1 offset of groups\n"
    write(broker.bootstrap, topic, 500, 10, 2)  # what is written since is no difference
    write(broker.bootstrap, f"copy-{topic}", 500, 10, 2)
    assert backup(*against).startswith("equal: 1 topic, 500 records")
    assert backup(*against, "--prefix", "copy-") == "equal: 1 topic, 500 records, 1 offset of groups\n"

    other = new_topic(broker, 2)
    write(broker.bootstrap, other, 0, 320, 2)
    write(broker.bootstrap, other, 321, 10, 2)
    done = klamm("backup", *against, "--rename", f"{topic}={other}")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert (
        lines[0]
        == f"different: {topic} partition 0: the record at offset 160 of the backup has another timestamp, key, value, headers at offset 160 of the cluster"
    )
    assert lines[1].startswith(
        f"different: {topic} partition 1: the record at offset 165 of the backup is missing"
    )
    backup(
        "restore", tmp_path / "b", *at, "--prefix", "part-", "--until", "1700000000300", "--parts", "topics"
    )
    done = klamm("backup", *against, "--prefix", "part-")
    assert "partition 0: the record at offset 150 of the backup is missing in the cluster" in done.stdout


def test_up_to_a_time(broker, tmp_path):
    """Everything from the first record of the time on is left out, also in the middle of a batch; groups stand at the end."""
    topic, at = new_topic(broker), ("-b", broker.bootstrap)
    for codec in ("none", "zstd"):
        write(broker.bootstrap, topic, 100 * (codec == "zstd"), 100, 1, **{"compression.type": codec})
    commit(broker.bootstrap, "ahead", {(topic, 0): 190})
    backup("create", tmp_path / "b", *at, "-t", topic)
    for until, count in (("1700000000142", 142), ("2023-11-14T22:13:20.050Z", 50), ("1600000000000", 0)):
        backup("restore", tmp_path / "b", *at, "--prefix", f"{count}-", "--until", until)
        rows = read(broker.bootstrap, f"{count}-{topic}")[0]
        assert rows == read(broker.bootstrap, topic)[0][:count]
        assert committed(broker.bootstrap, "ahead", [(f"{count}-{topic}", 0)]) == [count]
    refused = klamm("backup", "restore", str(tmp_path / "b"), *at, "--until", "noon")
    assert (refused.returncode, "--until noon: no time of ISO 8601" in refused.stderr) == (2, True)


def test_a_topic_made_anew_and_one_that_retention_shortened(broker, tmp_path):
    first, second, at = new_topic(broker), new_topic(broker), ("-b", broker.bootstrap)
    for topic in (first, second):
        write(broker.bootstrap, topic, 0, 50)
    create = ("backup", "create", str(tmp_path / "b"), *at, "-t", first, "-t", second)
    assert klamm(*create).returncode == 0
    assert klamm("topic", "delete", first, *at).returncode == 0
    new_topic(broker, name=first)
    write(broker.bootstrap, first, 1000, 70)
    (tmp_path / "cut.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": second, "partition": 0, "offset": 20}]})
    )
    cut = ("--offset-json-file", str(tmp_path / "cut.json"), "--bootstrap-server", broker.bootstrap)
    assert klamm("kafka-delete-records", *cut).returncode == 0
    write(broker.bootstrap, second, 50, 5)
    done = klamm(*create)
    assert f"{first}-0 is read anew from 0 on: the topic was made anew" in done.stderr
    assert backup("verify", tmp_path / "b", "--against", broker.bootstrap).startswith(
        "equal: 2 topics, 105 records"
    )
    backup("restore", tmp_path / "b", *at, "--prefix", "x-")
    assert contents(read(broker.bootstrap, f"x-{first}")) == contents(read(broker.bootstrap, first))
    after = read(broker.bootstrap, f"x-{second}")
    assert contents(after) == contents(read(broker.bootstrap, second))
    assert [row[0] for row in after[0]] == list(range(35))
    backup("prune", tmp_path / "b", "--keep-last", "1")
    assert "good: 1 backup, 3 chunks" in backup("verify", tmp_path / "b")


def test_an_encrypted_folder_and_a_damaged_one(broker, tmp_path):
    topic, at = new_topic(broker), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 100)
    (tmp_path / "key").write_text("5a" * 32)
    folder, key = tmp_path / "b", ("--key-file", str(tmp_path / "key"))
    backup("create", folder, *at, "-t", topic, *key)
    (row,) = json.loads(backup("list", folder, "-o", "json"))
    assert (row["records"], row["topics"], len(row["key_id"])) == (100, 1, 16)
    files = [p.read_bytes() for p in folder.rglob("*") if p.is_file()]
    assert not any(topic.encode() in data or b"value 7" in data or b"ZZZZ" in data for data in files)
    refused = klamm("backup", "verify", str(folder))
    assert (
        refused.returncode,
        f"is encrypted (key id {row['key_id']}): give --key-file" in refused.stderr,
    ) == (1, True)
    (tmp_path / "other").write_text("00" * 32)
    refused = klamm("backup", "restore", str(folder), *at, "--key-file", str(tmp_path / "other"))
    assert "this is not the key file of the backup" in refused.stderr
    backup("restore", folder, *at, *key, "--prefix", "secret-")
    assert read(broker.bootstrap, f"secret-{topic}") == read(broker.bootstrap, topic)

    (chunk,) = folder.rglob("*.chunk")
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    done = klamm("backup", "verify", str(folder), *key)
    assert done.returncode == 1
    assert (
        f"damaged: {chunk.relative_to(folder)} ({topic} partition 0, offsets 0 to 99): its SHA-256 is"
        in done.stdout
    )
    done = klamm("backup", "restore", str(folder), *at, *key, "--prefix", "bad-")
    assert (done.returncode, f"({topic} partition 0, offsets 0 to 99): its SHA-256" in done.stderr) == (
        1,
        True,
    )


def test_a_plain_manifest_in_an_encrypted_folder_is_refused(broker, tmp_path):
    topic, at = new_topic(broker), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 5)
    (tmp_path / "key").write_text("5a" * 32)
    folder, key = tmp_path / "b", ("--key-file", str(tmp_path / "key"))
    backup("create", folder, *at, "-t", topic, *key)
    backup("create", tmp_path / "forged", *at, "-t", topic)
    (manifest,) = (tmp_path / "forged/manifests").iterdir()
    shutil.copytree(tmp_path / "forged/manifests", folder / "manifests", dirs_exist_ok=True)
    shutil.copytree(tmp_path / "forged/data", folder / "data", dirs_exist_ok=True)
    said = f"manifest {manifest.name}: it is not encrypted, but the folder is, so anybody may have written it"
    wanted = ("restore", folder, *at, *key, "--parts", "topics", "--prefix", "forged-")
    refused = klamm("backup", *map(str, wanted))
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    refused = klamm("backup", "verify", str(folder), *key)
    assert (refused.returncode, f"damaged: {said}" in refused.stdout) == (1, True)
    made = klamm("backup", "create", str(folder), *at, "-t", topic, *key)
    assert (made.returncode, said in made.stderr) == (0, True), made.stderr
    backup(*wanted, "--backup", manifest.name, "--allow-plain")
    assert read(broker.bootstrap, f"forged-{topic}") == read(broker.bootstrap, topic)


def test_what_cannot_be_done_is_one_sentence(broker, tmp_path):
    topic, at = new_topic(broker), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 5)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    backup("create", tmp_path / "b", *at, "-t", topic)
    for args, said in (
        (["create", "full", *at], "full is neither empty nor a folder of backups"),
        (["create", "c", *at, "-t", "nothing"], "there is no topic nothing"),
        (["create", "b", *at, "--compression", "rar"], "--compression rar: use one of zstd, lz4, none"),
        (["list", "nowhere"], "nowhere holds no backups"),
        (["verify", "nowhere"], "nowhere holds no backups"),
        (["restore", "b", *at], f"topic {topic} is there and holds records: restore under another name"),
        (["restore", "b", *at, "--backup", "x"], "b holds no backup x; `klamm backup list` shows all"),
        (
            ["restore", "b", *at, "--parts", "topic"],
            "--parts topic: use topics, groups, acls, quotas",
        ),
        (["prune", "b"], "give --keep-last or --keep-days"),
        (["create", "s4://bucket/b", *at], "s4://bucket/b: Protocol not known: s4"),
        (["create", "memory://b", *at], "memory://b: what this process keeps in memory is gone when it ends"),
    ):
        done = klamm("backup", *args, cwd=tmp_path)
        assert (said in done.stderr, done.stderr.count("\n")) == (True, 1), done.stderr


def test_backups_of_other_topics_lie_in_between_and_a_transaction_is_open(broker, tmp_path):
    """Each topic goes on from the last backup that has it; what is behind an open transaction waits, and is told."""
    first, second, at = new_topic(broker), new_topic(broker), ("-b", broker.bootstrap)
    write(broker.bootstrap, first, 0, 30)
    write(broker.bootstrap, second, 0, 40)
    backup("create", tmp_path / "b", *at, "-t", first)
    backup("create", tmp_path / "b", *at, "-t", second)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"open-{first}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(first, b"undecided", b"k")
    producer.flush(30)
    write(broker.bootstrap, first, 30, 5)
    done = klamm("backup", "create", str(tmp_path / "b"), *at, "-t", first)
    assert f"{first}-0: a transaction is open from offset 30 on; 6 offsets behind it are left" in done.stderr
    assert "30 records" in done.stdout
    assert "of which 0 B are new" in done.stdout
    producer.commit_transaction(30)
    assert "36 records" in backup("create", tmp_path / "b", *at, "-t", first)
    rows = json.loads(backup("list", tmp_path / "b", "-o", "json"))
    assert [row["records"] for row in rows] == [30, 40, 30, 36]
    backup("restore", tmp_path / "b", *at, "--prefix", "y-")
    assert contents(read(broker.bootstrap, f"y-{first}")) == contents(read(broker.bootstrap, first))


def test_partitions_begin_where_they_began(broker, tmp_path):
    """Records keep their offsets behind a start that retention has moved; a killed filling goes on."""
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 500, 2)
    cut = {
        "version": 1,
        "partitions": [{"topic": topic, "partition": p, "offset": o} for p, o in ((0, 130), (1, 250))],
    }
    (tmp_path / "cut.json").write_text(json.dumps(cut))
    where = ("--offset-json-file", str(tmp_path / "cut.json"), "--bootstrap-server", broker.bootstrap)
    assert klamm("kafka-delete-records", *where).returncode == 0
    commit(broker.bootstrap, "exact", {(topic, 0): 200, (topic, 1): 250})
    backup("create", tmp_path / "b", *at, "-t", topic)
    wanted = ("restore", tmp_path / "b", *at, "--keep-offsets")
    said = backup(*wanted, "--prefix", "k-")
    assert "other offsets" not in said
    assert read(broker.bootstrap, f"k-{topic}", 2) == read(broker.bootstrap, topic, 2)
    assert committed(broker.bootstrap, "exact", [(f"k-{topic}", 0), (f"k-{topic}", 1)]) == [200, 250]
    write(broker.bootstrap, f"k-{topic}", 500, 2, 2)
    assert [rows[-1][0] for rows in read(broker.bootstrap, f"k-{topic}", 2).values()] == [250, 250]

    meanwhile = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
    }
    new_topic(broker, 2, meanwhile, name=f"l-{topic}")
    write(broker.bootstrap, f"l-{topic}", 0, 7)  # as a filling that was killed left it
    backup(*wanted, "--prefix", "l-", "--resume")
    assert read(broker.bootstrap, f"l-{topic}", 2) == read(broker.bootstrap, topic, 2)
    said = backup("restore", tmp_path / "b", *at, "--prefix", "m-")
    assert "1 partition of 2 with other offsets than before" in said


def test_a_compacted_topic_is_read_in_whole_when_tombstones_may_be_gone(broker, tmp_path):
    slow = new_topic(broker, 1, {"cleanup.policy": "compact"})
    fast = new_topic(broker, 1, {"cleanup.policy": "compact", "delete.retention.ms": "1"})
    for topic in (slow, fast):
        write(broker.bootstrap, topic, 0, 20)
    create = ("backup", "create", str(tmp_path / "b"), "-b", broker.bootstrap, "-t", slow, "-t", fast)
    assert klamm(*create).stderr == ""
    again = klamm(*create)
    assert again.stderr == (
        f"klamm: {fast}-0 is read anew from 0 on: tombstones may be gone: the last backup is older than delete.retention.ms\n"
    )
    assert "40 records" in again.stdout


def test_a_damaged_last_manifest_is_no_end_of_backups(broker, tmp_path):
    """The next backup follows the last good one, has a later id than the damaged one, and says so."""
    topic, create = new_topic(broker), ("backup", "create", str(tmp_path / "b"), "-b", broker.bootstrap)
    for i in range(3):
        write(broker.bootstrap, topic, 10 * i, 10)
        assert klamm(*create, "-t", topic).returncode == 0
    for more in (["--full"], []):
        last = max((tmp_path / "b" / "manifests").iterdir())
        last.write_bytes(last.read_bytes()[:-9])
        done = klamm(*create, "-t", topic, *more)
        assert (done.returncode, "30 records" in done.stdout) == (0, True), done.stderr
        assert f"manifest {last.name}: its SHA-256 is" in done.stderr
        assert max((tmp_path / "b" / "manifests").iterdir()).name > last.name
        last.unlink()
    assert "good: 3 backups" in backup("verify", tmp_path / "b")
    backup("restore", tmp_path / "b", "-b", broker.bootstrap, "--prefix", "d-")
    assert read(broker.bootstrap, f"d-{topic}") == read(broker.bootstrap, topic)


def test_a_partition_whose_file_is_gone_is_read_anew(broker, tmp_path):
    topic, create = new_topic(broker, 2), ("backup", "create", str(tmp_path / "b"), "-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 40, 2)
    assert klamm(*create, "-t", topic).returncode == 0
    lost = max((tmp_path / "b").rglob("*.chunk"))
    lost.unlink()
    done = klamm(*create, "-t", topic)
    assert (done.returncode, "40 records" in done.stdout) == (0, True), done.stderr
    assert f"is read anew: {lost.relative_to(tmp_path / 'b')} is not there" in done.stderr
    backup("prune", tmp_path / "b", "--keep-last", "1")
    assert "good: 1 backup, 2 chunks, 40 records" in backup("verify", tmp_path / "b")


def test_what_programs_read(broker, tmp_path):
    """`list`, `verify` and `prune` in JSON; a damaged manifest hides no other backup."""
    topic, at, folder = new_topic(broker), ("-b", broker.bootstrap), tmp_path / "b"
    write(broker.bootstrap, topic, 0, 10)
    for _ in range(3):
        backup("create", folder, *at, "-t", topic)
    (found,) = json.loads(backup("verify", folder, "-o", "json"))
    assert (found["backups"], found["records"], found["damage"]) == (3, 10, [])
    (found,) = json.loads(backup("verify", folder, "--against", broker.bootstrap, "-o", "json"))
    assert (found["topics"], found["records"], found["differences"]) == (1, 10, [])
    ids = [row["backup"] for row in json.loads(backup("list", folder, "-o", "json"))]
    (found,) = json.loads(backup("prune", folder, "--keep-last", "2", "--dry-run", "-o", "json"))
    assert found == {"backups": ids[:1], "files": [], "dry_run": True}
    (folder / "manifests" / ids[1]).write_text("{")
    done = klamm("backup", "list", str(folder), "-o", "json")
    assert (done.returncode, [row["backup"] for row in json.loads(done.stdout)]) == (1, [ids[0], ids[2]])
    assert f"manifest {ids[1]}: " in done.stderr
    done = klamm("backup", "verify", str(folder), "-o", "json")
    assert (done.returncode, json.loads(done.stdout)[0]["damage"][0].startswith(f"manifest {ids[1]}")) == (
        1,
        True,
    )
