"""Settings of topics, brokers, their loggers, groups and client metrics: DescribeConfigs (32),
IncrementalAlterConfigs (44).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from klamm.admin.client import Admin, passing
from klamm.admin.errors import AdminError
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.list_config_resources import ListConfigResourcesRequest


class Resource(IntEnum):
    """Kinds of things that have settings, as the protocol numbers them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Sources of values, by the protocol's number."""
DEFAULT: Final = "DEFAULT_CONFIG"
_OWN: Final = 1
"""The number of a topic's own settings among `SOURCES`."""
_AT_ONCE: Final = 100
"""Topics of a request."""
_SET: Final = 0
_DELETE: Final = 1
_SELF_ANSWERED: Final = (Resource.BROKER, Resource.BROKER_LOGGER)  # that broker alone knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A value of lower rank, which would count without the synonyms before it."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A setting. The value of a sensitive setting is None: brokers do not tell it."""

    name: str
    value: str | None
    source: str
    sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]
    documentation: str = ""


async def describe_config(
    admin: Admin,
    resource: Resource,
    name: str,
    *,
    keys: Collection[str] | None = None,
    documentation: bool = False,
) -> list[Entry]:
    """Return the settings of one thing, in the order that the broker told; with `documentation`, what they mean as well.

    Raises AdminError.
    """
    asked = DescribeConfigsResource(
        resource_type=int(resource),
        resource_name=name,
        configuration_keys=None if keys is None else sorted(keys),
    )
    request = DescribeConfigsRequest(
        resources=[asked], include_synonyms=True, include_documentation=documentation
    )

    async def attempt() -> list[Entry]:
        if resource in _SELF_ANSWERED and name:
            answer = await admin.ask_broker(int(name), request)
        else:
            answer = await admin.ask(request)
        found = answer.results[0]
        if found.error_code:
            raise _refused(found)
        return [_entry(c) for c in found.configs]

    return await admin.patiently(attempt)


async def topic_overrides(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, str] | AdminError]:
    """Return topics' own settings, or why they are not told; many topics a request. Values of sensitive ones are left out."""

    async def some(part: Sequence[str]) -> list[DescribeConfigsResult]:
        asked = [
            DescribeConfigsResource(
                resource_type=int(Resource.TOPIC), resource_name=n, configuration_keys=None
            )
            for n in part
        ]
        request = DescribeConfigsRequest(resources=asked)

        async def attempt() -> list[DescribeConfigsResult]:
            results: list[DescribeConfigsResult] = (await admin.ask(request)).results
            for found in results:
                if passing(found.error_code):
                    raise _refused(found)
            return results

        return await admin.patiently(attempt)

    result: dict[str, dict[str, str] | AdminError] = {}
    parts = [names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)]
    for part, found in zip(parts, await admin.each(parts, some), strict=True):
        if isinstance(found, AdminError):
            result |= dict.fromkeys(part, found)
            continue
        result |= {
            each.resource_name: _refused(each) if each.error_code else {
                c.name: c.value for c in each.configs if c.config_source == _OWN and c.value is not None
            }
            for each in found
        }  # fmt: skip
    return result


def _refused(found: DescribeConfigsResult) -> AdminError:
    title = _title(Resource(found.resource_type), found.resource_name)
    return AdminError(found.error_code, f"cannot describe {title}", found.error_message)


async def alter_config(
    admin: Admin,
    resource: Resource,
    name: str,
    *,
    put: Mapping[str, str],
    delete: Sequence[str],
    validate_only: bool = False,
) -> None:
    """Set and delete settings at once, or only have them checked; a broker refuses all or none. Raises AdminError."""
    changes = [AlterableConfig(name=k, config_operation=_DELETE, value="") for k in delete]
    changes += [AlterableConfig(name=k, config_operation=_SET, value=v) for k, v in put.items()]
    wanted = AlterConfigsResource(resource_type=int(resource), resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)

    async def attempt() -> None:
        if resource in _SELF_ANSWERED and name:
            answer = await admin.ask_broker(int(name), request)
        else:
            answer = await admin.ask(request)
        found = answer.responses[0]
        if found.error_code:
            raise AdminError(found.error_code, f"cannot alter {_title(resource, name)}", found.error_message)

    await admin.patiently(attempt)


async def list_resources(admin: Admin, resource: Resource) -> list[str] | None:
    """Return names of the groups or client metrics that have settings (74); None where the broker cannot say."""
    try:
        answer = await admin.ask(ListConfigResourcesRequest(resource_types=[int(resource)]))
    except UnsupportedApi:
        return None
    if answer.error_code:
        raise AdminError(answer.error_code, f"cannot list {resource.name.lower()} resources")
    return sorted(
        r.resource_name
        for r in answer.config_resources
        if getattr(r, "resource_type", int(resource)) == int(resource)
    )


def _title(resource: Resource, name: str) -> str:
    return f"{resource.name.lower().replace('_', ' ')} {name!r}" if name else "the brokers' default settings"


def _entry(c: DescribeConfigsResourceResult) -> Entry:
    return Entry(
        name=c.name,
        value=c.value,
        source=SOURCES.get(c.config_source, "UNKNOWN"),
        sensitive=c.is_sensitive,
        read_only=c.read_only,
        synonyms=tuple(
            Synonym(name=s.name, value=s.value, source=SOURCES.get(s.source, "UNKNOWN")) for s in c.synonyms
        ),
        documentation=c.documentation or "",
    )
