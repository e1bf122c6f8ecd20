"""A consumer instance over a consumer that answers what a test says: errors among records, rebalances in the middle, failures."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from klamm.restproxy import instance as instances
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.instance import Fetched, Instance
from klamm.restproxy.topic_patterns import posix


class Scripted:
    """A consumer: each `consume` takes what `script` has next, messages or a step that is called."""

    def __init__(self, _settings: Any) -> None:
        self.script: deque[Any] = deque()
        self.polls = 0
        self.stored: list[tuple[int, int]] = []

    def subscribe(self, _topics: Any, on_revoke: Any, on_lost: Any) -> None:
        assert on_revoke == on_lost
        self.on_revoke = on_revoke

    def assignment(self) -> list[TopicPartition]:
        return []

    def consume(self, count: int, _timeout_s: float) -> list[Any]:
        self.polls += 1
        found: list[Any] = []
        while self.script and len(found) < count:
            if callable(self.script[0]):
                if found:
                    break
                self.script.popleft()()
            elif self.script[0] is None:  # the end of what is there now
                self.script.popleft()
                break
            else:
                found.append(self.script.popleft())
        return found

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += [(each.partition, each.offset) for each in offsets]


def record(offset: int, partition: int = 0) -> Any:
    return SimpleNamespace(
        error=lambda: None, topic=lambda: "t", partition=lambda: partition, offset=lambda: offset, key=lambda: None,
        value=lambda: b"v" * 10,
    )  # fmt: skip


def failure(code: int = KafkaError.TOPIC_AUTHORIZATION_FAILED) -> Any:
    return SimpleNamespace(error=lambda: KafkaError(code))


def shown(fetched: Fetched) -> bytes:
    return json.dumps([fetched.partition, fetched.offset]).encode()


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setattr(instances, "Consumer", Scripted)
    made = Instance({})
    made.subscribe(["t"], None)
    return made


def scripted(instance: Instance, *steps: Any) -> Scripted:
    consumer: Any = instance._consumer
    consumer.script.extend(steps)
    return consumer


def offsets(instance: Instance, decode: Callable[[Fetched], bytes] = shown, **more: Any) -> list[int]:
    settings = {"timeout_s": 0.0, "bytes_max": 1 << 20, "bytes_min": 1, **more}
    return [json.loads(each)[1] for each in instance.read(decode=decode, **settings)]


def test_an_error_among_records_hides_none_of_them(instance: Instance) -> None:
    scripted(instance, record(0), record(1), failure(), record(2), record(3))
    assert offsets(instance) == [0, 1, 2, 3]
    with pytest.raises(ProxyError) as e:
        offsets(instance)
    assert e.value.code == 40301
    scripted(instance, record(4))
    assert offsets(instance) == [4]


def test_an_error_after_records_comes_with_the_next_answer(instance: Instance) -> None:
    consumer = scripted(instance, record(0), None, failure(), record(1))
    assert offsets(instance, timeout_s=1.0, bytes_min=1000) == [0, 1]
    with pytest.raises(ProxyError):
        offsets(instance)
    assert consumer.stored == [(0, 2)]


def test_records_before_a_failure_are_the_next_answer(instance: Instance) -> None:
    def fails(fetched: Fetched) -> bytes:
        if fetched.offset == 2:
            raise RuntimeError("not foreseen")
        return shown(fetched)

    consumer = scripted(instance, record(0), record(1), record(2))
    with pytest.raises(RuntimeError):
        offsets(instance, fails)
    assert offsets(instance) == [0, 1, 2]
    assert consumer.stored == []


def test_a_partition_that_goes_in_the_middle_leaves_the_answer(instance: Instance) -> None:
    """Its next owner reads these records, and commits them."""
    consumer = scripted(instance, record(0, 0), record(0, 1), None)
    scripted(instance, lambda: consumer.on_revoke(consumer, [TopicPartition("t", 0)]), record(1, 1))
    got = instance.read(timeout_s=1.0, bytes_max=1 << 20, bytes_min=25, decode=shown)
    assert list(map(json.loads, got)) == [[1, 0], [1, 1]]
    offsets(instance)
    assert consumer.stored == [(1, 2)]


def test_each_request_polls_although_records_wait(instance: Instance) -> None:
    consumer = scripted(instance, *map(record, range(10)))
    assert offsets(instance, bytes_max=10) == [0]
    scripted(instance, lambda: consumer.on_revoke(consumer, [TopicPartition("t", 0)]))
    assert offsets(instance, bytes_max=10) == []


def test_requests_that_fail_do_not_pile_records_up(instance: Instance) -> None:
    def undecodable(_fetched: Fetched) -> bytes:
        raise ProxyError(50002, "no JSON")

    scripted(instance, *map(record, range(10_000)))
    for _ in range(5000):
        with pytest.raises(ProxyError):
            offsets(instance, undecodable)
    assert len(instance._waiting) <= 2 * instances.BATCH


def test_no_answer_is_longer_than_its_time(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records there are already."""
    now = [0.0]
    monkeypatch.setattr(instances, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slowly(fetched: Fetched) -> bytes:
        now[0] += 0.001
        return shown(fetched)

    scripted(instance, *map(record, range(10_000)))
    assert len(offsets(instance, slowly, timeout_s=1.5)) == 2 * instances.BATCH


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("orders", "^(orders)$"), ("^a|b$", "^(^a|b$)$"), (r"a\.b-\d+", r"^(a\.b-[0-9]+)$"), (r"(?:a|b)\w", "^((a|b)[A-Za-z0-9_])$"),
        (r"[\w.\-x]*", "^([A-Za-z0-9_.x-]*)$"), (r"[^\d_]{2,3}", "^([^0-9_]{2,3})$"), (r"a\D\S", "^(a[^0-9][^ ])$"),
    ],
)  # fmt: skip
def test_patterns_of_topics_are_javas(given: str, wanted: str) -> None:
    assert posix(given) == wanted


@pytest.mark.parametrize("given", ["(", "a*?", "(?i)a", r"a\b", "(?=a)b", r"[\[a]", "[b-a]"])
def test_a_pattern_that_librdkafka_does_not_have_is_refused(given: str) -> None:
    with pytest.raises(ProxyError) as e:
        posix(given)
    assert e.value.status == 422
