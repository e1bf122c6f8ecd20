"""Framing of syslog streams: as RFC 6587 says and as senders do it, however the bytes are cut on their way."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_agent.syslog.frames import Frames

CASES = [
    ("lines", b"<13>one\n<13>two\n", [b"<13>one", b"<13>two"]),
    ("lines of Windows, and empty ones", b"<13>one\r\n\r\n\n<13>two\r\n", [b"<13>one", b"<13>two"]),
    ("lines without priority that begin with a number", b"17 apples\n18 pears\n", [b"17 apples", b"18 pears"]),
    ("counted", b"7 <13>one8 <13>tw\no", [b"<13>one", b"<13>tw\no"]),
    ("counted, with a line end behind each that is not counted", b"7 <13>one\n7 <13>two\n", [b"<13>one", b"<13>two"]),
    ("counted, the line end counted", b"8 <13>one\n8 <13>two\n", [b"<13>one", b"<13>two"]),
    ("NUL, with lines in the text", b"<13>one\n  more\0<13>two\n\0", [b"<13>one\n  more", b"<13>two"]),
    ("a count that is wrong", b"7 <13>one<13>two\n<13>three\n", [b"<13>one", b"<13>two", b"<13>three"]),
    ("no end", b"<13>one\n<13>tw", [b"<13>one", b"<13>tw"]),
    ("counted, no end", b"7 <13>one9 <13>tw", [b"<13>one", b"<13>tw"]),
    ("a count alone", b"7 ", [b"7 "]),
    ("nothing", b"", []),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "messages"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_streams_and_their_messages(stream, messages):
    whole = Frames("auto", 1000)
    assert whole.feed(stream) + whole.finish() == messages
    if b"\0" in stream:
        return  # told by the first NUL: a sender sends a message in one call
    bytewise = Frames("auto", 1000)
    found = [m for i in range(len(stream)) for m in bytewise.feed(stream[i : i + 1])]
    assert found + bytewise.finish() == messages


MESSAGES = st.lists(
    st.binary(min_size=1, max_size=40).map(lambda b: b"<13>" + b.strip(b"\r\n\0")), max_size=12
)


def cut(stream, places):
    edges = [0, *sorted(p % (len(stream) + 1) for p in places), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(MESSAGES, st.lists(st.integers(0, 10_000), max_size=8))
def test_counted_messages_come_whole_however_they_are_cut(messages, places):
    frames = Frames("auto", 1000)
    found = []
    for part in cut(b"".join(b"%d %b" % (len(m), m) for m in messages), places):
        found += frames.feed(part)
    assert found + frames.finish() == messages
    assert not frames.errors


@given(
    st.lists(st.binary(max_size=60), max_size=12),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.integers(1, 20),
)
def test_lines_longer_than_the_limit_come_in_pieces_and_nothing_is_held(lines, places, limit):
    lines = [line.translate(None, b"\r\n\0") for line in lines]
    frames = Frames("newline", limit)
    found = []
    for part in cut(b"".join(line + b"\n" for line in lines), places):
        found += frames.feed(part)
        assert frames.held <= limit
    assert b"".join(found) == b"".join(lines)
    assert all(len(m) <= limit for m in found)
    assert frames.finish() == []


@given(
    st.binary(max_size=200),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.sampled_from(("auto", "octet", "nul")),
)
def test_garbage_is_given_out_or_held_within_the_limit(stream, places, framing):
    frames = Frames(framing, 16)
    for part in cut(stream, places):
        for message in frames.feed(part):
            assert 0 < len(message) <= 16
        assert frames.held <= 16 + 12  # a piece and the count before it


def test_a_count_beyond_the_limit_is_not_held():
    frames = Frames("auto", 100)
    assert frames.feed(b"1000 <13>" + b"x" * 96) == [b"<13>" + b"x" * 96]
    found = [m for _ in range(9) for m in frames.feed(b"y" * 100)]
    assert b"".join(found) == b"y" * 900
    assert frames.feed(b"7 <13>one") == [b"<13>one"]
    assert frames.splits == 9


@pytest.mark.parametrize("framing", ["auto", "octet", "newline", "nul"])
@pytest.mark.parametrize("noise", [b"\n", b"\r\n", b" ", b"0", b"7 "])
def test_what_never_becomes_a_message_is_not_gathered(framing, noise):
    frames = Frames(framing, 100)
    for _ in range(100):
        frames.feed(noise * 50)
        assert frames.held <= 100 + 12


def test_the_rest_of_a_long_counted_message_that_looks_like_a_count_stays():
    frames = Frames("octet", 100)
    assert frames.feed(b"150 " + b"x" * 100 + b"12 abc") == [b"x" * 100]
    assert frames.finish() == [b"12 abc"]
