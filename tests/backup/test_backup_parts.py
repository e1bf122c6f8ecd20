"""Parts of backups without a broker: pairs of records, folders and URLs, progress, connectors by a worker's answers."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.admin.model import TopicPartition
from klamm.backup.connectors import read_connectors, restore_connectors
from klamm.backup.errors import BackupError, DamagedError
from klamm.backup.folder import BackupFolder
from klamm.backup.keys import Secret
from klamm.backup.manifest import encode
from klamm.backup.mapping import Mapping
from klamm.backup.model import Chunk, Connector, Partition, State, Topic
from klamm.backup.pairing import Pairing
from klamm.backup.prune import prune
from klamm.backup.store import Folder, open_store
from klamm.backup.verify import verify
from klamm.cli.backup_progress import Lines, shown_progress
from klamm_base.errors import KlammError
from klamm_kafka.wire.batch import Record


def row(offset: int, value: bytes = b"v") -> Record:
    return Record(offset, 1, b"k", value, [("h", b"1")])


# ---- pairs


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12), st.integers(0, 9), st.integers(1, 5))
def test_the_first_difference_is_found_wherever_answers_are_cut(values, at, other, step):
    """Both sides are given in pieces; a changed record shows, and nothing else does."""
    ours = [row(i, b"%d" % v) for i, v in enumerate(values)]
    theirs = list(ours)
    if at < len(theirs):
        theirs[at] = row(at, b"%d" % other)
    changed = ours != theirs
    pairing = Pairing(by_offset=False, lenient=False)
    for i in range(0, len(ours), step):
        pairing.backup += ours[i : i + step]
        pairing.step()
    for i in range(0, len(theirs), step + 1):
        pairing.cluster += [r._replace(offset=r.offset + 7) for r in theirs[i : i + step + 1]]
        pairing.step()
    pairing.end(cluster_has_more=False)
    if changed:
        assert (
            pairing.difference
            == f"the record at offset {at} of the backup has another value at offset {at + 7} of the cluster"
        )
    else:
        assert (pairing.difference, pairing.equal) == (None, len(ours))


@pytest.mark.parametrize(
    ("ours", "theirs", "lenient", "said", "compacted"),
    [
        ([1, 2, 3], [1, 3], False, "the record at offset 2 of the backup is missing in the cluster", 0),
        ([1, 3], [1, 2, 3], False, "the cluster has a record at offset 2 that the backup lacks", 0),
        ([1, 2], [1], False, "the record at offset 2 of the backup is missing in the cluster", 0),
        ([1], [1, 2], False, "the cluster has a record at offset 2 that the backup lacks", 0),
        ([1, 2, 3, 4], [1, 3], True, None, 2),
        ([1, 3], [2, 3], True, "the cluster has a record at offset 2 that the backup lacks", 1),
    ],
)
def test_records_of_the_same_topic_belong_together_by_offset(ours, theirs, lenient, said, compacted):
    pairing = Pairing(by_offset=True, lenient=lenient)
    pairing.backup, pairing.cluster = [row(o) for o in ours], [row(o) for o in theirs]
    pairing.end(cluster_has_more=False)
    assert (pairing.difference, pairing.compacted) == (said, compacted)


# ---- places


@pytest.mark.parametrize("remote", [False, True])
def test_a_place_holds_whole_files(tmp_path, remote):
    store = open_store(f"memory://{tmp_path}/b" if remote else str(tmp_path / "b"))
    assert (store.read("a/x"), store.names("a")) == (None, [])
    store.write("a/x", [b"one", memoryview(b"two")])
    store.write("a/b/y", [b""])
    assert (store.read("a/x"), store.read("a/b/y")) == (b"onetwo", b"")
    assert store.names("a") == ["a/b/y", "a/x"]
    assert set(store.names("")) == {"a/b/y", "a/x"}
    store.remove("a/x")
    store.remove("a/x")
    assert store.names("a") == ["a/b/y"]
    with store.lock():
        pass


def test_a_folder_is_written_by_one_command_at_a_time(tmp_path):
    with (
        Folder(tmp_path).lock(),
        pytest.raises(BackupError, match="another klamm backup is writing"),
        Folder(tmp_path).lock(),
    ):
        pass  # fmt: skip


def test_files_are_private_and_a_file_that_cannot_be_written_is_told(tmp_path):
    store = Folder(tmp_path / "b")
    store.write("a/x", [b"1"])
    store.write("a/b/y", [b"1"])
    assert [oct((tmp_path / "b" / p).stat().st_mode)[-3:] for p in ("", "a", "a/b", "a/x")] == ["700"] * 3 + [
        "600"
    ]
    store.write("new/deep/z", [b"1"])
    assert oct((tmp_path / "b" / "new").stat().st_mode)[-3:] == "700"
    (tmp_path / "file").write_text("")
    with pytest.raises(BackupError, match=r"cannot write .*file/x: "):
        Folder(tmp_path / "file").write("x", [b""])


@pytest.mark.parametrize(
    "error", [ConnectionResetError("cut"), TimeoutError("slow"), RuntimeError("of its own")]
)
def test_what_may_pass_at_a_url_is_tried_again(tmp_path, monkeypatch, error):
    """Every second call fails. A refusal is told at once."""
    monkeypatch.setattr("klamm.backup.store.PAUSES_S", (0, 0))
    store, failing = open_store(f"memory://{tmp_path}/r"), [error, None]

    def flaky(work):
        def call(*args, **kwargs):
            failing.append(failing.pop(0))
            if failing[-1] is not None:
                raise failing[-1]
            return work(*args, **kwargs)

        return call

    for name in ("cat_file", "pipe_file", "mv", "find", "rm_file"):
        monkeypatch.setattr(store._fs, name, flaky(getattr(store._fs, name)))
    store.write("x", [b"1"], at_once=False)
    assert (store.read("x"), store.names("")) == (b"1", ["x"])
    store.remove("x")
    failing[:] = [error]
    with pytest.raises(BackupError, match=f"cannot read memory://.*/r/x: {type(error).__name__}"):
        store.read("x")
    failing[:] = [PermissionError("no"), None]
    with pytest.raises(BackupError, match="PermissionError"):
        store.write("y", [b""])


def test_a_bucket_that_is_not_there_is_one_sentence(tmp_path, monkeypatch):
    store = open_store(f"memory://{tmp_path}/nowhere")

    def missing(*_):
        raise FileNotFoundError("the specified bucket does not exist")

    monkeypatch.setattr(store._fs, "pipe_file", missing)
    with pytest.raises(BackupError, match=r"cannot write memory://.*/x: the specified bucket does not exist"):
        store.write("x", [b""])


def test_an_encrypted_folder_at_a_url(tmp_path):
    url, secret = f"memory://{tmp_path}/e", Secret(passphrase=b"open")
    made = BackupFolder.make(open_store(url), secret)
    assert made.key is not None
    again = BackupFolder.open(open_store(url), secret)
    assert again.key is not None
    assert again.key.id == made.key.id
    with pytest.raises(BackupError, match="give --passphrase-file"):
        BackupFolder.open(open_store(url), None)
    plain = BackupFolder.make(open_store(f"{url}-plain"), None)
    assert plain.key is None
    for opened in (BackupFolder.make, BackupFolder.open):
        with pytest.raises(BackupError, match="is not encrypted, so anybody may have written"):
            opened(open_store(f"{url}-plain"), secret)
    with pytest.raises(BackupError, match="give --keep-last"):
        prune(plain, now_ms=0, last=None, days=None)


def test_files_of_a_command_that_runs_are_not_pruned(tmp_path):
    """Files behind the last manifest may belong to a `create` that has not ended."""
    state = State(cluster_id="c", taken_ms=1, topics=())
    folder = BackupFolder.make(Folder(tmp_path / "b"), None)
    name = "20260101T000000.000Z"
    for file in ("data/20251231T000000.000Z/000001.chunk", "data/20260102T000000.000Z/000001.chunk"):
        folder.store.write(file, [b"x"])
    folder.store.write(f"manifests/{name}", [encode(state, name, previous=None, added=0, key=None)])
    gone = prune(folder, now_ms=0, last=1, days=None, dry_run=True)
    assert gone.files == ("data/20251231T000000.000Z/000001.chunk",)
    assert prune(folder, now_ms=0, last=1, days=None) == gone
    assert folder.store.names("data") == ["data/20260102T000000.000Z/000001.chunk"]


@pytest.mark.parametrize("encrypted", [False, True])
def test_nothing_that_a_backup_needs_is_pruned(tmp_path, encrypted):
    """Each backup has chunks of those before it. Copies of manifests below the folder are no backups."""
    folder = BackupFolder.make(Folder(tmp_path / "b"), Secret(passphrase=b"x") if encrypted else None)
    names = [f"2026010{day}T000000.000Z" for day in range(1, 5)]
    files = [f"data/{name}/000001.chunk" for name in names]
    for n, name in enumerate(names):
        put(folder, name, files[max(0, n - 1) : n + 1])
    for beside in ("manifests/.snapshot", "manifests/old"):
        for name in names[:2]:
            folder.store.write(f"{beside}/{name}", [folder.store.read(f"manifests/{name}")])
    gone = prune(folder, now_ms=0, last=2, days=None)
    assert (gone.backups, gone.files) == (tuple(names[:2]), (files[0],))
    assert folder.ids() == names[2:]
    for name in folder.ids():
        assert all(folder.store.read(file) for file in folder.manifest(name).state(folder.key).chunks())
    assert folder.store.read(f"manifests/old/{names[0]}") is not None, "what is not ours stays"


def test_a_plain_manifest_in_an_encrypted_folder_stops_a_pruning_while_it_is_kept(tmp_path):
    """Nobody vouches for it. If it counted as a backup, a forged one would push out those that are good."""
    folder = BackupFolder.make(Folder(tmp_path / "b"), Secret(passphrase=b"x"))
    names = [f"2026010{day}T000000.000Z" for day in range(1, 4)]
    files = [f"data/{name}/000001.chunk" for name in names]
    put(folder, names[0], files[:1])
    put(BackupFolder(folder.store, None), names[1], files[:2])
    before = folder.store.names("")
    for last in (1, 2):
        with pytest.raises(DamagedError, match="it is not encrypted, but the folder is"):
            prune(folder, now_ms=0, last=last, days=None)
        assert folder.store.names("") == before
    put(folder, names[2], [files[0], files[2]])
    gone = prune(folder, now_ms=0, last=1, days=None)
    assert (gone.backups, gone.files) == (tuple(names[:2]), (files[1],))


def put(folder: BackupFolder, name: str, files: list[str]) -> None:
    """Writes a backup with chunks in these files, which are made."""
    chunks = tuple(
        Chunk(
            file=file, sha256="", size=1, raw_bytes=1, first=n, end=n + 1, records=1, max_timestamp=1
        )
        for n, file in enumerate(files)
    )  # fmt: skip
    partition = Partition(number=0, start=0, end=len(files), epoch=0, chunks=chunks)
    topic = Topic(name="t", id="i", replication_factor=1, configs={}, partitions=(partition,))
    state = State(cluster_id="c", taken_ms=1, topics=(topic,))
    for file in files:
        if folder.store.read(file) is None:
            folder.store.write(file, [b"x"])
    data = encode(state, name, previous=None, added=0, key=folder.key)
    folder.store.write(f"manifests/{name}", [data])


def test_half_written_files_are_counted_and_pruned_and_strange_files_are_no_backups(tmp_path):
    """A killed command leaves files that end with .tmp; a file manager, files of its own."""
    state = State(cluster_id="c", taken_ms=1, topics=())
    store, name = Folder(tmp_path / "b"), "20260101T000000.000Z"
    half = ["data/20251231T000000.000Z/000001.chunk.tmp", "manifests/20251231T000000.000Z.tmp"]
    store.write("klamm-backup.json.tmp", [b"x"])
    folder = BackupFolder.make(store, None)
    for file in (*half, "manifests/.DS_Store"):
        store.write(file, [b"x"])
    with pytest.raises(BackupError, match="b holds no complete backup"):
        asyncio.run(verify(folder, Lines(str, time.monotonic)))
    store.write(f"manifests/{name}", [encode(state, name, previous=None, added=0, key=None)])
    assert folder.ids() == [name]
    verdict = asyncio.run(verify(folder, Lines(str, time.monotonic)))
    assert (verdict.backups, verdict.damage, verdict.unreferenced) == (1, [], 2)
    assert prune(folder, now_ms=0, last=1, days=None).files == tuple(half)
    assert folder.files() == []


# ---- progress


def test_progress_is_a_line_now_and_then():
    said, now = [], [0.0]
    lines = Lines(said.append, lambda: now[0])
    lines.begin("backup", 1000)
    for second in range(1, 26):
        now[0] = float(second)
        lines.advance(20, 2_000_000)
    assert said == [
        "backup: 200 of 1000 records, 2.0 MB/s, 40 s left",
        "backup: 400 of 1000 records, 2.0 MB/s, 30 s left",
    ]


def test_progress_is_a_bar_on_terminals(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with shown_progress() as progress:
        progress.begin("backup", 1000)
        progress.advance(250, 5_000_000)
        progress.say("topic [bold] is left out")
        progress.advance(750, 5_000_000)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "1000/1000" in shown
    assert "MB/s" in shown
    assert "klamm: topic [bold] is left out" in shown


# ---- connectors


SINK = {"partition": {"kafka_topic": "t", "kafka_partition": 1}, "offset": {"kafka_offset": 12}}
FILE = {"partition": {"filename": "f"}, "offset": {"position": 7}}


def test_connectors_go_there_and_back_with_translated_offsets_of_sinks():
    answers = {
        "/connectors?expand=info&expand=status": {
            name: {"info": {"config": {"name": name}}, "status": {"connector": {"state": state}}}
            for name, state in (("sink", "RUNNING"), ("file", "PAUSED"), ("old", "STOPPED"))
        },
        "/connectors/sink/offsets": {
            "offsets": [SINK, {**SINK, "partition": {"kafka_topic": "gone", "kafka_partition": 0}}]
        },
        "/connectors/file/offsets": {"offsets": [FILE]},
    }
    said: list[str] = []

    def get(_method: str, path: str, _body: object) -> object:
        if path not in answers:
            raise KlammError("not here")
        return answers[path]

    found = read_connectors(get, said.append)
    assert [c.name for c in found] == ["file", "old", "sink"]
    assert said == ["connector old: its offsets cannot be read (not here)"]

    asked: list[tuple[str, str, object]] = []

    def put(method: str, path: str, body: object) -> None:
        asked.append((method, path, json.loads(json.dumps(body))))
        if path == "/connectors" and isinstance(body, dict) and body["name"] == "old":
            raise KlammError("Connector old already exists")

    places = {TopicPartition("t", 1): Mapping(0)}
    places[TopicPartition("t", 1)].add([(5, 2), (11, 9)])
    assert restore_connectors(put, found, {"t": "t"}, places, pytest.fail) == (
        2,
        ["connector old: Connector old already exists"],
    )
    moved = {"partition": {"kafka_topic": "t", "kafka_partition": 1}, "offset": {"kafka_offset": 3}}
    assert [(m, p, b) for m, p, b in asked if p != "/connectors"] == [
        ("PATCH", "/connectors/file/offsets", {"offsets": [FILE]}),
        ("PUT", "/connectors/file/pause", None),
        ("PATCH", "/connectors/sink/offsets", {"offsets": [moved]}),
        ("PUT", "/connectors/sink/resume", None),
    ]
    assert asked[0][2] == {"name": "file", "config": {"name": "file"}, "initial_state": "STOPPED"}


def test_connectors_of_a_killed_restore_are_gone_on_with():
    """One is stopped and may lack its offsets, one runs, one is somebody else's, and one is not there."""
    there = {"half": ("STOPPED", "half"), "done": ("RUNNING", "done"), "other": ("STOPPED", "of another")}
    asked: list[tuple[str, str]] = []

    def worker(method: str, path: str, body: dict[str, str]) -> object:
        name = path.split("/")[2] if path != "/connectors" else body["name"]
        if method == "GET":
            if name not in there:
                raise KlammError("not here")
            state, own = there[name]
            return {"name": own} if path.endswith("config") else {"connector": {"state": state}}
        asked.append((method, path if path != "/connectors" else name))
        if method == "POST" and name in there:
            raise KlammError(f"Connector {name} already exists")
        return None

    wanted = [
        Connector(name=name, config={"name": name}, state="RUNNING", offsets=(FILE,))
        for name in ("half", "done", "other", "new")
    ]
    found = restore_connectors(worker, wanted, {"t": "t"}, {}, pytest.fail, resume=True)
    assert found == (3, ["connector other: Connector other already exists"])
    assert asked == [
        ("PATCH", "/connectors/half/offsets"), ("PUT", "/connectors/half/resume"), ("POST", "other"), ("POST", "new"),
        ("PATCH", "/connectors/new/offsets"), ("PUT", "/connectors/new/resume"),
    ]  # fmt: skip


def test_a_connector_whose_worker_tells_no_offsets_is_made_without():
    asked: list[str] = []
    made, refused = restore_connectors(
        lambda method, path, _body: asked.append(f"{method} {path}"),
        [Connector(name="a b", config={}, state="FAILED")], {}, {}, pytest.fail,
    )  # fmt: skip
    assert (made, refused, asked) == (1, [], ["POST /connectors", "PUT /connectors/a%20b/resume"])


def test_connectors_whose_configuration_may_be_wrong_stay_stopped():
    """Topics with other names stand in no configuration, and a hidden password is none."""
    asked: list[str] = []
    said: list[str] = []

    def call(method: str, path: str, _body: object) -> None:
        asked.append(f"{method} {path}")

    plain = Connector(name="plain", config={"topics": "t"}, state="RUNNING")
    stopped = Connector(name="stopped", config={}, state="STOPPED")
    hidden = Connector(name="hidden", config={"a": "b", "db.password": "[hidden]", "url": "mysql://u:[hidden]@h/"}, state="PAUSED")  # fmt: skip
    assert restore_connectors(call, [plain, stopped], {"t": "x-t"}, {}, said.append) == (2, [])
    assert said == [
        "connector plain is stopped, because topics have other names: change its configuration, then resume it"
    ]
    made, refused = restore_connectors(call, [hidden], {"t": "t"}, {}, pytest.fail)
    assert (made, refused) == (
        1,
        ["connector hidden: db.password, url, which its worker hid. It is stopped: set what is missing, then resume it"],
    )  # fmt: skip
    assert asked == ["POST /connectors"] * 3
