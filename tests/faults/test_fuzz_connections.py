"""Live connections fed with requests that are random, mutated, or right in form and wild in content.

Whatever comes: an answer, or an end of the connection with a log line; no defect of ours in the log, nobody else
disturbed, memory bounded.
"""

from __future__ import annotations

import errno
import random
import re
import socket
import struct
import time

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.broker import wait_until
from support.raw import RawClient, batch, framed, request_frame
from support.wire_strategies import expressible, filled, structs

from klamm.testing import EmbeddedBroker
from klamm_broker.api import registry
from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MB = 1 << 20
APIS = registry.load()
FUZZ = settings(
    max_examples=5,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
DELETES = {ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS}


@pytest.fixture(scope="module")
def fuzzed(processes, tmp_path_factory):
    """Yields a broker of their own: what they create is nobody's."""
    config = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
    with EmbeddedBroker(tmp_path_factory.mktemp("fuzz") / "data", config=config) as broker:
        from confluent_kafka.admin import AdminClient, NewTopic

        names = ["t", "compacted"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wanted = [NewTopic("t", 2, 1), NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"})]
        for future in admin.create_topics(wanted).values():
            future.result(60)
        assert set(names) <= set(admin.list_topics(timeout=60).topics)
        yield broker


@pytest.fixture(autouse=True)
def unharmed(fuzzed):
    before, rss = len(fuzzed.log_text), psutil.Process(fuzzed.pid).memory_info().rss
    yield
    assert fuzzed.running
    with RawClient(fuzzed.port) as client:
        assert client.request(ApiVersionsRequest(), 0).error_code == 0
    logged = fuzzed.log_text[before:]
    defect = re.search(r"Traceback|failed here", logged)
    assert defect is None, logged[max(0, defect.start() - 600) : defect.start() + 3000]
    assert psutil.Process(fuzzed.pid).memory_info().rss - rss < 150 * MB


def exchange(broker: EmbeddedBroker, data: bytes, *, patience_s: float = 10) -> tuple[bytes, bool]:
    """Send, say that there is nothing more, and take what comes: (answers, whether the broker ended it in time)."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as sock:
        sock.settimeout(patience_s)
        answers = bytearray()
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(1 << 16):
                answers += part
        except (ConnectionResetError, BrokenPipeError):
            return bytes(answers), True
        except TimeoutError:  # it waits for something, as a long poll may
            return bytes(answers), False
        except OSError as e:
            if e.errno != errno.ENOTCONN:  # it was reset before we could say that there is nothing more
                raise
        return bytes(answers), True


def mutate(frame: bytes, chance: random.Random) -> bytes:
    """Returns the request with some of its bytes changed, cut out, repeated or moved; the size field stays right."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(8, len(body)) if len(body) > 8 else 0
        match chance.randrange(5):
            case 0:
                body[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
            case 1:
                del body[at : at + chance.randint(1, 8)]
            case 2:
                body[at:at] = body[at : at + chance.randint(1, 40)]
            case 3:
                body[at : at + 4] = struct.pack(
                    ">i", chance.choice((-1, 0, 1, (1 << 31) - 1, -(1 << 31), 1 << 20))
                )
            case 4:
                body[at:at] = chance.randbytes(chance.randint(1, 20))
    return framed(bytes(body))


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name.lower())
@FUZZ
@given(data=st.data())
def test_requests_right_in_form_and_wild_in_content(fuzzed, key, data):
    api = APIS[key]
    request_type = message_types(ApiKey(key))[0]
    version = data.draw(st.integers(api.min_version, api.max_version))
    value = data.draw(structs(request_type) | st.builds(filled, st.just(request_type), st.integers(0, 999)))
    exchange(fuzzed, request_frame(expressible(value, version), version), patience_s=0.3)


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name.lower())
def test_mutated_requests(fuzzed, key):
    api, seed = APIS[key], random.randrange(1 << 30)
    chance = random.Random(seed)
    request_type = message_types(ApiKey(key))[0]
    for number in range(8):
        version = chance.randint(api.min_version, api.max_version)
        value = expressible(filled(request_type, number), version)
        frame = request_frame(value, version)
        exchange(fuzzed, mutate(frame, chance) * chance.randint(1, 3), patience_s=0.3)


def records(chance: random.Random) -> bytes:
    """Returns a batch of any kind, true or false about itself."""
    values = [chance.randbytes(chance.randrange(50)) for _ in range(chance.randint(1, 5))]
    more = {}
    if chance.random() < 0.6:
        more = {
            "producer_id": chance.choice((0, 1, 5, 1 << 40)),
            "producer_epoch": chance.choice((0, 1, 32767)),
            "base_sequence": chance.choice((0, 1, (1 << 31) - 1)),
            "is_transactional": chance.random() < 0.3,
            "is_control": chance.random() < 0.1,
        }
    data = bytearray(batch(*values, compression=chance.choice(list(Compression)), **more))
    for _ in range(chance.choice((0, 0, 1, 3))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("topic", ["t", "compacted"])
def test_records_that_lie(fuzzed, topic):
    """With a right CRC where the lie is behind it: the broker believes what the checksum covers no more than that."""
    from klamm_kafka.wire.batch import _set_crc

    chance = random.Random(random.randrange(1 << 30))
    for _ in range(60):
        data = bytearray(records(chance) * chance.choice((1, 1, 2)))
        if chance.random() < 0.5:
            _set_crc(data, 0, len(data))
        name = chance.choice((None, None, "txn"))
        parts = [PartitionProduceData(index=0, records=bytes(data))]
        request = ProduceRequest(
            transactional_id=name, acks=chance.choice((-1, 0, 1, 5)), timeout_ms=100,
            topic_data=[TopicProduceData(name=topic, partition_data=parts)],
        )  # fmt: skip
        exchange(fuzzed, request_frame(request, chance.choice((3, 9, 12))), patience_s=2)


def test_a_bomb_costs_no_memory(fuzzed):
    """300 MB of zeros in 300 KB, for a topic whose keys must be looked at."""
    import zlib

    from klamm_kafka.wire.batch import HEADER_BYTES, _set_crc

    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(compressor.compress(bytes(MB)) for _ in range(300)) + compressor.flush()
    data = bytearray(batch(b"x", compression=Compression.GZIP)[:HEADER_BYTES]) + body
    data[8:12] = struct.pack(">i", len(data) - 12)
    _set_crc(data, 0, len(data))
    process = psutil.Process(fuzzed.pid)
    before = process.memory_info().rss
    parts = [PartitionProduceData(index=0, records=bytes(data))]
    request = ProduceRequest(
        acks=1, timeout_ms=100, topic_data=[TopicProduceData(name="compacted", partition_data=parts)]
    )
    with RawClient(fuzzed.port) as client:
        answer = client.request(request, 9)
        assert answer.responses[0].partition_responses[0].error_code != 0
    wait_until(lambda: process.memory_info().rss - before < 100 * MB, "its memory is given back")


@pytest.mark.timeout(300)
def test_any_frames_for_a_while(fuzzed):
    """Random bytes behind a header that may be right, and mutated requests of every kind."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    deadline = time.monotonic() + 60
    count = 0
    while time.monotonic() < deadline or count <= 200:
        key = chance.choice(sorted(APIS))
        api = APIS[key]
        version = chance.randint(api.min_version, api.max_version)
        head = struct.pack(">hhi", key, version, count) + chance.choice((b"\xff\xff", b"\0\1x", b"\0\1x\0"))
        exchange(fuzzed, framed(head + chance.randbytes(chance.randrange(120))), patience_s=0.2)
        value = expressible(filled(message_types(ApiKey(key))[0], count), version)
        exchange(fuzzed, mutate(request_frame(value, version), chance), patience_s=0.2)
        count += 1
