"""Copies are deleted only where every broker of the source says that the topic is gone. Pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from klamm_kafka.client import AuthenticationFailed, ClientError, ConnectionLost
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from klamm_mirror.topics.target import Topics

NONE, UNKNOWN, DENIED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
COPY = b"the copy's id 16"


class Source:
    """A cluster whose brokers say different things: a code, or an error that the connection raises."""

    def __init__(self, said: list[ErrorCode | ClientError]) -> None:
        self._said = said

    async def refresh(self, _: Any) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=node, host="h", port=1) for node in range(len(self._said))]
        return MetadataResponse(brokers=brokers)

    async def broker(self, node: int) -> Any:
        said = self._said[node]
        if isinstance(said, ClientError):
            raise said

        async def request(message: MetadataRequest) -> MetadataResponse:
            assert not message.allow_auto_topic_creation
            found = [MetadataResponseTopic(name=t.name, error_code=said) for t in message.topics]
            return MetadataResponse(topics=found)

        return SimpleNamespace(request=request)


class Target:
    """A cluster that has the copy."""

    def __init__(self) -> None:
        self.deleted: list[bytes] = []
        self.metadata = SimpleNamespace(controller_id=1)

    async def refresh(self, _: Any) -> MetadataResponse:
        return MetadataResponse(topics=[MetadataResponseTopic(name="A.t", topic_id=COPY, error_code=0)])

    async def broker(self, _: int) -> Any:
        async def request(message: Any, **more: Any) -> Any:
            self.deleted += [topic.topic_id for topic in message.topics]
            return SimpleNamespace(responses=[])

        return SimpleNamespace(request=request)


def topics(said: list[ErrorCode | ClientError]) -> tuple[Topics, Target]:
    plugins = SimpleNamespace(policy=SimpleNamespace(), wants_topic=None, configs=None)
    parsed, target = {"source.cluster.alias": "A", "admin.timeout.ms": 1000}, Target()
    return Topics(parsed, plugins, Source(said), target, {"t": "A.t"}), target  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "deleted"),
    [
        ([UNKNOWN], [COPY]),
        ([UNKNOWN, UNKNOWN, UNKNOWN], [COPY]),
        ([UNKNOWN, NONE, UNKNOWN], []),
        ([UNKNOWN, DENIED], []),
        ([UNKNOWN, ConnectionLost("it is away")], []),
    ],
)
async def test_a_copy_is_deleted_once_no_broker_knows_its_topic(said, deleted):
    found, target = topics(said)
    assert await found.delete(["t"], {"t": COPY}) == []
    assert target.deleted == deleted


@pytest.mark.parametrize("made", [{}, {"t": b"a former copy 16"}])
async def test_a_topic_that_the_flow_did_not_make_stays(made):
    found, target = topics([UNKNOWN])
    assert await found.delete(["t"], made) == ["A.t"]
    assert not target.deleted


async def test_a_source_that_refuses_us_ends_the_look():
    found, target = topics([UNKNOWN, AuthenticationFailed("no")])
    with pytest.raises(AuthenticationFailed):
        await found.delete(["t"], {"t": COPY})
    assert not target.deleted
