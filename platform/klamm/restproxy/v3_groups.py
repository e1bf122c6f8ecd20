"""v3: consumer groups, their members and lags. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Group, Member, committed, describe_group, list_groups
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import log_ends
from klamm.restproxy import v3_shapes as shapes
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.v3 import asking
from klamm.restproxy.v3_shapes import Json, Links
from klamm.web.callers import demand
from klamm.web.endpoint import Access
from klamm.web.http import json_response


async def _described(admin: Admin, name: str) -> Group:
    found = await describe_group(admin, name)
    if found.state.upper() == "DEAD":
        raise ProxyError(404, f"Consumer Group {name} cannot be found.")
    return found


async def list_consumer_groups(request: web.Request) -> web.Response:
    """List the consumer groups."""
    async with asking(request) as (admin, links):
        names = [each.group for each in await list_groups(admin)]
        found = await admin.each(names, lambda name: describe_group(admin, name))
    shown = [shapes.group(links, each) for each in found if not isinstance(each, AdminError)]
    return json_response(links.listed("KafkaConsumerGroup", shown, "consumer-groups"))


async def get_consumer_group(request: web.Request) -> web.Response:
    """Show a consumer group."""
    async with asking(request) as (admin, links):
        return json_response(shapes.group(links, await _described(admin, request.match_info["group"])))


async def list_consumers(request: web.Request) -> web.Response:
    """List the members of a consumer group."""
    name = request.match_info["group"]
    async with asking(request) as (admin, links):
        found = await _described(admin, name)
    shown = (shapes.consumer(links, name, each) for each in found.members)
    return json_response(links.listed("KafkaConsumer", shown, "consumer-groups", name, "consumers"))


def _member(group: Group, id: str) -> Member:
    found = next((each for each in group.members if each.id == id), None)
    if found is None:
        raise ProxyError(404, f"Consumer {id} cannot be found.")
    return found


async def get_consumer(request: web.Request) -> web.Response:
    """Show a member of a consumer group."""
    name = request.match_info["group"]
    async with asking(request) as (admin, links):
        found = _member(await _described(admin, name), request.match_info["consumer"])
    return json_response(shapes.consumer(links, name, found))


async def list_assignments(request: web.Request) -> web.Response:
    """List the partitions of a member of a consumer group."""
    name, member = request.match_info["group"], request.match_info["consumer"]
    async with asking(request) as (admin, links):
        found = _member(await _described(admin, name), member)
    shown = (shapes.assignment(links, name, member, tp.topic, tp.partition) for tp in found.assignment)
    path = ("consumer-groups", name, "consumers", member, "assignments")
    return json_response(links.listed("KafkaConsumerAssignment", shown, *path))


async def get_assignment(request: web.Request) -> web.Response:
    """Show a partition of a member of a consumer group."""
    path = request.match_info
    name, member = path["group"], path["consumer"]
    demand(request, Access.VIEW, None)  # a group's partition, not the topic's
    place = TopicPartition(path["topic"], int(path["partition"]))
    async with asking(request) as (admin, links):
        found = _member(await _described(admin, name), member)
    if place not in found.assignment:
        raise ProxyError(404, f"Consumer {member} does not read {place.topic}-{place.partition}.")
    return json_response(shapes.assignment(links, name, member, *place))


async def _lags(admin: Admin, name: str) -> list[Json]:
    """Returns the lag of every partition that has a committed offset."""
    group = await _described(admin, name)
    offsets = await committed(admin, name)
    ends = await log_ends(admin, list(offsets))
    owners = {tp: member for member in group.members for tp in member.assignment}
    return [_lag(name, tp, offsets[tp].offset, ends.get(tp), owners.get(tp)) for tp in sorted(offsets)]


def _lag(name: str, tp: TopicPartition, offset: int, end: int | None, owner: Member | None) -> Json:
    return {
        "consumer_group_id": name,
        "topic_name": tp.topic,
        "partition_id": tp.partition,
        "consumer_id": owner.id if owner else "",
        "instance_id": owner.instance_id if owner else None,
        "client_id": owner.client_id if owner else "",
        "current_offset": offset,
        "log_end_offset": offset if end is None else end,
        "lag": 0 if end is None else max(0, end - offset),
    }


def _lag_resource(links: Links, name: str, fields: dict[str, Any]) -> Json:
    topic, number = fields["topic_name"], fields["partition_id"]
    path = ("consumer-groups", name, "lags", topic, "partitions", number)
    names = {"consumer-group": name, "lag": topic, "partition": number}
    return links.resource("KafkaConsumerLag", names, path, fields)


async def list_lags(request: web.Request) -> web.Response:
    """List the lags of a consumer group."""
    name = request.match_info["group"]
    async with asking(request) as (admin, links):
        found = await _lags(admin, name)
    shown = (_lag_resource(links, name, each) for each in found)
    return json_response(links.listed("KafkaConsumerLag", shown, "consumer-groups", name, "lags"))


async def get_lag(request: web.Request) -> web.Response:
    """Show the lag of a consumer group in a partition."""
    path = request.match_info
    name, topic, number = path["group"], path["topic"], int(path["partition"])
    demand(request, Access.VIEW, None)
    async with asking(request) as (admin, links):
        lags = await _lags(admin, name)
    found = next((x for x in lags if x["topic_name"] == topic and x["partition_id"] == number), None)
    if found is None:
        raise ProxyError(404, f"Consumer group {name} has no offset in {topic}-{number}.")
    return json_response(_lag_resource(links, name, found))


async def get_lag_summary(request: web.Request) -> web.Response:
    """Show the largest lag of a consumer group, and the sum of all."""
    name = request.match_info["group"]
    async with asking(request) as (admin, links):
        lags = await _lags(admin, name)
    if not lags:
        raise ProxyError(404, f"Consumer group {name} has no committed offsets.")
    most = max(lags, key=lambda each: each["lag"])
    fields = {
        "consumer_group_id": name,
        **{f"max_lag_{key}": most[key] for key in ("consumer_id", "instance_id", "client_id", "topic_name", "partition_id")},
        "max_lag": most["lag"],
        "total_lag": sum(each["lag"] for each in lags),
        "max_lag_consumer": links.related("consumer-groups", name, "consumers", most["consumer_id"]),
        "max_lag_partition": links.related("topics", most["topic_name"], "partitions", most["partition_id"]),
    }  # fmt: skip
    path = ("consumer-groups", name, "lag-summary")
    return json_response(
        links.resource(
            "KafkaConsumerGroupLagSummary", {"consumer-group": name, "lag-summary": ""}, path, fields
        )
    )
