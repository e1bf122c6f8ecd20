"""Batches that an agent had sent when it was killed: the leaders of their partitions tell which of them they have.

A broker remembers the last sequence number of each producer, and its last batches. The batches go again under their old numbers, so a
broker that has them writes none of them twice, also when a request of the killed agent comes only now. DescribeProducers is asked
before, for what this does not cover: a broker that was restarted remembers fewer batches, and one that has forgotten the
producer would write all of them.

Each partition has a question of its own, asked at once with all others. A leader that does not answer holds its partition only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from klamm_agent.delivery.batches import Batch
from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster, Connection, OneCluster, broker_error
from klamm_kafka.client.outbox import SEQUENCES
from klamm_kafka.wire.batch import read_header
from klamm_kafka.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataResponse

REMEMBERED_MS: Final = 3_600_000
"""Brokers keep an idle producer for a day unless told otherwise; one that is not known after an hour may have been."""
_ASK_S: Final = 10.0
_ELSEWHERE: Final = "they were sent to another cluster before"
SLOW_S: Final = 1.0
"""A leader that has not answered by then is told of, and looked for again: another may lead meanwhile."""


class Known(Enum):
    """Answers of a leader about a producer, besides a last sequence number."""

    ABSENT = "absent"
    """It knows no such producer."""
    UNTOLD = "untold"
    """It does not say: no permission, or an old broker."""


class Verdict(NamedTuple):
    """The batches of one partition: those that are in the topic for sure, those that go again under their numbers, and those that go
    again as new ones, of which nobody knows whether they are in the topic (`why`).
    """

    proved: list[Batch]
    again: list[Batch]
    doubtful: list[Batch]
    why: str = "the broker does not know our producer any more"


def judge(batches: Sequence[Batch], last: int | Known, now_ms: int) -> Verdict:
    """Judges one partition's batches, in their order, by the last sequence number that its leader has of their first producer. Pure."""
    first = batches[0].noted
    assert first is not None, "only batches that were sent come here"
    ours, others = _split(batches, lambda b: b.noted is not None and b.noted[1:3] == first[1:3])
    # The others were sent by another producer after a failure
    if last is Known.ABSENT:
        old = now_ms - read_header(ours[0].data).base_timestamp > REMEMBERED_MS
        if old or first.sequence:
            return Verdict([], [], list(batches))
    if isinstance(last, Known):
        return Verdict([], ours, others)
    proved, again = _split(ours, lambda b: _distance(b.last_sequence, last) > 0)
    return Verdict(proved, again, others)


def split_by_cluster(batches: Sequence[Batch], cluster: str) -> tuple[list[Batch], list[Batch]]:
    """Returns the batches that were sent to `cluster`, and those that were sent to another. Clusters give the same ids to producers, so
    none can be asked about another's batches. Pure.
    """
    return _split(batches, lambda b: b.noted is not None and b.noted.cluster == cluster)


def _split(batches: Sequence[Batch], first: Callable[[Batch], bool]) -> tuple[list[Batch], list[Batch]]:
    """Returns the batches for which `first` holds, and all others, both in their order."""
    yes: list[Batch] = []
    no: list[Batch] = []
    for batch in batches:
        (yes if first(batch) else no).append(batch)
    return yes, no


def _distance(first: int, second: int) -> int:
    """Returns how far `second` is behind `first` in the circle of sequence numbers; negative when it is before it."""
    found = (second - first) % SEQUENCES
    return found if found < SEQUENCES // 2 else found - SEQUENCES


@dataclass(slots=True, eq=False)
class _Question:
    """The batches of one partition, and the attempts to learn which of them its leader has."""

    batches: list[Batch]
    leader: tuple[int, int] = (-1, -1)
    """Node id and epoch in the last metadata."""
    asked: tuple[int, int] = (-1, -1)
    task: asyncio.Task[Verdict] | None = None
    since: float | None = None
    asking: Backoff = field(default_factory=Backoff)


class Resuming:
    """The batches that wait for what the leaders say. `answered` is called when a leader has said something, or failed to."""

    def __init__(self, cluster: Cluster, one: OneCluster, answered: Callable[[], None]) -> None:
        self._cluster, self._one, self._answered = cluster, one, answered
        self._topics: dict[str, dict[int, _Question]] = {}
        self._stopped: set[asyncio.Task[Verdict]] = set()
        self._look_at = 0.0

    def add(self, batch: Batch) -> None:
        """Takes a batch that was sent; batches must come in their order."""
        assert batch.noted is not None, "it was sent"
        batch.sequence = batch.noted.sequence
        question = self._topics.setdefault(batch.topic, {}).setdefault(batch.noted.partition, _Question([]))
        question.batches.append(batch)

    @property
    def topics(self) -> list[str]:
        """The topics with partitions whose leaders have not answered."""
        return list(self._topics)

    def held(self, topic: str) -> Collection[int]:
        """Returns the partitions of a topic whose leaders have not answered: nothing may be sent there."""
        return self._topics.get(topic, {}).keys()

    def slow(self, now: float) -> list[tuple[str, int, float]]:
        """Returns topics and partitions whose leaders have been asked for long, each with the seconds."""
        return [
            (topic, partition, now - question.since)
            for topic, questions in self._topics.items()
            for partition, question in sorted(questions.items(), key=lambda found: found[0])
            if question.since is not None and now - question.since >= SLOW_S
        ]

    def learned(self, answer: MetadataResponse) -> None:
        """Takes in who leads the partitions."""
        for topic in answer.topics:
            questions: Mapping[int, _Question] = self._topics.get(topic.name or "", {})
            for found in topic.partitions if questions else ():
                if (question := questions.get(found.partition_index)) is None:
                    continue
                question.leader = found.leader_id, found.leader_epoch
                if found.leader_id < 0:
                    question.asking.failed(time.monotonic(), "no leader")

    def wants_leaders(self, now: float) -> bool:
        """Tells whether it is time to ask who leads the partitions: a question failed, or is not answered for long."""
        every = (question for questions in self._topics.values() for question in questions.values())
        if any(q.leader[0] < 0 and now >= q.asking.until for q in every):
            return True
        if now < self._look_at or not self.slow(now):
            return False
        self._look_at = now + SLOW_S
        return True

    def verdicts(self, topic: str, partitions: int) -> dict[int, Verdict]:
        """Asks the leaders of a topic, which has so many partitions now, about all that nobody is asked about; returns the verdicts that
        have come since the last call, by partition.
        """
        now, questions = time.monotonic(), self._topics[topic]
        found = {}
        for partition, question in questions.items():
            question.since = now if question.since is None else question.since
            if partition >= partitions:
                # Somebody may have deleted the topic and made it again with fewer partitions
                self._stop(question)
                found[partition] = Verdict([], [], question.batches)
            elif (verdict := self._verdict(question, now)) is not None:
                found[partition] = verdict
            elif question.task is None and now >= question.asking.until and question.leader[0] >= 0:
                question.asked = question.leader
                question.task = asyncio.create_task(self._ask(topic, partition, question))
                question.task.add_done_callback(lambda _: self._answered())
        for partition in found:
            del questions[partition]
        if not questions:
            del self._topics[topic]
        return found

    def _verdict(self, question: _Question, now: float) -> Verdict | None:
        """Returns the verdict of a question that was answered; ends the attempt when it failed, or another broker leads now."""
        task = question.task
        if task is None:
            return None
        if task.done():
            question.task = None
            try:
                return task.result()
            except ClientError as e:
                question.asking.failed(now, str(e))
                question.leader = (-1, -1)  # another may lead
        elif question.leader != question.asked and question.leader[0] >= 0:
            self._stop(question)
        return None

    def _stop(self, question: _Question) -> None:
        if question.task is not None:
            question.task.cancel()
            self._stopped.add(question.task)
            question.task.add_done_callback(self._ended)
            question.task = None

    def _ended(self, task: asyncio.Task[Verdict]) -> None:
        """Forgets an attempt that nobody waits for, and its failure."""
        self._stopped.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Ends all attempts."""
        for questions in self._topics.values():
            for question in questions.values():
                self._stop(question)
        await asyncio.gather(*self._stopped, return_exceptions=True)

    async def _ask(self, topic: str, partition: int, question: _Question) -> Verdict:
        """Asks a leader which batches it has. Raises ClientError when asking again may help."""
        connection = await self._cluster.broker(question.asked[0])
        here, elsewhere = split_by_cluster(question.batches, self._one.found or "")
        if not here:
            return Verdict([], [], elsewhere, _ELSEWHERE)
        last = await self._last(connection, topic, partition, here[0])
        verdict = judge(here, last, time.time_ns() // 1_000_000)
        if elsewhere:
            doubtful = sorted(verdict.doubtful + elsewhere, key=lambda batch: batch.number)
            verdict = verdict._replace(doubtful=doubtful, why=_ELSEWHERE)
        return verdict

    async def _last(self, connection: Connection, topic: str, partition: int, batch: Batch) -> int | Known:
        """Asks a leader for the last sequence number of the batch's producer. Raises ClientError when asking again may help."""
        assert batch.noted is not None, "it was sent"
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
        try:
            answer: DescribeProducersResponse = await connection.request(request, timeout_s=_ASK_S)
            (told,) = answer.topics[0].partitions
            if told.error_code:
                raise broker_error(told.error_code, f"asking for the producers of {topic}-{partition}")
        except ClientError as e:
            if e.retriable:
                raise
            return Known.UNTOLD
        for state in told.active_producers:
            if state.producer_id == batch.noted.producer_id:
                if state.producer_epoch != batch.noted.epoch or state.last_sequence < 0:
                    return Known.ABSENT
                return state.last_sequence
        return Known.ABSENT
