"""POST /connectors/{connector}/dry-run: takes sample records through converters and transforms, and shows
each step.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from klamm.connect.errors import BadRequest
from klamm.connect.rest.foreign_code import refuse_foreign_code
from klamm.connect.rest.keys import SERVICE
from klamm.connect.service.redaction import unhide
from klamm.web.callers import demand
from klamm.web.endpoint import Access
from klamm.web.http import as_config, json_kind, json_response, read_json

RECORDS_MAX: Final = 100
_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "topic": (str,),
    "partition": (int,),
    "offset": (int,),
    "timestamp": (int,),
    "key": (object,),
    "value": (object,),
    "key_schema": (object,),
    "value_schema": (object,),
    "headers": (dict,),
}


async def dry_run(request: web.Request) -> web.Response:
    """Send sample records through a connector's converters, transforms and predicates, and show each step.

    Nothing is read or written. With `config`, that configuration is tried, and the connector need not exist.
    """
    body = await read_json(request)
    if not isinstance(body, dict):
        raise BadRequest(f'The body must be {{"records": [...]}}, not {json_kind(body)}')
    if unknown := body.keys() - {"records", "config"}:
        raise BadRequest(f"Unrecognized field {min(unknown)!r}; a dry run has: records, config")
    records = _records(body.get("records"))
    name, service = request.match_info["connector"], request.app[SERVICE]
    if body.get("config") is not None:
        demand(request, Access.ADMINISTER, name)
        stored = service.runtime.configs.config(name) or {}
        given = unhide(as_config(body["config"], 'Field "config"'), stored)
        config = {key: value for key, value in given.items() if value is not None}
        await refuse_foreign_code(request, config)
    else:
        config = service.config(name)
    return json_response(await service.dry_run(name, config, records))


def _records(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise BadRequest(
            f'Field "records" must be a list of records such as {{"value": ...}}, not {json_kind(value)}'
        )
    if len(value) > RECORDS_MAX:
        raise BadRequest(f'Field "records" has {len(value)} records; at most {RECORDS_MAX} are tried at once')
    for index, record in enumerate(value):
        _check(f"records[{index}]", record)
    return value


def _check(where: str, record: Any) -> None:
    if not isinstance(record, dict):
        raise BadRequest(f"{where} must be an object, not {json_kind(record)}")
    for key, value in record.items():
        kinds = _FIELDS.get(key)
        if kinds is None:
            raise BadRequest(f"{where} has an unrecognized field {key!r}; a record has: {', '.join(_FIELDS)}")
        if value is not None and (
            not isinstance(value, kinds) or (kinds == (int,) and isinstance(value, bool))
        ):
            wanted = {str: "a string", int: "an integer", dict: "an object"}[kinds[0]]
            raise BadRequest(f"{where}.{key} must be {wanted}, not {json_kind(value)}")
