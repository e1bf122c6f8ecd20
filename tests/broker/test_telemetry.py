"""Client telemetry (KIP-714) without sockets: subscriptions as Kafka's, OTLP bytes, series and their limits."""

from __future__ import annotations

import contextlib
import math
import struct
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.metrics_text import lines
from klamm_broker.log.steps import finish
from klamm_broker.security.principal import ANONYMOUS, KafkaPrincipal
from klamm_broker.server.client_telemetry import ClientTelemetry
from klamm_broker.server.cluster_config import ClusterConfig
from klamm_broker.telemetry import otlp, series
from klamm_broker.telemetry import subscriptions as module
from klamm_broker.telemetry.otlp import MalformedMetrics, Point
from klamm_broker.telemetry.series import SERIES_PER_CLIENT, PushedSeries
from klamm_broker.telemetry.subscriptions import Subscription, Subscriptions, attributes_of
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.push_telemetry import PushTelemetryRequest
from klamm_kafka.wire.varint import encode_uvarint

E = ErrorCode
ME = bytes(range(16))
NONE, ZSTD = 0, 4


# ---- OTLP


def field(number, payload):
    if isinstance(payload, int):
        return encode_uvarint(number << 3) + encode_uvarint(payload)
    return encode_uvarint(number << 3 | 2) + encode_uvarint(len(payload)) + payload


def double(number, value):
    return encode_uvarint(number << 3 | 1) + struct.pack("<d", value)


def sfixed64(number, value):
    return encode_uvarint(number << 3 | 1) + struct.pack("<q", value)


def attribute(number, key, value):
    return field(number, field(1, key.encode()) + field(2, field(1, value.encode())))


def number_point(value, **labels):
    body = sfixed64(6, value) if isinstance(value, int) else double(4, value)
    return body + b"".join(attribute(7, k, v) for k, v in labels.items())


def gauge(name, value, **labels):
    return field(1, name.encode()) + field(5, field(1, number_point(value, **labels)))


def counter(name, value, temporality=1, monotonic=1, **labels):
    body = field(1, number_point(value, **labels)) + field(2, temporality) + field(3, monotonic)
    return field(1, name.encode()) + field(7, body)


def metrics_data(*metrics, **resource):
    described = field(1, b"".join(attribute(1, k, v) for k, v in resource.items()))
    return field(1, described + field(2, b"".join(field(2, m) for m in metrics)))


def test_gauges_and_sums_are_read_with_the_labels_of_resource_and_point():
    data = metrics_data(
        gauge("a.avg", 1.5, node_id="1"), counter("b.total", 7), counter("c", -3, 2, 0), client_rack="r1"
    )
    assert otlp.read(data, 10).points == [
        Point("a.avg", {"client_rack": "r1", "node_id": "1"}, 1.5, False, False),
        Point("b.total", {"client_rack": "r1"}, 7, True, True),
        Point("c", {"client_rack": "r1"}, -3, False, False),
    ]


def test_other_kinds_and_points_after_the_limit_are_counted():
    histogram = field(1, b"h") + field(9, b"")
    pushed = otlp.read(metrics_data(gauge("a", 1), histogram, gauge("b", 2)), 1)
    assert [p.name for p in pushed.points] == ["a"]
    assert pushed.left_out == 2


def test_a_point_that_was_not_recorded_is_no_value():
    unrecorded = field(1, b"a") + field(5, field(1, double(4, 1.0) + field(8, 1)))
    assert otlp.read(metrics_data(unrecorded), 10).points == []


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(MalformedMetrics):
        otlp.read(data, 10)


@given(st.data())
def test_a_damaged_push_is_read_or_refused(data):
    whole = bytearray(metrics_data(gauge("a.b", 1.0, x="y"), counter("c", 3), k="v"))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedMetrics):
        otlp.read(whole[: data.draw(st.integers(at, len(whole)))], 10)


def test_a_push_has_a_limit_of_fields():
    with pytest.raises(MalformedMetrics, match="more than 50000 fields"):
        otlp.read(metrics_data(*[field(1, b"m") + b"\x10\x00" * 4_000] * 20), 10)


def test_a_large_push_is_read_in_pieces():
    point = field(1, number_point(1, node="1"))
    several = field(1, b"m") + field(5, point * 400)
    pieces = list(otlp.steps(metrics_data(*[several] * 2), 1_000))
    assert len(pieces) > 800, "others are served after each point"
    for flat in (field(1, b"\x10\x00" * 6_000), metrics_data(field(1, b"m") + b"\x10\x00" * 6_000)):
        with pytest.raises(MalformedMetrics, match="more than 5000 fields between two points"):
            otlp.read(flat, 10)


def test_only_metrics_that_are_asked_for_are_read():
    data = metrics_data(gauge("org.one.x", 1), counter("org.two.x", 2), gauge("org.three", 3))
    pushed = otlp.read(data, 10, ["org.one.", "org.three"])
    assert [point.name for point in pushed.points] == ["org.one.x", "org.three"]
    assert pushed.left_out == 1


@dataclass
class OneSender:
    client_id: str = "me"
    host: str = "h"
    port: int = 1
    principal: KafkaPrincipal = ANONYMOUS
    software: tuple[str, str] = ("a", "1")
    connection: int = 1


@pytest.mark.parametrize(
    ("asked", "error", "shown"),
    [(None, E.NONE, 0), ("org.one", E.NONE, 1), ("*", E.NONE, 2)],
)
def test_a_client_that_was_asked_for_nothing_is_not_decoded(tmp_path, monkeypatch, asked, error, shown):
    config = ClusterConfig(tmp_path / "cluster.json")
    telemetry = ClientTelemetry(config, max_bytes=1 << 20)
    if asked is not None:
        telemetry.subscriptions.update("s", Subscription.parse([asked], 1_000, []))
    decompressed = []
    monkeypatch.setattr(
        "klamm_broker.server.client_telemetry.decompress",
        lambda _, data, **more: decompressed.append(more) or data,
    )
    _, who, instance = telemetry.get(OneSender(), ME, 0)
    request = PushTelemetryRequest(
        client_instance_id=who, subscription_id=instance.subscription_id, terminating=False, compression_type=0,
        metrics=metrics_data(gauge("org.one.x", 1), gauge("org.two.x", 2)),
    )  # fmt: skip
    assert finish(telemetry.push(OneSender(), request, 0)) is error
    assert len(telemetry.series) == shown
    assert len(decompressed) == (asked is not None)


# ---- subscriptions


def attributes(**more):
    known = attributes_of(ME, client_id="me", software=("librdkafka", "2.0"), host="10.0.0.1", port=9)
    return {**known, **more}


def ask(subs, now_ms, **more):
    return subs.get(ME, attributes(**more), "connection", now_ms)


def push(subs, now_ms, subscription_id, *, terminating=False, compression=NONE, size=10, who=ME):
    error, _ = subs.push(
        who, attributes(), "connection", now_ms, subscription_id=subscription_id, terminating=terminating,
        compression=compression, size=size,
    )  # fmt: skip
    return error


def made(**subscriptions):
    subs = Subscriptions(max_bytes=100)
    for name, (metrics, interval_ms, match) in subscriptions.items():
        subs.update(name, Subscription.parse(metrics, interval_ms, match))
    return subs


def test_a_client_gets_all_subscriptions_that_match_it_and_the_shortest_interval():
    subs = made(
        a=(["org.one", "org.two"], 5_000, ["client_id=m.", "client_source_port=\\d"]),
        b=(["org.two", "org.three"], 9_000, []),
        c=(["org.four"], 100, ["client_software_name=apache-kafka-java"]),
        d=(["org.five"], 100, ["client_id=m"]),
    )
    error, instance = ask(subs, 0)
    assert error is E.NONE
    assert sorted(instance.metrics) == ["org.one", "org.three", "org.two"]
    assert instance.interval_ms == 5_000


def test_one_star_stands_for_all_and_long_intervals_are_cut():
    subs = made(a=(["org.one"], 3_600_000, []), b=(["*"], 3_600_000, []))
    _, instance = ask(subs, 0)
    assert (instance.metrics, instance.interval_ms) == (["*"], 300_000)


def test_the_subscription_id_is_kafkas():
    # Asked of Apache Kafka 4.3.1 by test_conformance_answers_telemetry.py; here so that a change is seen without it.
    subs = made(a=(["*"], 5_000, []))
    assert ask(subs, 0)[1].subscription_id == module._subscription_id(["*"], 5_000, ME)
    assert made()._made(ME, {}).subscription_id != ask(subs, 0)[1].subscription_id


def test_a_client_may_ask_once_per_interval_and_push_after_it():
    subs = made(a=(["*"], 1_000, []))
    error, instance = ask(subs, 0)
    wanted = instance.subscription_id
    assert error is E.NONE
    assert ask(subs, 999)[0] is E.THROTTLING_QUOTA_EXCEEDED
    assert push(subs, 1_000, wanted) is E.NONE
    assert push(subs, 1_999, wanted) is E.THROTTLING_QUOTA_EXCEEDED
    assert push(subs, 2_000, wanted) is E.NONE
    assert ask(subs, 2_999)[0] is E.THROTTLING_QUOTA_EXCEEDED
    assert ask(subs, 3_000)[0] is E.NONE
    assert subs.throttled == 3


def test_a_push_by_an_old_subscription_is_refused_and_the_client_may_ask_at_once():
    subs = made(a=(["*"], 1_000, []))
    _, instance = ask(subs, 0)
    old = instance.subscription_id
    subs.update("a", Subscription.parse(["org"], 2_000, []))
    assert push(subs, 1_000, old) is E.UNKNOWN_SUBSCRIPTION_ID
    error, instance = ask(subs, 1_001)
    assert error is E.NONE
    assert instance.interval_ms == 2_000
    assert push(subs, 3_000, instance.subscription_id) is E.NONE
    assert subs.unknown == 1


def test_a_last_push_may_come_early_and_nothing_after_it():
    subs = made(a=(["*"], 1_000, []))
    _, instance = ask(subs, 0)
    assert push(subs, 1_000, instance.subscription_id) is E.NONE
    assert push(subs, 1_001, instance.subscription_id, terminating=True) is E.NONE
    assert push(subs, 5_000, instance.subscription_id) is E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"size": 101}, E.TELEMETRY_TOO_LARGE),
        ({"compression": 7}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": ZSTD}, E.NONE),
        ({"who": bytes(16)}, E.INVALID_REQUEST),
        ({"who": bytes(15) + b"\x01"}, E.INVALID_REQUEST),
    ],
)
def test_pushes_that_are_refused(more, error):
    subs = made(a=(["*"], 1_000, []))
    _, instance = ask(subs, 0)
    assert push(subs, 1_000, instance.subscription_id, **more) is error


def test_clients_are_forgotten_by_time_by_disconnect_and_by_number(monkeypatch):
    subs = made(a=(["*"], 1_000, []))
    ask(subs, 0)
    subs.on_disconnect("connection")
    assert len(subs) == 0
    ask(subs, 0)
    subs.get(b"other instance..", attributes(), "another", 60_001)
    assert len(subs) == 1
    monkeypatch.setattr(module, "INSTANCES_MAX", 2)
    for n in range(4):
        subs.get(n.to_bytes(16), attributes(), n, 60_002)
    assert len(subs) == 2


# ---- series


def shown(pushed):
    text = "".join(lines(pushed.families()))
    return [f"{line}\n" for line in text.splitlines() if not line.startswith("# HELP")]


def take(pushed, *points, who="id", now_ms=0):
    pushed.take(who, "me", points, now_ms=now_ms, keep_ms=60_000)


def test_deltas_add_up_and_gauges_replace():
    pushed = PushedSeries()
    for value in (1, 2):
        take(
            pushed,
            Point("org.apache.kafka.producer.x.total", {"node": "1"}, value, True, True),
            Point("org.apache.kafka.producer.y-avg", {}, value / 2, False, False),
        )
    assert "".join(shown(pushed)) == (
        "# TYPE klamm_client_producer_x_total counter\n"
        'klamm_client_producer_x_total{client_instance_id="id",client_id="me",node="1"} 3\n'
        "# TYPE klamm_client_producer_y_avg gauge\n"
        'klamm_client_producer_y_avg{client_instance_id="id",client_id="me"} 1.0\n'
    )


def test_a_client_has_a_limit_and_so_have_all(monkeypatch):
    pushed = PushedSeries()
    take(pushed, *(Point(f"m{n}", {}, n, False, False) for n in range(SERIES_PER_CLIENT + 5)))
    assert (len(pushed), pushed.dropped) == (SERIES_PER_CLIENT, 5)
    monkeypatch.setattr(series, "SERIES_MAX", SERIES_PER_CLIENT + 1)
    take(pushed, *(Point(f"m{n}", {}, n, False, False) for n in range(3)), who="other")
    assert (len(pushed), pushed.dropped) == (SERIES_PER_CLIENT + 1, 7)


def test_series_outlive_their_client_for_a_while():
    pushed = PushedSeries()
    take(pushed, Point("m", {}, 1, False, False))
    pushed.expire(59_999)
    assert len(pushed) == 1
    pushed.expire(60_000)
    assert len(pushed) == 0
    assert shown(pushed) == []


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3))
def test_any_name_and_label_is_one_that_prometheus_reads(name, labels):
    from prometheus_client.parser import text_string_to_metric_families

    pushed = PushedSeries()
    take(pushed, Point(name, labels, math.pi, False, False))
    (family,) = text_string_to_metric_families("".join(lines(pushed.families())))
    assert family.samples[0].value == math.pi


def test_a_client_without_room_is_not_kept(monkeypatch):
    monkeypatch.setattr(series, "SERIES_MAX", 2)
    pushed = PushedSeries()
    take(pushed, *(Point(f"m{n}", {}, n, False, False) for n in range(2)))
    for n in range(1000):
        take(pushed, Point("m", {}, 1, False, False), who=f"made up {n}")
    assert (len(pushed), pushed.dropped, len(pushed._clients)) == (2, 1000, 1)
    assert len(pushed._owners[""].clients) == 1


def test_all_values_of_a_client_that_gives_way_are_counted(monkeypatch):
    monkeypatch.setattr(series, "SERIES_MAX", 10)
    monkeypatch.setattr(series, "SERIES_PER_CLIENT", 4)
    pushed = PushedSeries()
    for n in range(3):
        pushed.take(
            f"a{n}",
            "me",
            [Point(f"m{i}", {}, i, False, False) for i in range(4)],
            owner="a",
            now_ms=0,
            keep_ms=1,
        )
    assert (len(pushed), pushed.dropped) == (10, 2)
    pushed.take("b", "me", [Point("m", {}, 1, False, False)], owner="b", now_ms=0, keep_ms=1)
    assert (len(pushed), pushed.dropped) == (7, 6)


def test_whoever_makes_up_clients_does_not_take_the_room_of_others(monkeypatch):
    monkeypatch.setattr(series, "SERIES_MAX", 40)
    monkeypatch.setattr(series, "SERIES_PER_CLIENT", 5)
    pushed = PushedSeries()

    def push(who, owner, count=5):
        points = [Point(f"m{n}", {}, n, False, False) for n in range(count)]
        pushed.take(who, "me", points, owner=owner, now_ms=0, keep_ms=60_000)

    for n in range(20):
        push(f"made up {n}", "10.0.0.1")
    assert (len(pushed), pushed.dropped) == (40, 60)
    for n in range(3):
        push(f"ann's {n}", "User:ann")
    text = "".join(lines(pushed.families()))
    assert [text.count(f"ann's {n}") for n in range(3)] == [5, 5, 5]
    assert "made up 0" not in text, "the oldest client of the owner with most has given way"
    assert "made up 7" in text
    push("made up 20", "10.0.0.1")
    assert len(pushed) == 40
    assert "ann's 0" in "".join(lines(pushed.families()))
    pushed.expire(60_000)
    assert (len(pushed), not pushed._owners) == (0, True)
