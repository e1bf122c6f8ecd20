"""Files that a crash left half written: cut at every byte, with nothing, zeros or garbage behind the cut.

The start succeeds, all that was acknowledged before is there, and nothing half is served. Files that are replaced as a
whole are cut as `.tmp`: that is where they are written.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from klamm_broker.log import checkpoints, leader_epoch
from klamm_broker.log.errors import DirectoryError
from klamm_broker.log.log_manager import LogManager
from klamm_broker.server.cluster_config import FILE_NAME as CLUSTER_FILE
from klamm_broker.server.cluster_config import ClusterConfig, ResourceType
from klamm_broker.server.producer_id_file import FILE_NAME as PRODUCER_IDS
from klamm_broker.server.producer_id_file import ProducerIdFileError, open_producer_ids
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, encode_end_txn_marker, iter_headers

NOW = 1_800_000_000_000
CHANCE = random.Random(11)
SEGMENT = f"{0:020d}"
TAILS = ("nothing", "zeros", "garbage")


class Prepared:
    """A log directory after a crash, file by file; `restore` puts it back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        manager = LogManager(root, now_ms=NOW)
        manager.create_topic("t", 1, {"segment.bytes": "1048576", "index.interval.bytes": "0"}, now_ms=NOW)
        self.log = manager.get("t", 0)
        self.sequence = 0
        for number in range(3):
            self.append(b"before-%d" % number)
        self.log.append(encode_batch([Record(timestamp=NOW, value=b"undone")], producer_id=5, producer_epoch=0,
                                     base_sequence=0, is_transactional=True), now_ms=NOW)  # fmt: skip
        self.log.append(
            encode_end_txn_marker(
                producer_id=5, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp=NOW
            ),
            now_ms=NOW,
            origin="coordinator",
        )
        manager.tick_checkpoints()
        self.acknowledged = self.values(self.log)
        self.end = self.log.log_end_offset
        self.log_size = self.log.size
        self.append(b"the last one, which the crash cuts: " + bytes(range(64)))
        self.whole = self.values(self.log)
        self.log.write_indexes()
        self.log._write_snapshot(self.log.log_end_offset)
        manager.release()
        self.files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def append(self, value: bytes) -> None:
        batch = encode_batch(
            [Record(timestamp=NOW + self.sequence, value=value)],
            producer_id=1,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        self.sequence += 1
        self.log.append(batch, now_ms=NOW)

    @staticmethod
    def values(log):
        found, offset = [], log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, 1 << 20, up_to=log.log_end_offset)
            data = os.pread(piece.fd, piece.size, piece.position)
            for position, header in iter_headers(data):
                found += [(r.offset, r.value) for r in decode_records(data, position)]
                offset = header.last_offset + 1
        return found

    def restore(self) -> None:
        there = {path for path in self.root.rglob("*") if path.is_file()}
        for path in there - self.files.keys():
            path.unlink()
        for path, content in self.files.items():
            # Writing costs far more than reading, and most files are as they were.
            if path not in there or path.read_bytes() != content:
                path.write_bytes(content)

    def tear(self, path: Path, cut: int, tail: str) -> None:
        content = self.files.get(path, self.files.get(path.with_suffix(""), b""))
        lost = len(content) - cut
        behind = {"nothing": b"", "zeros": bytes(lost), "garbage": b"\xff" + CHANCE.randbytes(lost - 1)}[tail]
        path.write_bytes(content[:cut] + behind)

    def check(self, *, last_may_be_lost: bool) -> None:
        manager = LogManager(self.root, now_ms=NOW)
        try:
            log = manager.get("t", 0)
            found = self.values(log)
            if not last_may_be_lost or len(found) > len(self.acknowledged):
                assert found == self.whole
            else:
                assert found == self.acknowledged
            assert log.high_watermark == log.log_end_offset == found[-1][0] + 1
            (aborted,) = log.aborted_transactions(0, log.log_end_offset)
            assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 3, 4)
            assert log.last_stable_offset == log.log_end_offset
            next_sequence = self.sequence - (len(found) < len(self.whole))
            again = encode_batch(
                [Record(timestamp=NOW, value=b"repeated")], producer_id=1, producer_epoch=0,
                base_sequence=next_sequence - 1,
            )  # fmt: skip
            assert log.append(again, now_ms=NOW).duplicate, "its producer is known"
            found_at = log.offset_for_timestamp(NOW + 2)
            assert found_at is not None
            assert found_at[1] == 2
        finally:
            manager.release()


@pytest.fixture(scope="module")
def prepared(memory_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield Prepared(memory_path / "data")


def cuts(size, begin=0, *, step=1):
    """Returns every `step`-th place, and the ends."""
    return sorted({*range(begin, size, step), size - 1})


def torn(prepared, path, places, *, last_may_be_lost=False):
    for cut in places:
        for tail in TAILS:
            prepared.restore()
            prepared.tear(path, cut, tail)
            try:
                prepared.check(last_may_be_lost=last_may_be_lost)
            except BaseException as e:
                e.add_note(f"{path.name} cut at {cut}, {tail} behind")
                raise


def test_the_last_append(prepared):
    path = prepared.root / "t-0" / f"{SEGMENT}.log"
    size = len(prepared.files[path])
    assert size > prepared.log_size
    torn(prepared, path, cuts(size, prepared.log_size), last_may_be_lost=True)


@pytest.mark.parametrize(
    "name", [f"{SEGMENT}.index", f"{SEGMENT}.timeindex", f"{SEGMENT}.txnindex", "snapshot", leader_epoch.FILE_NAME,
             "partition.metadata"],
)  # fmt: skip
def test_files_of_the_partition(prepared, name):
    directory = prepared.root / "t-0"
    (path,) = [p for p in prepared.files if p.parent == directory and p.name.endswith(name)]
    assert len(prepared.files[path]) > 0
    torn(prepared, path, cuts(len(prepared.files[path])))


@pytest.mark.parametrize(
    "name", [checkpoints.RECOVERY_POINT, checkpoints.LOG_START_OFFSET, checkpoints.HIGH_WATERMARK]
)
def test_checkpoints(prepared, name):
    path = prepared.root / name
    torn(prepared, path, cuts(len(prepared.files[path])))


@pytest.mark.parametrize("name", ["klamm-topics.json", "meta.properties", checkpoints.RECOVERY_POINT])
def test_files_that_are_replaced_as_a_whole(prepared, name):
    path = prepared.root / f"{name}.tmp"
    torn(prepared, path, cuts(len(prepared.files[prepared.root / name]), step=3))


def test_a_registry_that_is_damaged_in_place_is_named_and_nothing_is_touched(prepared):
    path = prepared.root / "klamm-topics.json"
    content = prepared.files[path]
    for cut in cuts(len(content) - 1, step=7):
        prepared.restore()
        path.write_bytes(content[:cut])
        with pytest.raises(DirectoryError, match=r"klamm-topics\.json: .*"):
            LogManager(prepared.root, now_ms=NOW)
        assert path.read_bytes() == content[:cut]
        assert {p: p.read_bytes() for p in prepared.files if p.parent.name == "t-0"} == {
            p: c for p, c in prepared.files.items() if p.parent.name == "t-0"
        }


def test_the_file_of_producer_ids(tmp_path):
    """A torn `.tmp` is nothing; a file that is damaged in place is named, since ids must not be given twice."""
    first = open_producer_ids(tmp_path).allocate().producer_id
    content = (tmp_path / PRODUCER_IDS).read_bytes()
    for cut in range(len(content)):
        (tmp_path / f"{PRODUCER_IDS}.tmp").write_bytes(content[:cut] + b"\xff")
        assert open_producer_ids(tmp_path).allocate().producer_id > first
    torn_in_place = [content[:cut] for cut in range(len(content))]
    for damage in (*torn_in_place, content[:3] + b"\xff\xfe", b"9\n5\n"):
        (tmp_path / PRODUCER_IDS).write_bytes(damage)
        with pytest.raises(ProducerIdFileError, match=PRODUCER_IDS):
            open_producer_ids(tmp_path)


def test_the_file_of_dynamic_configurations(tmp_path):
    path = tmp_path / CLUSTER_FILE
    ClusterConfig.load(path).alter(ResourceType.GROUP, "g", {"consumer.session.timeout.ms": "45000"})
    content = path.read_bytes()
    for cut in cuts(len(content), step=5):
        path.with_name(f"{CLUSTER_FILE}.tmp").write_bytes(content[:cut])
        assert ClusterConfig.load(path).get(ResourceType.GROUP, "g") == {
            "consumer.session.timeout.ms": "45000"
        }
