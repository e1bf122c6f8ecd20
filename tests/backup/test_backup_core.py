"""The pure core of backups: manifests, chunks, increments, offsets, names."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drawing import choices

from klamm.backup import chunks, manifest
from klamm.backup.committed import select
from klamm.backup.errors import BackupError, DamagedError
from klamm.backup.increment import Log, is_stale, plan
from klamm.backup.keys import FolderKey, Secret, read_secret
from klamm.backup.mapping import Mapping
from klamm.backup.model import (
    AclRule,
    Chunk,
    Connector,
    Group,
    GroupOffset,
    Partition,
    Quota,
    State,
    Topic,
    User,
    as_json,
    from_json,
)
from klamm.backup.prune import kept
from klamm.backup.selection import Names, Selection
from klamm_base.errors import ConfigError
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, encode_end_txn_marker
from klamm_kafka.wire.compression import Compression


def chunk(first: int, end: int, file: str = "data/a/1.chunk") -> Chunk:
    return Chunk(
        file=file, sha256="", size=1, raw_bytes=1, first=first, end=end, records=end - first, max_timestamp=1
    )


def partition(*bounds: tuple[int, int], start: int = 0, end: int | None = None) -> Partition:
    parts = tuple(chunk(a, b, f"data/a/{a}.chunk") for a, b in bounds)
    return Partition(number=0, start=start, end=bounds[-1][1] if end is None else end, epoch=3, chunks=parts)


STATE = State(
    cluster_id="c", taken_ms=5,
    topics=(Topic(name="t", id="i", replication_factor=1, configs={"a": "b"}, partitions=(partition((0, 5), (5, 9)),)),),
    groups=(Group(name="g", offsets=(GroupOffset(topic="t", partition=0, offset=4, metadata="m"),)),),
    acls=(AclRule(resource_type="TOPIC", resource_name="t", pattern_type="LITERAL", principal="User:a", host="*", operation="READ", permission="ALLOW"),),
    quotas=(Quota(entity=(("user", None), ("client-id", "x")), values={"producer_byte_rate": 10.0}),),
    users=(User(name="ann", mechanisms={"SCRAM-SHA-256": 4096}),),
    connectors=(Connector(name="c", config={"k": "v"}, state="RUNNING", offsets=({"partition": {"f": 1}, "offset": {"p": 2}},)),),
)  # fmt: skip


# ---- manifests


@pytest.mark.parametrize("key", [None, FolderKey(b"k" * 32)])
def test_a_manifest_comes_back_and_any_changed_byte_shows(key):
    data = manifest.encode(STATE, "20260101T000000.000Z", previous=None, added=3, key=key)
    found = manifest.decode(data, "20260101T000000.000Z")
    assert found.state(key) == STATE
    assert (found.header.records, found.header.added, found.header.topics) == (9, 3, 1)
    assert (b"producer_byte_rate" in data, bool(found.header.key_id)) == (False, key is not None)
    draw = random.Random(7)
    for at in draw.sample(range(len(data)), 60):
        bad = bytearray(data)
        bad[at] ^= 1 << draw.randrange(8)
        with pytest.raises(DamagedError):
            manifest.decode(bytes(bad), "20260101T000000.000Z").state(key)
    with pytest.raises(DamagedError, match="it says that it is"):
        manifest.decode(data, "20260101T000000.001Z")


def test_a_chain_without_one_of_its_links_is_told():
    found: list[manifest.Manifest] = []
    for name in ("20260101T000000.000Z", "20260102T000000.000Z", "20260103T000000.000Z"):
        data = manifest.encode(STATE, name, previous=found[-1] if found else None, added=0, key=None)
        found.append(manifest.decode(data, name))
    manifest.check_chain(found)
    manifest.check_chain(found[1:])  # the first was pruned
    with pytest.raises(DamagedError, match="follows 20260102"):
        manifest.check_chain([found[0], found[2]])


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_ids_rise_even_if_the_clock_goes_back(first, second):
    former = manifest.new_id(first, "")
    later = manifest.new_id(second, former)
    assert manifest.id_ms(former) == first
    assert later > former


def test_an_unknown_key_of_a_later_release_is_refused():
    told = json.loads(json.dumps(as_json(STATE)))
    assert from_json(told, State) == STATE
    told["topics"][0]["partitions"][0]["tiers"] = 1
    with pytest.raises(DamagedError, match=r"topics\[0\]\.partitions\[0\]: unknown key tiers"):
        from_json(told, State)
    told["topics"][0]["partitions"][0] = {"number": "0"}
    with pytest.raises(DamagedError, match=r"number: str where int is due"):
        from_json(told, State)


# ---- chunks


def batches(codec: Compression = Compression.NONE) -> list[bytes]:
    return [
        bytes(encode_batch([Record(0, 5, b"k", b"v" * 300)] * 3, base_offset=at, compression=codec))
        for at in (10, 13, 16)
    ]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
@pytest.mark.parametrize("key", [None, FolderKey(b"k" * 32)])
def test_a_chunk_comes_back_and_any_changed_byte_shows(codec, key):
    pieces = batches()
    content, told = chunks.pack(pieces, file="data/a/1.chunk", codec=codec, key=key)
    data = b"".join(content)
    made = Chunk(first=10, end=19, records=9, max_timestamp=5, **told)
    assert made.codec == ("" if codec == "none" else codec)
    raw = bytes(chunks.unpack(made, data, key))
    assert raw == b"".join(pieces)
    assert [h.base_offset for _, h in chunks.batches(made, raw)] == [10, 13, 16]
    for at in range(0, len(data), 7):
        bad = bytearray(data)
        bad[at] ^= 4
        with pytest.raises(DamagedError):
            chunks.unpack(made, bytes(bad), key)
    if key is not None:
        other = replace(made, file="data/a/2.chunk")
        with pytest.raises(DamagedError, match="decrypt"):
            chunks.unpack(other, data, key)


def test_the_first_bad_batch_is_named():
    content, told = chunks.pack(batches(), file="f", codec="none", key=None)
    made = Chunk(first=10, end=19, records=9, max_timestamp=5, **told)
    data = bytearray(b"".join(content))
    second = len(batches()[0])
    data[second + 100] ^= 1
    with pytest.raises(
        DamagedError, match=rf"behind offset 13: batch at {second} \(base offset 13\): its CRC is"
    ):
        chunks.unpack(made, bytes(data), None)


def test_batches_that_are_compressed_stay_as_they_are():
    content, told = chunks.pack(batches(Compression.LZ4), file="f", codec="zstd", key=None)
    assert (b"".join(content), told["codec"]) == (b"".join(batches(Compression.LZ4)), "")


# ---- what is kept of an answer


def test_aborted_records_and_markers_are_left_out():
    def batch(at: int, producer: int, n: int = 2) -> bytes:
        rows = [Record(0, 1, None, b"%d" % producer)] * n
        return bytes(
            encode_batch(
                rows,
                base_offset=at,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=producer >= 0,
            )
        )

    def marker(at: int, producer: int, *, committed: bool) -> bytes:
        return bytes(
            encode_end_txn_marker(
                committed=committed,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=1,
                base_offset=at,
            )
        )

    answer = b"".join(
        [batch(0, 7), batch(2, 8), batch(4, -1), marker(6, 7, committed=False), marker(7, 8, committed=True), batch(8, 7), marker(10, 7, committed=True)]
    )  # fmt: skip
    found = select(answer, 0, 11, [(7, 0)])
    assert [r.value for p in found.pieces for r in decode_records(p)] == [
        b"8",
        b"8",
        b"-1",
        b"-1",
        b"7",
        b"7",
    ]
    assert (found.first, found.position, found.records, found.left_out) == (2, 11, 6, 2)
    assert select(answer, 4, 8, [(7, 0)]).position == 8
    assert select(answer, 4, 8, [(7, 0)]).records == 2


# ---- increments


@pytest.mark.parametrize(
    ("former", "log", "position", "kept_bounds"),
    [
        (None, Log(start=3, end=9), 3, []),
        (partition((0, 5), (5, 9)), Log(start=0, end=20), 9, [(0, 5), (5, 9)]),
        (partition((0, 5), (5, 9)), Log(start=7, end=20), 9, [(5, 9)]),  # retention went on
        (partition((0, 5), (5, 9)), Log(start=30, end=40), 30, []),  # nothing is left of it
        (partition((0, 5), (5, 9)), Log(start=0, end=7), 5, [(0, 5)]),  # cut
        (partition((0, 5), (5, 9)), Log(start=0, end=20, epoch_end=7), 5, [(0, 5)]),  # cut, and grown since
        (partition((0, 5), (5, 9)), Log(start=0, end=20, epoch_end=3), 0, []),
        (partition((0, 5), end=9), Log(start=0, end=20, epoch_end=12), 9, [(0, 5)]),  # markers up to 9
    ],
)
def test_increments(former, log, position, kept_bounds):
    found = plan(former, log)
    assert (found.position, [(c.first, c.end) for c in found.kept]) == (position, kept_bounds)


def test_a_topic_made_anew_or_too_old_for_its_tombstones_is_read_in_whole():
    former = partition((0, 5))
    assert plan(former, Log(start=0, end=9), same_topic=False).kept == ()
    assert plan(former, Log(start=0, end=9), stale=True).position == 0
    compact = {"cleanup.policy": "compact,delete", "delete.retention.ms": "1000"}
    assert not is_stale(compact, former_ms=0, now_ms=899)
    assert is_stale(compact, former_ms=0, now_ms=900)
    assert not is_stale({"cleanup.policy": "delete"}, former_ms=0, now_ms=10**15)


def test_a_compacted_topic_is_read_anew_when_its_chunks_hold_twice_as_much():
    """The cleaner removes records from the log; chunks of former backups keep them."""
    held = 3 << 20
    former = Partition(number=0, start=0, end=9, chunks=(replace(chunk(0, 9), raw_bytes=held),))
    small = plan(former, Log(start=0, end=20, size=(held >> 1) - 1))
    assert (small.kept, small.position) == ((), 0)
    assert small.why == f"the backup holds {held} bytes of it, the compacted log {(held >> 1) - 1}"
    assert plan(former, Log(start=0, end=20, size=held >> 1)).kept == former.chunks
    assert plan(former, Log(start=0, end=20)).kept == former.chunks
    tiny = replace(former, chunks=(replace(chunk(0, 9), raw_bytes=1 << 20),))
    assert plan(tiny, Log(start=0, end=20, size=0)).kept == tiny.chunks


@settings(max_examples=40)
@given(st.data())
def test_increments_over_a_log_that_lives_hold_what_the_log_holds(data):
    """A log grows, is cut and loses its beginning; whatever is backed up in between, chunks cover exactly the log."""
    start, log = 0, []  # an entry is the moment when it was written, so that a rewritten offset shows
    former, held = None, {}
    for moment, step in enumerate(choices(data.draw, range(12), 14)):
        if step < 4:
            log += [moment] * (step + 1)
        elif step == 4:
            log = log[: max(len(log) - 3, start)]
        elif step == 5:
            start = min(start + 2, len(log))
        else:
            # the broker knows by its epochs how much of what we have is still its own
            common = 0
            if former is not None:
                same = (o for o in range(former.end) if o >= len(log) or (o in held and held[o] != log[o]))
                common = min(next(same, former.end), former.end)
            increment = plan(former, Log(start=start, end=len(log), epoch_end=common if former else None))
            new = ((increment.position, len(log)),) if increment.position < len(log) else ()
            bounds = [*((c.first, c.end) for c in increment.kept), *new]
            held = {o: log[o] for a, b in new for o in range(a, b)} | {
                o: held[o] for c in increment.kept for o in range(c.first, c.end)
            }
            assert [o for a, b in bounds for o in range(a, b) if o >= start] == list(range(start, len(log)))
            assert all(held[o] == log[o] for o in range(start, len(log)))
            former = (
                partition(*bounds, start=start, end=len(log))
                if bounds
                else Partition(number=0, start=start, end=len(log), epoch=1)
            )


# ---- offsets


@given(st.lists(st.integers(0, 300), unique=True), st.integers(0, 50), st.integers(0, 310))
def test_an_offset_is_translated_to_the_first_record_that_is_not_before_it(offsets, base, asked):
    offsets.sort()
    mapping = Mapping(base)
    for offset in offsets:
        mapping.add([(offset, 1)])
    before = sum(o < asked for o in offsets)
    assert mapping.translate(asked) == base + before
    assert mapping.next == base + len(offsets)
    assert [mapping.source_of(base + i) for i in range(len(offsets))] == offsets
    assert mapping.source_of(base + len(offsets)) is None


def test_rows_without_a_hole_are_one():
    mapping = Mapping()
    mapping.add([(5, 3), (8, 2), (20, 1)])
    assert mapping.rows == [(5, 0, 5), (20, 5, 1)]
    with pytest.raises(ValueError, match="offset 20 comes behind 20"):
        mapping.add([(20, 1)])


# ---- names


def test_topics_are_chosen_by_globs_and_expressions():
    there = ["orders", "orders-eu", "logs", "__consumer_offsets", "_schemas"]
    assert Selection().chosen(there) == ["_schemas", "logs", "orders", "orders-eu"]
    assert Selection(include=["ord*", "/_s.*/"], exclude=["*-eu"]).chosen(there) == ["_schemas", "orders"]
    with pytest.raises(BackupError, match=r"there is no topic order$"):
        Selection(include=["order"]).chosen(there)
    with pytest.raises(ConfigError, match="no regular expression"):
        Selection(include=["/(/"]).chosen(there)


@pytest.mark.parametrize(
    ("renames", "prefix", "said"),
    [
        ({"c": "d"}, "", "--rename c: the backup restores no such topic"),
        ({"a": "b"}, "", "a and b would both be restored as b"),
        ({"a": "x y"}, "", "a cannot be restored as 'x y'"),
        ({"a": "__consumer_offsets"}, "", "that is no name for a topic"),
        ({}, "n" * 249, "that is no name for a topic"),
    ],
)
def test_names_that_cannot_be(renames, prefix, said):
    with pytest.raises(BackupError, match=said):
        Names(renames=renames, prefix=prefix).check(["a", "b"])


def test_prefix_and_renames():
    names = Names(renames={"a": "z"}, prefix="old-")
    assert [names.target(n) for n in ("a", "b")] == ["z", "old-b"]


# ---- keys and pruning


def test_a_wrong_secret_is_refused_and_no_secret_is_told(tmp_path, monkeypatch):
    key = FolderKey.new()
    told = key.locked(Secret(passphrase=b"correct horse"))
    assert FolderKey.unlock(told, Secret(passphrase=b"correct horse")).id == key.id
    with pytest.raises(BackupError, match=f"not the passphrase of the backup .key id {key.id}"):
        FolderKey.unlock(told, Secret(passphrase=b"wrong"))
    with pytest.raises(BackupError, match="encrypted by a passphrase"):
        FolderKey.unlock(told, Secret(key=b"k" * 32))
    assert "correct horse" not in repr(Secret(passphrase=b"correct horse"))
    (tmp_path / "key").write_text("00" * 32 + "\n")
    assert read_secret(tmp_path / "key", None) == Secret(key=bytes(32))
    (tmp_path / "key").write_text("too short")
    with pytest.raises(ConfigError, match="a key has 32 bytes"):
        read_secret(tmp_path / "key", None)
    monkeypatch.setenv("KLAMM_BACKUP_PASSPHRASE", "from the environment")
    assert read_secret(None, None) == Secret(passphrase=b"from the environment")


def test_what_is_kept():
    ids = [f"202601{day:02d}T000000.000Z" for day in range(1, 11)]
    now = manifest.id_ms("20260110T000000.001Z")
    assert kept(ids, now_ms=now, last=2, days=None) == ids[-2:]
    assert kept(ids, now_ms=now, last=None, days=3) == ids[-3:]
    assert kept(ids, now_ms=now, last=1, days=3) == ids[-3:]
    assert kept(ids, now_ms=now + 10**12, last=None, days=1) == ids[-1:]
    assert kept([], now_ms=now, last=1, days=None) == []
