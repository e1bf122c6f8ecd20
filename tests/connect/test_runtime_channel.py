"""Control messages: framing survives any cut, and what is no message ends the channel."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.children.channel import AsyncChannel, BlockingChannel, ChannelError, Decoder, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
MESSAGES = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=6)


@given(MESSAGES, st.lists(st.integers(1, 40), max_size=30))
def test_messages_come_out_whole_however_the_bytes_are_cut(messages, cuts):
    data = b"".join(encode(m) for m in messages)
    decoder, found, at = Decoder(), [], 0
    for cut in [*cuts, len(data)]:
        found += decoder.feed(data[at : at + cut])
        at += cut
    assert found == messages


@pytest.mark.parametrize("data", [b"no json\n", b"[1]\n", b'{"half": \n', b"\n"])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ChannelError):
        Decoder().feed(data)


async def test_both_ends_talk_and_the_end_is_reported_once():
    ours, theirs = socket.socketpair()
    got, closed = asyncio.Queue(), asyncio.Queue()
    channel = await AsyncChannel.open(ours, got.put_nowait, closed.put_nowait)
    child = BlockingChannel(theirs)
    channel.send({"method": "stop"})
    assert await asyncio.to_thread(child.receive) == [{"method": "stop"}]
    child.send({"event": "last words"})
    child.close()
    assert await asyncio.wait_for(got.get(), 60) == {"event": "last words"}
    assert await asyncio.wait_for(closed.get(), 60) is None
    channel.send({"method": "stop"})  # to nobody: dropped
    assert closed.empty()


async def test_a_peer_that_talks_nonsense_is_cut_off():
    ours, theirs = socket.socketpair()
    closed = asyncio.Queue()
    await AsyncChannel.open(ours, lambda message: None, closed.put_nowait)
    with theirs:
        theirs.sendall(b"\x00\xff\n")
        assert isinstance(await asyncio.wait_for(closed.get(), 60), ChannelError)
        assert theirs.recv(1) == b""
