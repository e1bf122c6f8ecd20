"""SIGTERM under load: what the broker has taken before its end, it has also answered.

A producer that repeats what was stored and not answered is a duplicate to recognise, and a clean start knows only the
last batch of each producer, as in Kafka.
"""

from __future__ import annotations

import os
import signal

import pytest
from support.broker import new_topic, wait_until
from support.faults.logs import read_log
from support.raw import RawClient, batch, produce_request, request_frame

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.produce import ProduceRequest

COUNT = 3000


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_what_is_stored_is_answered(tmp_path, durability):
    with EmbeddedBroker(tmp_path / "data", config={"durability": durability}) as broker:
        topic = new_topic(broker)
        frames = [request_frame(produce_request(topic, batch(b"%d" % i)), 9, i) for i in range(COUNT)]
        answered = 0
        with RawClient(broker.port) as client:
            client.sock.settimeout(20)
            client.sock.setblocking(True)
            sent = 0
            stream = b"".join(frames)
            while answered < 50:
                if sent < len(stream):
                    sent += client.sock.send(stream[sent : sent + 4096])
                if sent > (answered + 5) * len(frames[0]):
                    client.receive(ProduceRequest, 9)
                    answered += 1
            client.sock.send(stream[sent : sent + 4096])
            os.kill(broker.pid, signal.SIGTERM)
            try:
                while True:
                    client.receive(ProduceRequest, 9)
                    answered += 1
            except ConnectionError:
                pass
        wait_until(lambda: not broker.running, "its end", timeout_s=60)
        broker.kill()  # it is gone: only its pipes are closed
        broker.start()
        assert read_log(broker.port, topic, 0).end == answered
