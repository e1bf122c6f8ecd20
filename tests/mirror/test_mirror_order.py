"""Answers to a partition's batches are lost, refused, late: the target has every batch, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_kafka.client.outbox import IN_FLIGHT_MAX
from klamm_kafka.wire.batch import Record, encode_batch, read_header
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.origins import Origin, Producers
from klamm_mirror.raw import Batch, Counts, convert


class Target:
    """A partition's leader as Kafka's: it refuses wrong sequences, and knows what it has. It may forget producers;
    then it takes any sequence, as Kafka does. `fenced` producers are refused whatever they send.
    """

    def __init__(self) -> None:
        self.log: list[int] = []
        self.next: dict[int, int] = {}
        self.seen: set[tuple[int, int]] = set()
        self.fenced: set[int] = set()

    def append(self, batch: Batch) -> bool:
        producer = read_header(batch.data, 0).producer_id
        if producer in self.fenced:
            return False
        if (producer, batch.sequence) in self.seen:
            return True
        if batch.sequence != self.next.get(producer, batch.sequence):
            return False
        self.log.append(batch.first)
        self.next[producer] = batch.sequence + 1
        self.seen.add((producer, batch.sequence))
        return True

    def forget(self) -> None:
        self.next.clear()
        self.seen.clear()


def part_of(total: int) -> MirrorPartition:
    partition = MirrorPartition(topic="t", partition=0, remote="A.t", producer=(1, 0))
    partition.begin(0)
    for i in range(total):
        record = Record(value=b"%d" % i)
        batches, position = convert(bytes(encode_batch([record], base_offset=i)), i, Counts())
        partition.add(batches, position)
    return partition


class Marked(Producers):
    """Gives a producer to each origin at the second request, and remembers whose each is."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: dict[int, Origin | None] = {1: None}

    def of(self, origin: Origin | None) -> tuple[int, int] | None:
        if origin in self.wanted and origin not in self.known:
            self.known[origin] = self.make(origin)
        return super().of(origin)

    def make(self, origin: Origin | None) -> tuple[int, int]:
        producer_id = len(self.origins) + 1
        self.origins[producer_id] = origin
        return producer_id, 0


def ready(partition: MirrorPartition, now: float) -> list[Batch]:
    return list(iter(lambda: partition.take(now), None))


ORIGINS = [None, None, Origin("one", "A"), Origin("two", "B")]


@given(data=st.data())
def test_whatever_fails_the_target_gets_every_batch_in_order(data):
    """Once each, unless the target forgot the producer after an answer was lost: then again, in order."""
    target, total, now, forgot = Target(), data.draw(st.integers(1, 12)), 0.0, False
    partition, marked = part_of(total), Marked()
    origins = data.draw(st.lists(st.sampled_from(ORIGINS), min_size=total, max_size=total))
    for batch, origin in zip(partition.pending, origins, strict=True):
        batch.origin = origin
    partition.producers = marked
    for turn in range(500):
        now += 10
        quiet = turn > 30
        outcomes = ["ok"] if quiet else ["ok", "ok", "lost", "unanswered"]
        match "nothing" if quiet else data.draw(st.sampled_from(["nothing"] * 6 + ["forget", "fence"])):
            case "forget":
                target.forget()
                forgot = True
                outcomes.remove("lost")  # else the next may overtake it: nobody could tell
            case "fence":
                target.fenced |= {partition.producer[0]}
                forgot = True
        for batch in ready(partition, now):
            assert marked.origins[read_header(batch.data).producer_id] == batch.origin
            outcome = data.draw(st.sampled_from(outcomes))
            accepted = outcome != "lost" and target.append(batch)
            if outcome == "ok" and accepted:
                partition.acked(batch, -1, 0)
                continue
            if outcome == "ok" and partition.is_only(batch):
                partition.new_producer(marked.make(partition.origin))
            partition.failed(now, outcome)
        assert partition.done <= len(set(target.log)), "only what is there is committed"
        if partition.done == total:
            break
    assert list(dict.fromkeys(target.log)) == list(range(total))
    assert forgot or len(target.log) == total
    assert (partition.done, partition.buffered, partition.idle) == (total, 0, True)


def test_a_producer_that_is_forgotten_is_replaced_however_much_waits():
    """The first answer of a pipeline comes while others are under way: it cannot tell; the next one goes alone."""
    target, partition = Target(), part_of(20)
    for batch in ready(partition, 0):
        assert target.append(batch)
        partition.acked(batch, -1, 0)
    target.fenced = {1}
    refused = ready(partition, 1)
    assert len(refused) == IN_FLIGHT_MAX
    for batch in refused:
        assert not partition.is_only(batch) or batch is refused[-1]
        partition.failed(1, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    (first,) = ready(partition, 100)
    assert partition.is_only(first)


def test_nothing_overtakes_a_first_batch_that_fails():
    """The target, which knows nothing of the producer yet, would take the second one's sequence number."""
    partition = part_of(3)
    (first,) = ready(partition, 0)
    partition.failed(0, "NOT_ENOUGH_REPLICAS")
    assert ready(partition, 100) == [first]
    partition.acked(first, -1, 0)
    assert [b.first for b in ready(partition, 200)] == [1, 2]
