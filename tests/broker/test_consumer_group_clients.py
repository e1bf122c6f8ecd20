"""Groups of the consumer protocol (KIP-848) with librdkafka against a real broker process, and live migration."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from support.broker import new_name, new_topic, wait_until

from klamm.testing import EmbeddedBroker

FAST = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "15000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
"""Members hear of changes at once: the intervals that Kafka's defaults have are for real life. A session is long enough
for a machine that stands still, and for a static member that comes back."""
QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def fast(processes, tmp_path_factory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("consumer-groups"), config=FAST) as broker:
        yield broker


class Member:
    """A consumer that polls in a thread; `assigned` is what it has, as (topic, partition)."""

    def __init__(self, broker: EmbeddedBroker, group: str, *topics: str, **config: object) -> None:
        self.assigned: set[tuple[str, int]] = set()
        self.seen: list[bytes] = []
        self.errors: list[str] = []
        new = config.get("group.protocol", "consumer") == "consumer"
        times = {} if new else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **times,
                **QUIET,
                **config,
            }
        )
        self.consumer.subscribe(list(topics))
        self._stop = threading.Event()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            while not self._calls.empty():
                self._calls.get()()
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append(message.value())
            elif message is not None:
                self.errors.append(str(message.error()))
            self.assigned = {(p.topic, p.partition) for p in self.consumer.assignment()}

    def do(self, call: Callable[[Consumer], object]) -> Any:
        """Call something in the thread that polls: librdkafka does not answer two threads at a time."""
        result: Future[object] = Future()

        def run() -> None:
            try:
                result.set_result(call(self.consumer))
            except Exception as e:
                result.set_exception(e)

        self._calls.put(run)
        return result.result(60)

    def close(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self.consumer.close()


@pytest.fixture
def members() -> Iterator[list[Member]]:
    made: list[Member] = []
    yield made
    for member in made:
        member.close()


def balanced(partitions: int, *members: Member) -> bool:
    """Returns whether every partition belongs to exactly one member, and all have about as many."""
    sizes = [len(m.assigned) for m in members]
    everything = set().union(*(m.assigned for m in members))
    return sum(sizes) == len(everything) == partitions and max(sizes) - min(sizes) <= 1


def described(broker: EmbeddedBroker, group: str):
    """Returns what the broker says of a group, once it has loaded it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})

    def found():
        try:
            return admin.describe_consumer_groups([group])[group].result(60)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return None

    return wait_until(found, f"{group} is loaded")


def test_members_join_and_leave(fast, members):
    topic, group = new_topic(fast, 6), new_name("group")
    producer = Producer({"bootstrap.servers": fast.bootstrap, **QUIET})
    for i in range(60):
        producer.produce(topic, str(i).encode(), partition=i % 6)
    assert producer.flush(60) == 0
    members += [Member(fast, group, topic)]
    wait_until(lambda: balanced(6, *members), "one has all")
    members += [Member(fast, group, topic), Member(fast, group, topic)]
    wait_until(lambda: balanced(6, *members), "three share")
    members.pop(1).close()
    wait_until(lambda: balanced(6, *members), "two inherit")
    wait_until(lambda: {int(v) for m in members for v in m.seen} == set(range(60)), "everything was read")
    # who has partitions tells the group so with the next heartbeat
    wait_until(lambda: described(fast, group).state.name == "STABLE", "all have said what they have")
    found = described(fast, group)
    assert (found.type.name, found.partition_assignor) == ("CONSUMER", "uniform")
    assert not any(m.errors for m in members)


def test_offsets_are_committed_and_found_again(fast, members):
    topic, group = new_topic(fast, 1), new_name("group")
    first = Member(fast, group, topic)
    members.append(first)
    wait_until(lambda: balanced(1, first), "assigned")
    first.do(lambda c: c.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False))
    first.close()
    second = Member(fast, group, topic)
    members.append(second)
    wait_until(lambda: balanced(1, second), "assigned")
    (found,) = second.do(lambda c: c.committed([TopicPartition(topic, 0)], timeout=60))
    assert found.offset == 5
    outside = Consumer({"bootstrap.servers": fast.bootstrap, "group.id": group, **QUIET})
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        outside.commit(offsets=[TopicPartition(topic, 0, 9)], asynchronous=False)
    outside.close()


def test_a_static_member_keeps_its_partitions_over_a_restart(fast, members):
    topic, group = new_topic(fast, 4), new_name("group")
    static = Member(fast, group, topic, **{"group.instance.id": "i"})
    members += [static, Member(fast, group, topic)]
    wait_until(lambda: balanced(4, *members), "two share")
    had, other = static.assigned, members[1].assigned
    static.close()
    back = Member(fast, group, topic, **{"group.instance.id": "i"})
    members.append(back)
    wait_until(lambda: back.assigned == had, "it has its partitions again")
    assert members[1].assigned == other


def test_new_partitions_of_topics_of_a_regular_expression(fast, members):
    prefix, group = new_name("rx"), new_name("group")
    admin = AdminClient({"bootstrap.servers": fast.bootstrap, **QUIET})
    admin.create_topics([NewTopic(f"{prefix}-1", 2)])[f"{prefix}-1"].result()
    members.append(Member(fast, group, f"^{prefix}-.*"))
    wait_until(lambda: len(members[0].assigned) == 2, "the first topic")
    admin.create_partitions([NewPartitions(f"{prefix}-1", 3)])[f"{prefix}-1"].result()
    wait_until(lambda: len(members[0].assigned) == 3, "a new partition")


def test_a_new_topic_of_a_regular_expression_is_picked_up(fast, members):
    """Ten seconds after the last look at the earliest, as in Kafka."""
    prefix, group = new_name("rx"), new_name("group")
    admin = AdminClient({"bootstrap.servers": fast.bootstrap, **QUIET})
    admin.create_topics([NewTopic(f"{prefix}-1", 2)])[f"{prefix}-1"].result()
    members += [Member(fast, group, f"^{prefix}-.*") for _ in range(2)]
    wait_until(lambda: balanced(2, *members), "the first topic")
    created = {f"{prefix}-2": 3, f"other-{prefix}": 1}
    for future in admin.create_topics([NewTopic(name, count) for name, count in created.items()]).values():
        future.result()
    wait_until(lambda: sum(len(m.assigned) for m in members) == 5, "the second one", timeout_s=60)
    assert {topic for m in members for topic, _ in m.assigned} == {f"{prefix}-1", f"{prefix}-2"}
    admin.delete_topics([f"{prefix}-1"])[f"{prefix}-1"].result()
    wait_until(lambda: sum(len(m.assigned) for m in members) == 3, "the first one is gone", timeout_s=60)


def test_a_killed_member_is_replaced_when_its_session_ends(fast, members):
    topic, group = new_topic(fast, 4), new_name("group")
    program = (
        "from confluent_kafka import Consumer\n"
        f"c = Consumer({{'bootstrap.servers': '{fast.bootstrap}', 'group.id': '{group}', "
        "'group.protocol': 'consumer', 'log_level': 0})\n"
        f"c.subscribe(['{topic}'])\n"
        "while True:\n"
        "    c.poll(0.05)\n"
        "    if c.assignment(): print('assigned', flush=True)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "assigned\n"
        members.append(Member(fast, group, topic))
        wait_until(lambda: len(members[0].assigned) == 2, "they share")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    wait_until(lambda: balanced(4, *members), "the other one inherits")


@pytest.mark.usefixtures("processes")
def test_members_go_on_after_the_broker_was_killed(tmp_path, members):
    with EmbeddedBroker(tmp_path, config=FAST) as broker:
        topic, group = new_topic(broker, 4), new_name("group")
        members += [Member(broker, group, topic), Member(broker, group, topic)]
        wait_until(lambda: balanced(4, *members), "two share")
        before = described(broker, group)
        broker.kill()
        broker.start()
        assert {m.member_id for m in described(broker, group).members} == {
            m.member_id for m in before.members
        }
        members.pop().close()
        wait_until(lambda: balanced(4, *members), "one inherits", timeout_s=60)
        for member in members:
            member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_live_migration_to_the_new_protocol_and_back(fast, members, strategy):
    topic, group = new_topic(fast, 4), new_name("group")
    classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    old = Member(fast, group, topic, **classic)
    members.append(old)
    wait_until(lambda: balanced(4, old), "the classic member has all")
    old.do(lambda c: c.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False))
    new = Member(fast, group, topic)
    members.append(new)
    wait_until(lambda: balanced(4, old, new), "one of each kind", timeout_s=60)
    assert described(fast, group).type.name == "CONSUMER"
    new.close()
    members.remove(new)
    wait_until(lambda: balanced(4, old), "the classic member has all again", timeout_s=60)
    found = described(fast, group)
    assert (found.type.name, found.partition_assignor) == ("CLASSIC", strategy)
    (committed,) = old.do(lambda c: c.committed([TopicPartition(topic, 0)], timeout=60))
    assert committed.offset == 3
