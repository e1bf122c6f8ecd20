"""The delay in answers that are framed by hand: every API and version of them, read by the decoder of its messages."""

from __future__ import annotations

import pytest

from klamm_broker.api.registry import load
from klamm_broker.server.metering import _with_throttle_time
from klamm_kafka.wire.api_keys import message_types
from klamm_kafka.wire.headers import decode_response_header, frame_response
from klamm_kafka.wire.messages import fetch, produce, share_fetch

TOPICS = {
    0: [produce.TopicProduceResponse(partition_responses=[produce.PartitionProduceResponse(base_offset=7)])],
    1: [fetch.FetchableTopicResponse(partitions=[fetch.PartitionData(high_watermark=7)])],
    78: [
        share_fetch.ShareFetchableTopicResponse(
            partitions=[share_fetch.PartitionData(partition_index=7, records=b"")]
        )
    ],
}
FRAMED = [
    (key, version)
    for key, api in load().items()
    if api.raw
    for version in range(api.min_version, api.max_version + 1)
]


def test_all_of_them_are_here():
    assert {key for key, _ in FRAMED} == set(TOPICS)


@pytest.mark.parametrize(("key", "version"), FRAMED)
def test_the_delay_is_told_and_nothing_else_changes(key, version):
    message = message_types(key)[1](responses=TOPICS[key])
    reply = [frame_response(1, key, version, message)]
    frame = b"".join(_with_throttle_time(reply, key, version, 1234))
    assert frame[:4] == reply[0][:4]
    correlation_id, pos = decode_response_header(frame, key, version, 4)
    answer, end = type(message).decode(frame, version, pos)
    assert (correlation_id, answer.throttle_time_ms, end) == (1, 1234, len(frame))
    message.throttle_time_ms = 1234
    assert frame == frame_response(1, key, version, message)
