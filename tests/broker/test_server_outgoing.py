"""Answers on their way out: order and completeness under small socket buffers, and ranges that are not in memory."""

from __future__ import annotations

import os
import random
import socket

import pytest
from support.broker import new_topic, wait_until
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm.testing import EmbeddedBroker
from klamm_broker.server import outgoing, residency


class Range:
    def __init__(self, fd, position, size):
        self.fd, self.position, self.size = fd, position, size


@pytest.fixture
def data_file(tmp_path):
    content = random.Random(1).randbytes(3 << 20)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    yield fd, content
    os.close(fd)


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    left.setblocking(False)
    with left, right:
        yield left, right


def send_all(left, right, pieces):
    """Send, and read whenever the socket is full; the bytes that came and how often it was full or cold."""
    got, stops, colds = bytearray(), 0, 0
    while True:
        pieces = outgoing.send(left, pieces)
        if not pieces:
            break
        stops += 1
        if isinstance(pieces, outgoing.Cold):
            colds += 1
            pieces[0].warm_until = pieces[0].position + residency.bring_in(pieces[0])
        else:
            got += right.recv(100_000)
    left.close()
    while part := right.recv(1 << 20):
        got += part
    return bytes(got), stops, colds


def test_pieces_leave_whole_and_in_order(pair, data_file):
    fd, content = data_file
    pieces = [
        b"head",
        b"er",
        Range(fd, 10, 1_500_000),
        b"between",
        memoryview(b"views"),
        Range(fd, 0, 5),
        b"",
        Range(fd, 7, 2_000_000),
        b"tail",
    ]
    want = b"header" + content[10:1_500_010] + b"betweenviews" + content[:5] + content[7:2_000_007] + b"tail"
    got, stops, _ = send_all(*pair, pieces)
    assert got == want
    assert stops > 3, "the socket was full several times"


def test_a_small_range_leaves_with_the_bytes_around_it(pair, data_file, monkeypatch):
    fd, content = data_file
    left, right = pair
    monkeypatch.setattr(os, "sendfile", lambda *_: pytest.fail("sendfile for a small range"))
    size = outgoing.READ_BYTES_MAX
    assert outgoing.send(left, [b"head", Range(fd, 5, size), b"tail"]) == []
    assert right.recv(1 << 20) == b"head" + content[5 : 5 + size] + b"tail"


def test_a_small_range_that_would_wait_goes_the_way_of_large_ones(pair, data_file, monkeypatch):
    fd, content = data_file
    left, right = pair

    def refuse(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", refuse)
    left_over = outgoing.send(left, [b"head", Range(fd, 0, 100), b"tail"])
    assert isinstance(left_over, outgoing.Cold)
    monkeypatch.undo()
    left_over[0].warm_until = 100
    assert outgoing.send(left, left_over) == []
    assert right.recv(1 << 20) == b"head" + content[:100] + b"tail"


def test_a_small_range_beyond_the_file_is_an_error(pair, data_file):
    fd, content = data_file
    with pytest.raises(OSError, match="ends 60 bytes before the answer"):
        outgoing.send(pair[0], [Range(fd, len(content) - 40, 100)])


def test_a_slow_peer_has_little_of_many_small_ranges_in_memory(pair, data_file):
    """The rest stays in the file until the peer has taken what is before it."""
    fd, content = data_file
    pieces, want = [], b""
    for n in range(1000):
        at = n * 2_000
        pieces += [b"head", Range(fd, at, 16_000)]
        want += b"head" + content[at : at + 16_000]
    left_over = outgoing.send(pair[0], pieces)
    assert sum(len(p) for p in left_over if isinstance(p, (bytes, memoryview))) < 500_000
    got, rest = bytearray(), left_over
    while rest:
        got += pair[1].recv(1 << 20)
        rest = outgoing.send(pair[0], rest)
    pair[0].close()
    while part := pair[1].recv(1 << 20):
        got += part
    assert got == want


def test_a_range_may_leave_in_thousands_of_parts(tmp_path, pair):
    content = random.Random(2).randbytes(5 << 20)
    path = tmp_path / "large"
    path.write_bytes(content)
    left, right = pair
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    fd = os.open(path, os.O_RDONLY)
    got, parts = bytearray(), 0
    pieces = outgoing.send(left, [Range(fd, 0, len(content))])
    while pieces:
        got += right.recv(3000)
        pieces, parts = outgoing.send(left, pieces), parts + 1
    os.close(fd)
    left.close()
    while part := right.recv(1 << 20):
        got += part
    assert got == content
    assert parts > 1100, "more parts than Python has stack frames"


def test_cold_ranges_are_told_and_then_sent(pair, data_file):
    fd, content = data_file
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if residency.resident(fd, 1 << 20, 1 << 20):
        pytest.skip("the file system of --basetemp keeps all pages, or cannot tell: take one on ext4 or xfs")
    got, _, colds = send_all(*pair, [b"x", Range(fd, 0, len(content)), b"y"])
    assert got == b"x" + content + b"y"
    assert colds >= 1


def test_a_file_that_is_too_short_is_an_error(pair, data_file):
    fd, content = data_file
    with pytest.raises(OSError, match="ends 10 bytes before"):
        send_all(*pair, [Range(fd, len(content) - 5, 15)])


def test_system_that_cannot_tell_counts_everything_as_resident(data_file, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(residency.os, "preadv", refuse)
    monkeypatch.setattr(residency, "_can_tell", [True])
    assert residency.resident(data_file[0], 0, 1 << 20)
    assert residency._can_tell == [False]


def test_what_follows_a_cold_range_is_read_ahead(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(random.Random(1).randbytes(6 << 20))
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if residency.resident(fd, 4 << 20, 1 << 20):
            pytest.skip(
                "the file system of --basetemp keeps all pages, or cannot tell: take one on ext4 or xfs"
            )
        assert residency.bring_in(Range(fd, 0, 1 << 20)) == 1 << 20
        wait_until(lambda: residency.resident(fd, 4 << 20, 1 << 20), "the next answers are in memory")
        assert residency.resident(fd, 1 << 20, 1 << 20)
    finally:
        os.close(fd)


@pytest.mark.usefixtures("processes")
def test_fetch_of_records_that_are_not_in_memory(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic = new_topic(broker)
        sent = [random.Random(i).randbytes(900_000) for i in range(12)]
        with RawClient(broker.port) as client:
            for value in sent:
                client.request(produce_request(topic, batch(value)), 9)
        broker.stop()  # what is on disk can be dropped from memory
        fd = os.open(tmp_path / "data" / f"{topic}-0" / f"{0:020}.log", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        broker.start()
        with RawClient(broker.port) as client:
            records = bytes(client.request(fetch_request(topic), 11).responses[0].partitions[0].records)
        for value in sent:
            assert value in records
