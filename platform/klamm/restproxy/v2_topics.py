"""v2: topics and partitions. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.configs import Resource, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.admin.topics import Partition, Topic, describe_topics, list_topics
from klamm.restproxy import requests
from klamm.restproxy.context import PROXY, answer
from klamm.restproxy.errors import partition_not_found, topic_not_found
from klamm.web.callers import may_view
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

_NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


async def _topic(admin: Admin, name: str) -> Topic:
    try:
        return (await describe_topics(admin, [name]))[0]
    except AdminError as e:
        if e.code in _NO_TOPIC:
            raise topic_not_found() from None
        raise


def _shown(partition: Partition) -> dict[str, Any]:
    leader = -1 if partition.leader is None else partition.leader
    replicas = [
        {"broker": each, "leader": each == leader, "in_sync": each in partition.isr}
        for each in partition.replicas
    ]
    return {"partition": partition.number, "leader": leader, "replicas": replicas}


async def list_names(request: web.Request) -> web.Response:
    """List the topics' names."""
    async with request.app[PROXY].admin() as admin:
        found = await list_topics(admin)
    return answer(sorted(each.name for each in found if may_view(request, each.name)))


async def get_topic_v2(request: web.Request) -> web.Response:
    """Show a topic with its settings and partitions."""
    name = request.match_info["topic"]
    async with request.app[PROXY].admin() as admin:
        topic = await _topic(admin, name)
        configs = await describe_config(admin, Resource.TOPIC, name)
    shown = {each.name: each.value for each in configs}
    return answer({"name": name, "configs": shown, "partitions": [_shown(p) for p in topic.partitions]})


async def list_partitions_v2(request: web.Request) -> web.Response:
    """List the partitions of a topic."""
    async with request.app[PROXY].admin() as admin:
        topic = await _topic(admin, request.match_info["topic"])
    return answer([_shown(each) for each in topic.partitions])


async def _partition(admin: Admin, request: web.Request) -> Partition:
    topic = await _topic(admin, request.match_info["topic"])
    number = requests.partition_of(request)
    found = next((each for each in topic.partitions if each.number == number), None)
    if found is None:
        raise partition_not_found()
    return found


async def get_partition_v2(request: web.Request) -> web.Response:
    """Show a partition of a topic."""
    async with request.app[PROXY].admin() as admin:
        return answer(_shown(await _partition(admin, request)))


async def get_offsets(request: web.Request) -> web.Response:
    """Show the first and the next offset of a partition."""
    async with request.app[PROXY].admin() as admin:
        place = TopicPartition(request.match_info["topic"], (await _partition(admin, request)).number)
        first = (await known_offsets(admin, [place], EARLIEST))[place]
        end = (await known_offsets(admin, [place], LATEST))[place]
    return answer({"beginning_offset": first, "end_offset": end})
