"""The lag of other readers than our broker's consumer groups: mirror flows, share groups, groups of Apache Kafka; `klamm up --lag`."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack

import pytest
from support.broker import new_topic, wait_until
from support.kafka_broker import KafkaBroker
from support.klamm import Server, klamm, up_words
from support.mirror import mirror_file, produce, read_as
from support.share_client import Reader as ShareReader

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.errors import ErrorCode as E

from .test_lag_server import Reader, becomes, get, lag_server, status


@pytest.mark.usefixtures("processes")
def test_a_mirror_flow_and_a_share_group_are_behind_when_they_stop(tmp_path):
    one = {"num.partitions": "1"}
    with (
        EmbeddedBroker(tmp_path / "a", config=one) as a, EmbeddedBroker(tmp_path / "b", config=one) as b,
        ExitStack() as closing,
    ):  # fmt: skip
        topic = new_topic(a)
        produce(a.bootstrap, topic, ["x"] * 10)
        share = closing.enter_context(ShareReader(a, "sharers", topic)).join()
        wait_until(lambda: share.fetch(wait_ms=100)[0], "records to share")
        path = mirror_file(
            tmp_path / "mm2.properties", {"A": a.bootstrap, "B": b.bootstrap}, {"A->B.enabled": "true", "topics": topic}
        )  # fmt: skip
        clusters = {
            "cluster.A.bootstrap.servers": a.bootstrap, "cluster.A.offset-refresh": "0.2",
            "cluster.B.bootstrap.servers": b.bootstrap, "cluster.B.offset-refresh": "0.2",
        }  # fmt: skip
        with lag_server(tmp_path, a.bootstrap, **clusters) as server:

            def found(group: str) -> dict:
                return get(server, f"/v3/kafka/A/consumer/{group.replace('>', '%3E')}/lag")["status"]

            def copied() -> dict:
                """Returns the flow's place in the topic. Heartbeats of the other direction come by the flow, too."""
                return next((p for p in found("A->B")["partitions"] if p["topic"] == topic), {})

            assert share.acknowledge((0, 3, [1])) == E.NONE
            wait_until(lambda: found("sharers")["totallag"] == 6, "the share group's lag")
            assert share.acknowledge((4, 9, [1])) == E.NONE
            wait_until(lambda: found("sharers")["totallag"] == 0, "no lag of the share group")
            assert found("sharers")["kind"] == "share"
            with Server("mirror", "start", str(path)) as mirror:
                wait_until(lambda: copied().get("current_lag") == 0, "the flow")
                assert copied()["status"] == "OK"
                assert mirror.stop() == 0
            produce(a.bootstrap, topic, ["y"] * 5)
            wait_until(lambda: copied()["current_lag"] == 5, "the flow's lag")
            wait_until(lambda: copied()["status"] == "STOP", "the flow's end")
            flow = found("A->B")
            assert (flow["kind"], flow["status"], flow["time_lag_ms"] > 0) == ("mirror", "ERR", True)


@pytest.mark.usefixtures("apache_kafka")
def test_groups_of_apache_kafka(tmp_path):
    (folder := tmp_path / "kafka").mkdir()
    with KafkaBroker(folder) as kafka:
        produce(kafka.address, "t", ["x"] * 100)
        for group in ("g", "connect-sink"):
            reader = Reader(kafka.address, group)
            reader.commit(40)
            reader.close()
        read_as(kafka.address, "done", "t", lambda values: len(values) >= 100)
        with lag_server(tmp_path, kafka.address) as server:
            reader = Reader(kafka.address, "g")
            stalled = becomes(server, "g", "STALL", lambda: reader.commit(40))
            assert stalled["totallag"] == sum(p["current_lag"] for p in stalled["partitions"])
            assert stalled["time_lag_ms"] > 0
            assert status(server, "done")["totallag"] == 0
            assert get(server, "/v3/kafka/local/topic/t/consumers")["consumers"] == [
                "connect-sink",
                "done",
                "g",
            ]
            wait_until(lambda: status(server, "connect-sink")["kind"] == "connect", "the sink's kind")
            becomes(server, "g", "STOP")
            reader.close()
        shown = klamm("lag", "status", "-b", kafka.address, "-o", "json")
        assert {row["group"] for row in json.loads(shown.stdout)} == {"connect-sink", "done", "g"}, (
            shown.stderr
        )


@pytest.mark.usefixtures("processes")
def test_up_starts_it_when_asked(tmp_path):
    with Server(*up_words(tmp_path / "data"), "--lag-port", "0", "--no-registry", "--no-console") as up:
        produce(up.ready["broker"], "t", ["x"] * 10)
        read_as(up.ready["broker"], "g", "t", lambda values: len(values) >= 10)

        def groups() -> list[str]:
            with urllib.request.urlopen(f"{up.ready['lag']}/v3/kafka/local/consumer", timeout=30) as answer:
                return json.load(answer)["consumers"]

        wait_until(lambda: groups() == ["g"], "the group")
        assert (tmp_path / "data/lag/lag.sqlite").exists()
