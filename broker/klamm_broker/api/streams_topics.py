"""Makes the internal topics of Streams applications (repartition and changelog), as CreateTopics would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_broker.api.api_19_create_topics import creation
from klamm_broker.api.registry import RequestContext
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.streams.model import NewTopic
    from klamm_broker.server.state import BrokerState

_SHOWN_MAX: Final = 3


def unauthorized(ctx: RequestContext, wanted: Sequence[NewTopic]) -> list[str]:
    """Returns the topics that the sender may not create."""
    if ctx.may_cluster(AclOperation.CREATE, tell=False):
        return []
    return [t.name for t in wanted if not ctx.may(AclOperation.CREATE, ResourceType.TOPIC, t.name)]


def make(broker: BrokerState, ctx: RequestContext, wanted: Sequence[NewTopic], pause_ms: int) -> str:
    """Begin to make topics, with the rights of the sender. Returns why some could not be made within the last `pause_ms`; they are not tried again meanwhile."""
    known, now_ms = broker.groups.internal_topics, broker.mono_ms()
    names = [topic.name for topic in wanted]
    failed = known.errors(names, now_ms)
    begun = known.begin(names, now_ms)
    if begun:
        request = CreateTopicsRequest(topics=[_creatable(t) for t in wanted if t.name in begun])

        def done(response: CreateTopicsResponse) -> None:
            errors = {t.name: t.error_message or "" for t in response.topics if t.error_code}
            known.end(begun, errors, broker.mono_ms() + pause_ms)

        result = broker.topic_changes.run(creation(broker, ctx, request), creates=list(begun))
        when_done(broker.loop, result, done)
    return _summary(failed)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _summary(failed: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name} ({why})" for name, why in list(failed.items())[:_SHOWN_MAX])
    more = len(failed) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
