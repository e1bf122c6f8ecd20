"""[producer]: Java's names, and what is said of those without an effect; the limit on bandwidth; refused batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_agent.config.producer import producer_settings
from klamm_agent.delivery.batches import Batch, Claim, Origin, Receipt
from klamm_agent.delivery.encode import encode_batch
from klamm_agent.delivery.outgoing import Limit
from klamm_base.errors import ConfigError
from klamm_kafka.client.outbox import IN_FLIGHT_MAX, Outbox
from klamm_kafka.wire.batch import decode_records, read_header
from klamm_kafka.wire.compression import Compression

ORIGIN = Origin("/x.log", (1, 2), 0, 100)


def test_javas_names_and_librdkafkas_aliases():
    found, ignored = producer_settings(
        {
            "compression.codec": "zstd", "compression.zstd.level": "5", "compression.lz4.level": "3", "linger.ms": "7",
            "batch.size": "65536", "max.in.flight.requests.per.connection": "2", "client.id": "me",
            "request.timeout.ms": "4000", "retries": "5", "ssl.provider": "x", "max.poll.records": "5",
        }
    )  # fmt: skip
    assert (found.codec, found.level, found.linger, found.batch_bytes) == (Compression.ZSTD, 5, 0.007, 65_536)
    assert (found.in_flight, found.client_id, found.request_timeout_ms) == (2, "me", 4000)
    assert dict(ignored).keys() == {"compression.lz4.level", "retries", "ssl.provider", "max.poll.records"}
    assert dict(ignored)["compression.lz4.level"] == "compression.type is zstd"


def test_security_is_the_clients():
    props = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";',
    }  # fmt: skip
    security = producer_settings(props)[0].security
    assert (security.protocol, security.sasl.username) == ("SASL_PLAINTEXT", "a")


@pytest.mark.parametrize(
    ("props", "key", "sentence"),
    [
        (
            {"compression.type": "lzma"},
            "compression.type",
            "one of none, gzip, snappy, lz4, zstd is expected",
        ),
        ({"compression.lz4.level": "99"}, "compression.lz4.level", "a whole number from 1 to 12 is expected"),
        ({"linger.ms": "soon"}, "linger.ms", "linger.ms = soon: a whole number from 0 to 900000 is expected"),
        (
            {"max.in.flight.requests.per.connection": "6"},
            "max.in.flight.requests.per.connection",
            "from 1 to 5",
        ),
        ({"batch.sise": "1"}, "batch.sise", "is not a setting of a producer; did you mean batch.size?"),
        ({"acks": "1"}, "acks", "cannot be set: checkpoints count on acks=all"),
        ({"security.protocol": "TLS"}, "security.protocol", "use one of PLAINTEXT, SSL"),
    ],
)
def test_what_cannot_be(props, key, sentence):
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")) as caught:
        producer_settings(props)
    assert caught.value.key == key


def test_the_limit_lets_a_second_go_at_once_and_then_its_rate():
    limit = Limit(1000)
    now = limit._at
    sent, passed = 0, 0.0
    while passed < 10:
        while limit.allows(now + passed):
            limit.took(150)
            sent += 150
        passed += 0.01
    assert 10_500 <= sent <= 11_200
    assert Limit(None).allows(now)


class Leader:
    """Takes what is next in the sequence and not larger than `most` bytes."""

    def __init__(self, most):
        self.most, self.next, self.values = most, {}, []

    def append(self, batch):
        header = read_header(batch.data)
        if len(batch.data) > self.most:
            return "too large"
        if header.base_sequence != self.next.get(header.producer_id, 0):
            return "out of order"
        self.next[header.producer_id] = header.base_sequence + header.record_count
        self.values += [r.value for r in decode_records(batch.data)]
        return "ok"


@given(
    lines=st.lists(st.lists(st.sampled_from([1, 50, 400]), min_size=1, max_size=6), min_size=1, max_size=12)
)
def test_what_is_refused_goes_in_pieces_and_only_what_is_too_large_is_given_up(lines):
    """Whole windows of batches fail with the first one: all other lines arrive once, in order."""
    leader, outbox = Leader(300), Outbox(remote="t", partition=0, producer=(1, 0))
    values = [
        [b"%03d%02d" % (i, j) + b"x" * size for j, size in enumerate(sizes)] for i, sizes in enumerate(lines)
    ]
    receipts = [Receipt("t", ORIGIN, len(v)) for v in values]
    outbox.put(
        [
            Batch("t", encode_batch([(None, v)], 7, Compression.NONE), len(v), [Claim(b, len(v))])
            for v, b in zip(values, receipts, strict=True)
        ]
    )
    now, given_up, producers = 0.0, [], 1
    for _ in range(500):
        now += 10
        window = list(iter(lambda: outbox.take(now), None))
        assert len(window) <= IN_FLIGHT_MAX
        for batch in window:
            match leader.append(batch):
                case "ok":
                    outbox.delivered(batch)
                case "out of order":
                    outbox.failed(now, "OUT_OF_ORDER_SEQUENCE_NUMBER")
                case "too large":
                    halves = batch.halves(None)
                    outbox.replaced(batch, halves)
                    if not halves:
                        given_up.append(decode_records(batch.data)[0].value)
                        producers += 1
                        outbox.new_producer((producers, 0))
        if outbox.empty:
            break
    assert outbox.empty
    assert leader.values == [v for vs in values for v in vs if len(v) < 200]
    assert sorted(given_up) == [v for vs in values for v in vs if len(v) > 200]
