"""Requests that change topics, each for several of them."""

from __future__ import annotations

import sys
from typing import TypeVar

from klamm_kafka.wire.messages.alter_configs import AlterConfigsRequest
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

_Alter = TypeVar("_Alter", AlterConfigsRequest, IncrementalAlterConfigsRequest)


def topics(*named: str, partitions: int = 1) -> CreateTopicsRequest:
    """Asks for new topics."""
    made = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in named]
    return CreateTopicsRequest(topics=made)


def alteration(
    key: str, value: str, *names: str, kind: type[_Alter] = IncrementalAlterConfigsRequest
) -> _Alter:
    """Asks for a configuration of topics."""
    module = sys.modules[kind.__module__]
    return kind(
        resources=[
            module.AlterConfigsResource(
                resource_type=2, resource_name=name, configs=[module.AlterableConfig(name=key, value=value)]
            )
            for name in names
        ]
    )


def growth(count: int, *names: str) -> CreatePartitionsRequest:
    """Asks for so many partitions of topics."""
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names]
    )


def deletion(*names: str) -> DeleteTopicsRequest:
    """Asks for the end of topics."""
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
