"""v3: settings of a topic, a broker, all brokers and several topics. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.configs import Entry, Resource, alter_config, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.nodes import describe_cluster
from klamm.admin.topics import list_topics
from klamm.restproxy import requests
from klamm.restproxy import v3_shapes as shapes
from klamm.restproxy.errors import ProxyError, of_cluster, unprocessable
from klamm.restproxy.v3 import JSON, asking, known_broker, links_of
from klamm.web.callers import demand, may_view
from klamm.web.endpoint import Access
from klamm.web.http import empty, json_response

_OPERATIONS: Final = ("SET", "DELETE")
_PATHS: Final = {"topic": "topics", "broker": "brokers"}


class _Of:
    """The thing in a request's path that has settings: a topic, a broker, or (neither) all brokers."""

    def __init__(self, request: web.Request) -> None:
        path = request.match_info
        self.word = next((each for each in _PATHS if each in path), "cluster")
        self.resource = Resource.TOPIC if self.word == "topic" else Resource.BROKER
        self.name = path.get(self.word, "") if self.word in _PATHS else ""

    def __str__(self) -> str:
        return f"{self.word} {self.name}" if self.name else "the brokers"

    async def entries(self, admin: Admin, request: web.Request) -> list[Entry]:
        if self.word == "broker":
            known_broker(request, await describe_cluster(admin))
        return await describe_config(admin, self.resource, self.name)

    def place(self) -> shapes.ConfigPlace:
        if self.word == "cluster":
            return shapes.ALL_BROKERS
        return shapes.config_place(self.word, self.name if self.word == "topic" else int(self.name))


async def list_configs(request: web.Request) -> web.Response:
    """List the settings of a topic."""
    of = _Of(request)
    async with asking(request) as (admin, links):
        found = await of.entries(admin, request)
    place = of.place()
    shown = (shapes.config(links, place, each) for each in found)
    return json_response(links.listed(place.kind, shown, *place.path))


async def list_broker_configs(request: web.Request) -> web.Response:
    """List the settings of a broker."""
    return await list_configs(request)


async def list_cluster_configs(request: web.Request) -> web.Response:
    """List the settings that hold for all brokers, as they were set while they run."""
    return await list_configs(request)


async def list_all_topics_configs(request: web.Request) -> web.Response:
    """List the settings of all topics that the caller may see."""
    async with asking(request) as (admin, links):
        names = [each.name for each in await list_topics(admin) if may_view(request, each.name)]
        found = await admin.each(names, lambda name: describe_config(admin, Resource.TOPIC, name))
    shown = [
        shapes.config(links, shapes.config_place("topic", name), entry)
        for name, entries in zip(names, found, strict=True)
        if not isinstance(entries, AdminError)  # it was deleted meanwhile
        for entry in entries
    ]
    return json_response(links.listed("KafkaTopicConfig", shown, "topics", "-", "configs"))


async def list_all_brokers_configs(request: web.Request) -> web.Response:
    """List the settings of all brokers."""
    async with asking(request) as (admin, links):
        brokers = (await describe_cluster(admin)).brokers
        found = [await describe_config(admin, Resource.BROKER, str(each.id)) for each in brokers]
    shown = [
        shapes.config(links, shapes.config_place("broker", each.id), entry)
        for each, entries in zip(brokers, found, strict=True)
        for entry in entries
    ]
    return json_response(links.listed("KafkaBrokerConfig", shown, "brokers", "-", "configs"))


async def get_config(request: web.Request) -> web.Response:
    """Show a setting of a topic."""
    of, name = _Of(request), request.match_info["name"]
    async with asking(request) as (admin, links):
        found = await of.entries(admin, request)
    entry = next((each for each in found if each.name == name), None)
    if entry is None:
        raise ProxyError(404, f"Config {name} cannot be found for {of}.")
    return json_response(shapes.config(links, of.place(), entry))


async def get_broker_config(request: web.Request) -> web.Response:
    """Show a setting of a broker."""
    return await get_config(request)


async def get_cluster_config(request: web.Request) -> web.Response:
    """Show a setting that holds for all brokers."""
    return await get_config(request)


async def put_config(request: web.Request) -> web.Response:
    """Change a setting of a topic."""
    of = _Of(request)
    body = requests.known(await requests.read_object(request, JSON), ("value",))
    value = requests.text(body, "value")
    if value is None:
        raise unprocessable("value is needed; DELETE takes a setting back")
    async with asking(request) as (admin, _):
        await alter_config(admin, of.resource, of.name, put={request.match_info["name"]: value}, delete=[])
    return empty(204)


async def put_broker_config(request: web.Request) -> web.Response:
    """Change a setting of a broker."""
    return await put_config(request)


async def put_cluster_config(request: web.Request) -> web.Response:
    """Change a setting of all brokers."""
    return await put_config(request)


async def delete_config(request: web.Request) -> web.Response:
    """Take a setting of a topic back to its default."""
    of = _Of(request)
    async with asking(request) as (admin, _):
        await alter_config(admin, of.resource, of.name, put={}, delete=[request.match_info["name"]])
    return empty(204)


async def delete_broker_config(request: web.Request) -> web.Response:
    """Take a setting of a broker back to its default."""
    return await delete_config(request)


async def delete_cluster_config(request: web.Request) -> web.Response:
    """Take a setting of all brokers back to its default."""
    return await delete_config(request)


def _changes(body: Mapping[str, Any], name: str, where: str = "") -> tuple[dict[str, str], list[str]]:
    """Returns what is set and what is taken back. Raises ProxyError."""
    put: dict[str, str] = {}
    delete = []
    for i, each in enumerate(requests.listed(body, name)):
        place = f"{where}{name}[{i}]"
        requests.known(each, ("name", "value", "operation"), place)
        key, value = requests.text(each, "name"), requests.text(each, "value")
        operation = (requests.text(each, "operation") or "SET").upper()
        if not key or operation not in _OPERATIONS:
            raise unprocessable(f"{place} needs a name, and SET or DELETE as its operation")
        if operation == "DELETE":
            delete.append(key)
        elif value is None:
            raise unprocessable(f"{place}.value is needed for SET")
        else:
            put[key] = value
    return put, delete


def _only_checks(body: Mapping[str, Any]) -> bool:
    found = body.get("validate_only")
    if not isinstance(found, bool | None):
        raise unprocessable(f"validate_only must be true or false, not {found!r:.40}")
    return bool(found)


async def alter_configs(request: web.Request) -> web.Response:
    """Change settings of a topic, all or none."""
    of = _Of(request)
    body = requests.known(await requests.read_object(request, JSON), ("data", "validate_only"))
    put, delete = _changes(body, "data")
    check = _only_checks(body)
    async with asking(request) as (admin, _):
        await alter_config(admin, of.resource, of.name, put=put, delete=delete, validate_only=check)
    return empty(204)


async def alter_broker_configs(request: web.Request) -> web.Response:
    """Change settings of a broker, all or none."""
    return await alter_configs(request)


async def alter_cluster_configs(request: web.Request) -> web.Response:
    """Change settings of all brokers, all or none."""
    return await alter_configs(request)


async def alter_topics_configs(request: web.Request) -> web.Response:
    """Change settings of several topics, each all or none; failures tells of those that were refused."""
    links_of(request)
    body = requests.known(await requests.read_object(request, JSON), ("data", "validate_only"))
    check, wanted = _only_checks(body), {}
    for i, each in enumerate(requests.listed(body, "data")):
        requests.known(each, ("topic_name", "configs"), f"data[{i}]")
        name = requests.text(each, "topic_name")
        if not name or name in wanted:
            raise unprocessable(f"data[{i}] needs a topic_name that no other has")
        demand(request, Access.ADMINISTER, name)
        wanted[name] = _changes(each, "configs", f"data[{i}].")
    failures = []
    async with asking(request) as (admin, _):
        for name, (put, delete) in wanted.items():
            try:
                await alter_config(admin, Resource.TOPIC, name, put=put, delete=delete, validate_only=check)
            except AdminError as e:
                told = of_cluster(e)
                failures.append({"topic_name": name, "error_code": told.code, "message": str(told)})
    return json_response({"failures": failures}, 207)
