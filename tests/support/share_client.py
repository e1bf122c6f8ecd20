"""A member of a share group on a plain socket, one request at a time."""

from __future__ import annotations

import uuid

from support.raw import RawClient

from klamm_kafka.wire.batch import Record, decode_records, encode_batch
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm_kafka.wire.messages.share_fetch import AcknowledgementBatch as FetchBatch
from klamm_kafka.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from klamm_kafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class Reader(RawClient):
    """A member of a share group that reads partition 0 of one topic."""

    def __init__(self, broker, group, topic, *, lock_ms=None, **configs):
        super().__init__(broker.port)
        self.group, self.topic, self.member, self.epoch = group, topic, str(uuid.uuid4()), 0
        [found] = self.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
        self.topic_id = found.topic_id
        configs = {"share.auto.offset.reset": "earliest", **configs}
        if lock_ms is not None:
            configs["share.record.lock.duration.ms"] = str(lock_ms)
        changes = [AlterableConfig(name=n, value=str(v)) for n, v in configs.items()]
        resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=changes)
        [done] = self.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert done.error_code == E.NONE, done.error_message

    def join(self):
        answer = self.heartbeat(0, [self.topic])
        while not answer.assignment or not answer.assignment.topic_partitions:
            answer = self.heartbeat(answer.member_epoch, [self.topic])
        self.member_epoch = answer.member_epoch
        return self

    def heartbeat(self, epoch, topics=None):
        return self.request(
            ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member, member_epoch=epoch, subscribed_topic_names=topics
            ),
            1,
        )

    def ask(self, version=2, *, most=500, wait_ms=0, acks=(), limit=False, **more):
        """Sends a ShareFetch. Acks are (first, last, types)."""
        partition = FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                FetchBatch(first_offset=f, last_offset=t, acknowledge_types=list(types))
                for f, t, types in acks
            ],
        )
        topics = (
            [FetchTopic(topic_id=self.topic_id, partitions=[partition])] if acks or self.epoch == 0 else []
        )
        fields = {
            "group_id": self.group, "member_id": self.member, "share_session_epoch": self.epoch,
            "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": most, "batch_size": 500,
            "share_acquire_mode": int(limit), "topics": topics, **more,
        }  # fmt: skip
        self.send(ShareFetchRequest(**fields), version)

    def told(self, version=2):
        _, answer = self.receive(ShareFetchRequest, version)
        if answer.error_code == E.NONE and self.epoch >= 0:
            self.epoch += 1
        return answer

    def fetch(self, version=2, **more):
        """Returns the acquired records as (first, last, deliveries), and the values of the answer's records."""
        self.ask(version, **more)
        answer = self.told(version)
        assert answer.error_code == E.NONE, E(answer.error_code)
        acquired, values = [], {}
        for topic in answer.responses:
            for p in topic.partitions:
                assert p.error_code == E.NONE, E(p.error_code)
                self.ack_error = p.acknowledge_error_code
                acquired += [(a.first_offset, a.last_offset, a.delivery_count) for a in p.acquired_records]
                data, pos = bytes(p.records or b""), 0
                while pos < len(data):
                    values |= {r.offset: r.value for r in decode_records(data, pos)}
                    pos += 12 + int.from_bytes(data[pos + 8 : pos + 12])
        return acquired, values

    def acknowledge(self, *acks, version=2, **more):
        batches = [
            AcknowledgementBatch(first_offset=f, last_offset=t, acknowledge_types=list(types))
            for f, t, types in acks
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        answer = self.request(
            ShareAcknowledgeRequest(
                group_id=self.group, member_id=self.member, share_session_epoch=self.epoch,
                topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])] if acks else [], **more,
            ),
            version,
        )  # fmt: skip
        if answer.error_code != E.NONE:
            return E(answer.error_code)
        self.epoch += 1
        errors = [p.error_code for t in answer.responses for p in t.partitions]
        return E(errors[0]) if errors else E.NONE

    def produce(self, *values):
        batch = encode_batch([Record(timestamp=1, value=value) for value in values])
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))]
        )
        answer = self.request(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), 9)
        [done] = answer.responses[0].partition_responses
        assert done.error_code == E.NONE
        return done.base_offset

    def start(self):
        [group] = self.request(
            DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=None)]
            ),
            1,
        ).groups
        [partition] = [p for t in group.topics for p in t.partitions if p.partition_index == 0]
        return partition.start_offset, partition.lag
