"""v3: replicas of a broker, offsets of a partition, and reassignments. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.nodes import describe_cluster
from klamm.admin.offsets import known_offsets
from klamm.admin.topics import Topic, list_topics, reassignments
from klamm.restproxy import requests
from klamm.restproxy import v3_shapes as shapes
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.v3 import asked_partition, asked_topic, asking, known_broker
from klamm.restproxy.v3_shapes import Json, Links
from klamm.web.http import json_response
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

_OFFSETS: Final = {
    "earliest": ("earliest",),
    "latest": ("latest",),
    "earliest_and_latest": ("earliest", "latest"),
}
_TIMES: Final = {"earliest": EARLIEST, "latest": LATEST}


async def list_replicas_of_broker(request: web.Request) -> web.Response:
    """List the replicas of a broker."""
    async with asking(request) as (admin, links):
        broker = known_broker(request, await describe_cluster(admin))
        topics = await list_topics(admin)
    shown = [
        shapes.replica(links, topic.name, each, broker.id)
        for topic in topics
        for each in topic.partitions
        if broker.id in each.replicas
    ]
    return json_response(links.listed("KafkaReplica", shown, "brokers", broker.id, "partition-replicas"))


async def get_partition_offsets(request: web.Request) -> web.Response:
    """Show the first and the next offset of a partition, or (`offset_type`) one of them."""
    wanted = request.query.get("offset_type", "earliest_and_latest").lower()
    if wanted not in _OFFSETS:
        raise ProxyError(400, f"offset_type must be one of {', '.join(_OFFSETS)}, not {wanted:.40}")
    name = request.match_info["topic"]
    async with asking(request) as (admin, links):
        place = TopicPartition(name, (await asked_partition(admin, request)).number)
        found = {
            each: (await known_offsets(admin, [place], _TIMES[each]))[place] for each in _OFFSETS[wanted]
        }
    return json_response(shapes.offsets(links, name, place.partition, wanted, found))


async def _moving(admin: Admin, links: Links, topics: list[Topic]) -> list[Json]:
    found = await reassignments(admin, topics)
    return [shapes.reassignment(links, tp.topic, tp.partition, *found[tp]) for tp in sorted(found)]


async def list_reassignments(request: web.Request) -> web.Response:
    """List the partitions whose replicas are being moved."""
    async with asking(request) as (admin, links):
        shown = await _moving(admin, links, await list_topics(admin))
    path = ("topics", "-", "partitions", "-", "reassignment")
    return json_response(links.listed("KafkaReassignment", shown, *path))


async def list_reassignments_of_topic(request: web.Request) -> web.Response:
    """List the partitions of a topic whose replicas are being moved."""
    async with asking(request) as (admin, links):
        topic = await asked_topic(admin, request)
        shown = await _moving(admin, links, [topic])
    path = ("topics", topic.name, "partitions", "-", "reassignment")
    return json_response(links.listed("KafkaReassignment", shown, *path))


async def get_reassignment(request: web.Request) -> web.Response:
    """Show how the replicas of a partition are being moved."""
    number = requests.partition_of(request)
    async with asking(request) as (admin, links):
        topic = await asked_topic(admin, request)
        shown = await _moving(admin, links, [topic])
    found = next((each for each in shown if each["partition_id"] == number), None)
    if found is None:
        raise ProxyError(404, f"Partition {topic.name}-{number} is not being reassigned.")
    return json_response(found)
