"""v3: clusters, brokers, topics, partitions and settings. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.nodes import Broker, ClusterFacts, describe_cluster
from klamm.admin.topics import (
    Partition,
    Topic,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    list_topics,
    unknown,
)
from klamm.restproxy import requests
from klamm.restproxy import v3_shapes as shapes
from klamm.restproxy.context import PROXY, address
from klamm.restproxy.errors import ProxyError, unprocessable
from klamm.restproxy.v3_shapes import Links
from klamm.web.callers import demand, may_view
from klamm.web.endpoint import Access
from klamm.web.http import empty, json_response

JSON: Final = ("application/json",)
KNOWN_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses before a topic that was made is asked for again."""


def links_of(request: web.Request) -> Links:
    """Returns the links of a request. Raises ProxyError for another cluster's id."""
    own, asked = request.app[PROXY].cluster_id, request.match_info.get("cluster")
    if asked is not None and asked != own:
        raise ProxyError(404, f"Cluster {asked} cannot be found.")
    return Links(address(request), own)


@asynccontextmanager
async def asking(request: web.Request) -> AsyncIterator[tuple[Admin, Links]]:
    """Gives a client and links for one request. Raises ProxyError for another cluster's id."""
    links = links_of(request)
    async with request.app[PROXY].admin() as admin:
        yield admin, links


# ---- clusters and brokers


async def _facts(request: web.Request) -> tuple[ClusterFacts, Links]:
    async with asking(request) as (admin, links):
        return await describe_cluster(admin), links


async def list_clusters(request: web.Request) -> web.Response:
    """List the clusters: the one that this proxy stands before."""
    facts, links = await _facts(request)
    return json_response(links.listed("KafkaCluster", [shapes.cluster(links, facts)], above=True))


async def get_cluster(request: web.Request) -> web.Response:
    """Show the cluster."""
    facts, links = await _facts(request)
    return json_response(shapes.cluster(links, facts))


async def list_brokers(request: web.Request) -> web.Response:
    """List the brokers."""
    facts, links = await _facts(request)
    return json_response(
        links.listed("KafkaBroker", (shapes.broker(links, each) for each in facts.brokers), "brokers")
    )


def known_broker(request: web.Request, facts: ClusterFacts) -> Broker:
    number = int(request.match_info["broker"])
    found = next((each for each in facts.brokers if each.id == number), None)
    if found is None:
        raise ProxyError(404, f"Broker {number} cannot be found.")
    return found


async def get_broker(request: web.Request) -> web.Response:
    """Show a broker."""
    facts, links = await _facts(request)
    return json_response(shapes.broker(links, known_broker(request, facts)))


# ---- topics


async def list_topics_v3(request: web.Request) -> web.Response:
    """List the topics."""
    async with asking(request) as (admin, links):
        found = await list_topics(admin)
    shown = [shapes.topic(links, each) for each in found if may_view(request, each.name)]
    return json_response(links.listed("KafkaTopic", shown, "topics"))


async def asked_topic(admin: Admin, request: web.Request) -> Topic:
    return (await describe_topics(admin, [request.match_info["topic"]]))[0]


async def get_topic(request: web.Request) -> web.Response:
    """Show a topic."""
    async with asking(request) as (admin, links):
        return json_response(shapes.topic(links, await asked_topic(admin, request)))


async def _made_topic(admin: Admin, name: str) -> Topic:
    """Returns a topic that was just made: a broker may hear of it a moment later than the controller."""
    for pause in KNOWN_S:
        try:
            return (await describe_topics(admin, [name]))[0]
        except AdminError as e:
            if not unknown(e):
                raise
        await asyncio.sleep(pause)
    return (await describe_topics(admin, [name]))[0]


async def create_topic_v3(request: web.Request) -> web.Response:
    """Create a topic."""
    links = links_of(request)
    fields = ("topic_name", "partitions_count", "replication_factor", "replicas_assignments", "configs")
    body = requests.known(await requests.read_object(request, JSON), fields)
    name = requests.text(body, "topic_name")
    if not name:
        raise unprocessable("topic_name is needed")
    demand(request, Access.ADMINISTER, name)
    configs = {}
    for each in requests.listed(body, "configs") if body.get("configs") is not None else ():
        key, value = requests.text(each, "name"), requests.text(each, "value")
        if not key:
            raise unprocessable("each of configs needs a name")
        if value is not None:
            configs[key] = value
    async with request.app[PROXY].admin() as admin:
        await create_topic(
            admin,
            name,
            partitions=requests.whole(body, "partitions_count", low=1) or -1,
            replication_factor=requests.whole(body, "replication_factor", low=1, high=2**15 - 1) or -1,
            assignment=_assignment(body),
            configs=configs,
        )
        topic = await _made_topic(admin, name)
    return json_response(shapes.topic(links, topic), 201, {"Location": links.to("topics", name)})


def _assignment(body: Mapping[str, Any]) -> dict[int, list[int]] | None:
    if body.get("replicas_assignments") is None:
        return None
    found = {}
    for each in requests.listed(body, "replicas_assignments"):
        number, brokers = requests.whole(each, "partition_id"), each.get("broker_ids")
        if number is None or not isinstance(brokers, list) or not all(_is_id(b) for b in brokers):
            raise unprocessable("each of replicas_assignments needs partition_id and broker_ids")
        found[number] = brokers
    return found


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= requests.INT_MAX


async def update_topic(request: web.Request) -> web.Response:
    """Enlarge a topic to so many partitions."""
    body = requests.known(await requests.read_object(request, JSON), ("partitions_count",))
    count = requests.whole(body, "partitions_count", low=1)
    if count is None:
        raise unprocessable("partitions_count is needed")
    async with asking(request) as (admin, links):
        await create_partitions(admin, {request.match_info["topic"]: count})
        return json_response(shapes.topic(links, await asked_topic(admin, request)))


async def delete_topic(request: web.Request) -> web.Response:
    """Delete a topic."""
    async with asking(request) as (admin, _):
        await delete_topics(admin, [request.match_info["topic"]])
    return empty(204)


async def list_partitions(request: web.Request) -> web.Response:
    """List the partitions of a topic."""
    async with asking(request) as (admin, links):
        found = await asked_topic(admin, request)
    shown = (shapes.partition(links, found.name, each) for each in found.partitions)
    return json_response(links.listed("KafkaPartition", shown, "topics", found.name, "partitions"))


async def asked_partition(admin: Admin, request: web.Request) -> Partition:
    number = requests.partition_of(request)
    topic = await asked_topic(admin, request)
    found = next((each for each in topic.partitions if each.number == number), None)
    if found is None:
        raise ProxyError(404, f"Partition {number} cannot be found.")
    return found


async def get_partition(request: web.Request) -> web.Response:
    """Show a partition of a topic."""
    async with asking(request) as (admin, links):
        found = await asked_partition(admin, request)
    return json_response(shapes.partition(links, request.match_info["topic"], found))


async def list_replicas(request: web.Request) -> web.Response:
    """List the replicas of a partition."""
    name = request.match_info["topic"]
    async with asking(request) as (admin, links):
        found = await asked_partition(admin, request)
    shown = (shapes.replica(links, name, found, each) for each in found.replicas)
    path = ("topics", name, "partitions", found.number, "replicas")
    return json_response(links.listed("KafkaReplica", shown, *path))


async def get_replica(request: web.Request) -> web.Response:
    """Show a replica of a partition."""
    name, broker = request.match_info["topic"], int(request.match_info["broker"])
    async with asking(request) as (admin, links):
        found = await asked_partition(admin, request)
    if broker not in found.replicas:
        raise ProxyError(404, f"Replica {broker} cannot be found.")
    return json_response(shapes.replica(links, name, found, broker))
