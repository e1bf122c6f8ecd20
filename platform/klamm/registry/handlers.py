"""The handlers of the registry's API: from HTTP to `service` and back. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from klamm.registry import contracts, deletion, errors, service, subjects
from klamm.registry.compatibility import LEVELS
from klamm.registry.model import AVRO, KINDS, PROTOBUF, Reference, Schema, Version
from klamm.registry.node import Node
from klamm.registry.schemas import Parsed, resolved, serialized
from klamm.registry.service import Registration, Write, Written
from klamm.registry.store import Store
from klamm.web.callers import demand, may_view
from klamm.web.endpoint import Access
from klamm.web.errors import Forbidden
from klamm.web.http import read_json
from klamm_base.version import __version__

NODE: Final = web.AppKey("node", Node)
MUTABLE: Final = web.AppKey("mutable", bool)
"""The key for a flag: modes can be changed."""
TYPE: Final = "application/vnd.schemaregistry.v1+json"
TYPES: Final = (TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream")


def answer(body: Any) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type=TYPE)


def _subject(request: web.Request) -> str:
    return subjects.checked(request.match_info["subject"])


def _permitted(request: web.Request, store: Store, subject: str, access: Access) -> str:
    """Returns a subject after a look whether the caller may do this also to the one for which its name stands. Raises Forbidden."""
    meant = service.aliased(store, subject)
    if meant != subject:
        demand(request, access, meant)
    return subject


def _demand_references(request: web.Request, store: Store, subject: str, given: Registration) -> None:
    """Raises Forbidden unless the caller may view all to which a schema refers: differences and their words tell of that."""
    for each in sorted(service.referred(store, given.schema, subject)):
        demand(request, Access.VIEW, each)


def _viewed(request: web.Request) -> str:
    return _permitted(request, request.app[NODE].store, _subject(request), Access.VIEW)


def _optional_subject(request: web.Request) -> str | None:
    given = request.match_info.get("subject") or None
    if given is None:
        return None
    if subjects.is_context(given):
        return None if given == ":.:" else given
    return subjects.checked(given)


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _number(request: web.Request, name: str, default: int) -> int:
    given = request.query.get(name, "")
    return int(given) if given.lstrip("-").isdecimal() else default


def _page(request: web.Request, found: list[Any]) -> list[Any]:
    start, limit = max(0, _number(request, "offset", 0)), _number(request, "limit", -1)
    return found[start : start + limit if limit > 0 else None]


async def _write(request: web.Request, write: Write) -> Any:
    return await request.app[NODE].write(write)


def _given(request: web.Request, body: Any) -> Registration:
    """Reads a schema that was sent. Raises RegistryError 42201, and 422 for metadata or rules of another form."""
    text = body.get("schema") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(text, str | None):
        raise errors.invalid_schema("Empty schema: the body needs a field schema with a text")
    try:
        references = tuple(
            Reference(name=str(r["name"]), subject=str(r["subject"]), version=int(r["version"]))
            for r in body.get("references") or ()
        )
        number = {key: int(body.get(key) or 0) for key in ("id", "version")}
    except (KeyError, TypeError, ValueError) as e:
        raise errors.invalid_schema(
            f"Invalid schema: references need name, subject and version; ids are numbers ({e!r})"
        ) from None
    if max(number.values()) > service.ID_MAX:
        raise errors.invalid_schema("Invalid schema: id and version must be below 2^31")
    schema = Schema(
        kind=str(body.get("schemaType") or AVRO).upper(),
        text=text or "",
        references=references,
        metadata=contracts.given(body, "metadata"),
        rules=contracts.given(body, "ruleSet"),
    )
    return Registration(
        schema=schema,
        id=number["id"] if number["id"] > 0 else None,
        version=number["version"] if number["version"] > 0 else None,
        normalize=_flag(request, "normalize"),
    )


async def _body(request: web.Request) -> Any:
    return await read_json(request, types=TYPES)


def _formatted(request: web.Request, shown: dict[str, Any], schema: Schema, subject: str) -> dict[str, Any]:
    """Puts a schema into the form of `format`: `serialized` of Protobuf, `resolved` of Avro."""
    form = request.query.get("format", "")
    if (schema.kind, form) in {(PROTOBUF, "serialized"), (AVRO, "resolved")}:
        store = request.app[NODE].store
        for each in sorted(service.referred(store, schema, subject)) if form == "resolved" else ():
            demand(request, Access.VIEW, each)  # its text is in the answer
        tree: Parsed = service.parsed(store, schema, subject)[1]
        shown["schema"] = serialized(tree) if form == "serialized" else resolved(tree)
    return shown


# ---- subjects


async def list_subjects(request: web.Request) -> web.Response:
    """List the subjects."""
    prefix = request.query.get("subjectPrefix", ":*:")
    deleted = _flag(request, "deleted") or _flag(request, "deletedOnly")
    store = request.app[NODE].store
    if prefix.startswith(subjects.ANY):
        plain = prefix.removeprefix(subjects.ANY)
        found = [s for s in store.listed("", deleted=deleted) if subjects.split(s)[1].startswith(plain)]
    else:
        found = list(store.listed(prefix.removeprefix(":.:"), deleted=deleted))
        if not prefix.startswith(":.") or prefix.startswith(":.:"):
            found = [s for s in found if subjects.context_of(s) == subjects.DEFAULT]
    if _flag(request, "deletedOnly"):
        found = [s for s in found if not store.versions(s)]
    return answer(_page(request, [s for s in found if may_view(request, s)]))


async def lookup(request: web.Request) -> web.Response:
    """Find the version of a subject that has this schema."""
    store, subject = request.app[NODE].store, _viewed(request)
    given = _given(request, await _body(request))
    given = Registration(schema=given.schema, normalize=_normalizes(store, subject, given))
    _demand_references(request, store, service.aliased(store, subject), given)
    found = service.lookup(store, subject, given, deleted=_flag(request, "deleted"))
    return answer(_formatted(request, found.shown(), found.schema, found.subject))


def _normalizes(store: Store, subject: str, given: Registration) -> bool:
    meant = service.aliased(store, subject)
    return given.normalize or bool(service.config_of(store, meant).get("normalize"))


async def get_latest_with(request: web.Request) -> web.Response:
    """Show the newest version of a subject whose metadata have some properties: `key` and `value` may come several times."""
    keys, values = (request.query.getall(name, []) for name in ("key", "value"))
    properties = dict(zip(keys, values, strict=False))
    subject = _viewed(request)
    found = service.latest_with(
        request.app[NODE].store, subject, properties, deleted=_flag(request, "deleted")
    )
    return answer(_formatted(request, found.shown(), found.schema, found.subject))


async def delete_subject(request: web.Request) -> web.Response:
    """Delete a subject: softly, or, with permanent=true, for good."""
    permanent = _flag(request, "permanent")
    subject = _subject(request)

    def write(store: Store) -> Written:
        _permitted(request, store, subject, Access.ADMINISTER)
        return deletion.delete_subject(store, subject, permanent=permanent)

    return answer(await _write(request, write))


async def list_versions(request: web.Request) -> web.Response:
    """List the versions of a subject."""
    given = {"deleted": "deleted", "only": "deletedOnly", "negative": "deletedAsNegative"}
    flags = {name: _flag(request, word) for name, word in given.items()}
    return answer(_page(request, service.numbers_of(request.app[NODE].store, _viewed(request), **flags)))


async def register(request: web.Request) -> web.Response:
    """Register a schema as the next version of a subject; a schema that it has already keeps its version."""
    node, subject = request.app[NODE], _subject(request)
    given = _given(request, await _body(request))

    def write(store: Store) -> Written:
        _permitted(request, store, subject, Access.OPERATE)
        _demand_references(request, store, service.aliased(store, subject), given)
        return service.register(store, subject, given)

    # Most clients register what is there: no write is needed for that. The leader knows what is newest.
    if given.id is None and all(each.version != service.LATEST for each in given.schema.references):
        with contextlib.suppress(
            errors.RegistryError, Forbidden
        ):  # this state may be older than the leader's, which decides
            written = write(node.store)
            if not written.changes:
                return answer(written.answer)
    return answer(await _write(request, write))


def _version(request: web.Request) -> Version:
    return service.version_of(
        request.app[NODE].store,
        _viewed(request),
        request.match_info["version"],
        deleted=_flag(request, "deleted"),
    )


async def get_version(request: web.Request) -> web.Response:
    """Show a version of a subject, by its number or `latest`."""
    found = _version(request)
    return answer(_formatted(request, found.shown(), found.schema, found.subject))


async def get_version_text(request: web.Request) -> web.Response:
    """Show the schema of a version of a subject alone."""
    found = _version(request)
    shown = _formatted(request, {"schema": found.schema.text}, found.schema, found.subject)
    return web.Response(text=shown["schema"], content_type=TYPE)


async def delete_version(request: web.Request) -> web.Response:
    """Delete a version of a subject: softly, or, with permanent=true, for good."""
    subject, version, permanent = (
        _subject(request),
        request.match_info["version"],
        _flag(request, "permanent"),
    )

    def write(store: Store) -> Written:
        _permitted(request, store, subject, Access.ADMINISTER)
        return deletion.delete_version(store, subject, version, permanent=permanent)

    return answer(await _write(request, write))


async def referenced_by(request: web.Request) -> web.Response:
    """List the ids of the schemas that refer to a version."""
    by = request.app[NODE].store.referring(_version(request), deleted=_flag(request, "deleted"))
    return answer(_page(request, sorted({each.id for each in by})))


# ---- schemas


async def list_schemas(request: web.Request) -> web.Response:
    """List the versions of all subjects."""
    store = request.app[NODE].store
    prefix = request.query.get("subjectPrefix", "")
    deleted, latest = _flag(request, "deleted"), _flag(request, "latestOnly")
    found: list[dict[str, Any]] = []
    every = prefix.removeprefix(":*:") if prefix.startswith(":*:") else prefix
    for subject in store.listed("" if prefix.startswith(":*:") else every, deleted=deleted):
        if not may_view(request, subject):
            continue
        versions = store.versions(subject, deleted=deleted)
        found += [v.shown() for v in (versions[-1:] if latest else versions)]
    return answer(_page(request, found))


async def list_types(_request: web.Request) -> web.Response:
    """List the kinds of schemas."""
    return answer(list(KINDS))


def _by_id(request: web.Request) -> tuple[int, Schema]:
    given = request.match_info["id"]
    if not given.isdecimal():
        raise errors.RegistryError(404, "HTTP 404 Not Found")
    store, number = request.app[NODE].store, int(given)
    subject = request.query.get("subject")
    schema = service.schema_by_id(store, number, subject)
    if not any(may_view(request, place.subject) for place in _places(request, number)):
        raise Forbidden(f"The subjects of schema {number} are not yours to view")
    return number, schema


def _places(request: web.Request, id: int) -> list[Version]:
    """Returns the versions with an id, in the context in which the request means it."""
    return service.places_of(request.app[NODE].store, id, request.query.get("subject"), deleted=True)


async def get_schema(request: web.Request) -> web.Response:
    """Show the schema of an id."""
    number, schema = _by_id(request)
    store, subject = request.app[NODE].store, request.query.get("subject") or ""
    shown = schema.answered()
    if _flag(request, "fetchMaxId"):
        shown["maxId"] = store.context(subjects.context_of(subject)).id_max
    place = _places(request, number)[0].subject
    return answer(_formatted(request, shown, schema, place))


async def get_by_guid(request: web.Request) -> web.Response:
    """Show the schema of a GUID, which is the same in every registry."""
    (context, number), *_ = _visible_guid(request)
    found = request.app[NODE].store.context(context)
    schema, place = found.schemas[number], min(found.places[number])[0]
    return answer(_formatted(request, schema.answered(), schema, place))


async def get_guid_ids(request: web.Request) -> web.Response:
    """List the ids of a GUID, one for each context."""
    return answer([{"context": context, "id": number} for context, number in _visible_guid(request)])


def _visible_guid(request: web.Request) -> list[tuple[str, int]]:
    store, guid = request.app[NODE].store, request.match_info["guid"]
    found = [
        (name, number)
        for name, number in service.ids_of_guid(store, guid)
        if any(may_view(request, subject) for subject, _ in store.context(name).places[number])
    ]
    if not found:
        raise Forbidden(f"The subjects of schema {guid} are not yours to view")
    return found


async def get_schema_text(request: web.Request) -> web.Response:
    """Show the schema of an id alone."""
    number, schema = _by_id(request)
    shown = _formatted(request, {"schema": schema.text}, schema, _places(request, number)[0].subject)
    return web.Response(text=shown["schema"], content_type=TYPE)


async def get_schema_subjects(request: web.Request) -> web.Response:
    """List the subjects that have an id."""
    return answer(_page(request, sorted({place.subject for place in _visible(request)})))


async def get_schema_versions(request: web.Request) -> web.Response:
    """List the versions that have an id."""
    found = [{"subject": place.subject, "version": place.version} for place in _visible(request)]
    return answer(_page(request, found))


def _visible(request: web.Request) -> list[Version]:
    number, _ = _by_id(request)
    subject = request.query.get("subject")
    deleted = _flag(request, "deleted")
    found = service.places_of(request.app[NODE].store, number, subject, deleted=deleted)
    return [place for place in found if may_view(request, place.subject)]


# ---- configuration


async def get_config(request: web.Request) -> web.Response:
    """Show the configuration of a subject, of a context, or of all."""
    store, subject = request.app[NODE].store, _optional_subject(request)
    own = store.configs.get(subject)
    if subject is None:
        return answer({"compatibilityLevel": store.level, **(own or {})})
    if _flag(request, "defaultToGlobal"):
        return answer(service.config_of(store, subject))
    if own is None:
        raise errors.no_subject_config(subject)
    return answer({"compatibilityLevel": store.level, **own})


async def put_config(request: web.Request) -> web.Response:
    """Set the configuration of a subject, of a context, or of all."""
    subject, body = _optional_subject(request), await _body(request)
    if not isinstance(body, Mapping):
        raise errors.invalid_level(", ".join(LEVELS))
    if isinstance(alias := body.get("alias"), str) and alias:
        demand(request, Access.ADMINISTER, subjects.qualified(alias, subject or ""))
    return answer(await _write(request, lambda store: service.put_config(store, subject, body)))


async def delete_config(request: web.Request) -> web.Response:
    """Take away the configuration of a subject, of a context, or of all."""
    subject = _optional_subject(request)
    return answer(await _write(request, lambda store: service.delete_config(store, subject)))


async def get_mode(request: web.Request) -> web.Response:
    """Show the mode of a subject, of a context, or of all."""
    store, subject = request.app[NODE].store, _optional_subject(request)
    if subject is not None and subject not in store.modes and not _flag(request, "defaultToGlobal"):
        raise errors.no_subject_mode(subject)
    return answer({"mode": service.mode_of(store, subject)})


async def put_mode(request: web.Request) -> web.Response:
    """Set the mode of a subject, of a context, or of all."""
    _demand_mutable(request)
    subject, body, force = _optional_subject(request), await _body(request), _flag(request, "force")
    mode = str(body.get("mode", "") if isinstance(body, Mapping) else "").upper()
    return answer(await _write(request, partial(service.put_mode, subject=subject, mode=mode, force=force)))


async def delete_mode(request: web.Request) -> web.Response:
    """Take away the mode of a subject, of a context, or of all."""
    _demand_mutable(request)
    subject = _optional_subject(request)
    return answer(await _write(request, lambda store: service.delete_mode(store, subject)))


def _demand_mutable(request: web.Request) -> None:
    if not request.app[MUTABLE]:
        raise errors.not_permitted("Mode mutability is not enabled (mode.mutability)")


# ---- compatibility


async def check_version(request: web.Request) -> web.Response:
    """Say whether a schema fits a version of a subject by the subject's level."""
    store, subject = request.app[NODE].store, _subject(request)
    given = _given(request, await _body(request))
    meant = service.aliased(store, _permitted(request, store, subject, Access.VIEW))
    wanted = request.match_info["version"]
    if service.number_of(wanted) is None:
        against = store.versions(meant)[-1:]  # where there is none, all fits
    else:
        against = [service.version_of(store, subject, wanted)]
    return _compatible(request, meant, given, against)


async def check_subject(request: web.Request) -> web.Response:
    """Say whether a schema fits a subject by its level."""
    store, subject = request.app[NODE].store, _subject(request)
    given = _given(request, await _body(request))
    meant = service.aliased(store, _permitted(request, store, subject, Access.VIEW))
    return _compatible(request, meant, given, store.versions(meant))


def _compatible(
    request: web.Request, subject: str, given: Registration, against: list[Version]
) -> web.Response:
    store, verbose = request.app[NODE].store, _flag(request, "verbose")
    given = Registration(schema=given.schema, normalize=_normalizes(store, subject, given))
    try:
        _demand_references(request, store, subject, given)
        why = service.incompatibilities(store, subject, given, against)
    except errors.RegistryError as e:
        if not verbose or e.code != errors.INVALID_SCHEMA:
            raise
        why = [str(e)]
    found: dict[str, Any] = {"is_compatible": not why}
    if verbose:
        found["messages"] = why
    return answer(found)


# ---- the registry itself


async def list_contexts(request: web.Request) -> web.Response:
    """List the contexts."""
    return answer(sorted(request.app[NODE].store.contexts))


async def get_root(_request: web.Request) -> web.Response:
    """Answer an empty object, as Confluent's registry does."""
    return answer({})


async def get_server_version(_request: web.Request) -> web.Response:
    """Show the version of the registry."""
    return answer({"version": __version__, "commitId": "unknown"})


async def get_cluster_id(request: web.Request) -> web.Response:
    """Show the group and the topic of the registry."""
    node = request.app[NODE]
    return answer({"scope": {"path": [], "clusters": {"schema-registry-cluster": node.group}}})


async def get_health(request: web.Request) -> web.Response:
    """Say whether the registry works: 200 healthy, 500 unhealthy."""
    node = request.app[NODE]
    well = await node.healthy()
    message = "The registry answers." if well else "No broker answers."
    body = {"status": "healthy" if well else "unhealthy", "message": message, "leads": node.leads}
    return web.Response(body=orjson.dumps(body), status=200 if well else 500, content_type="application/json")
