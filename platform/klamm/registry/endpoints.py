"""The table of the registry's endpoints. Reading `ENDPOINTS` is reading the API."""

from __future__ import annotations

from typing import Any, Final

from klamm.registry import handlers as h
from klamm.registry import shapes
from klamm.web import openapi
from klamm.web.endpoint import BOOLEAN, Access, Endpoint, Handler, Query

SUBJECT: Final = "/subjects/{subject}"
VERSION: Final = SUBJECT + "/versions/{version}"
ID: Final = "/schemas/ids/{id}"
GUID: Final = "/schemas/guids/{guid}"
CHECK: Final = "/compatibility/subjects/{subject}/versions"

DELETED: Final = Query(name="deleted", about="true: also what is softly deleted.", values=BOOLEAN)
DELETED_ONLY: Final = Query(name="deletedOnly", about="true: only what is softly deleted.", values=BOOLEAN)
NEGATIVE: Final = Query(
    name="deletedAsNegative",
    about="true: all versions, with negative numbers those that are softly deleted.",
    values=BOOLEAN,
)
PERMANENT: Final = Query(name="permanent", about="true: for good, after a soft deletion.", values=BOOLEAN)
NORMALIZE: Final = Query(
    name="normalize", about="true: differences of form make no other schema.", values=BOOLEAN
)
VERBOSE: Final = Query(name="verbose", about="true: say why.", values=BOOLEAN)
DEFAULT: Final = Query(
    name="defaultToGlobal", about="true: what is in force, if there is none of its own.", values=BOOLEAN
)
FORCE: Final = Query(name="force", about="true: import although there are schemas.", values=BOOLEAN)
FORMAT: Final = Query(
    name="format",
    about="serialized: Protobuf as a descriptor in base64; resolved: Avro with its references in it.",
)
KEY: Final = Query(name="key", about="A property of the metadata.")
VALUE: Final = Query(name="value", about="The value of the property; may come as often as `key`.")
IN_SUBJECT: Final = Query(name="subject", about="A subject of the context in which the id is meant.")
PREFIX: Final = Query(name="subjectPrefix", about="Only subjects that begin so; :*: stands for all contexts.")
PAGE: Final = (
    Query(name="offset", about="The number of entries to leave out."),
    Query(name="limit", about="The most entries to answer."),
)
LATEST: Final = Query(
    name="latestOnly", about="true: only the newest version of each subject.", values=BOOLEAN
)
MAX_ID: Final = Query(name="fetchMaxId", about="true: also the highest id.", values=BOOLEAN)

TITLE: Final = openapi.Title(
    title="Klamm schema registry",
    about="The REST API of Confluent's schema registry. Every answer from 400 on is an Error, whose error_code says more than the "
    "status. Roles are asked for where `rest.auth.file` is set.",
    parameters={
        "subject": (
            "The subject's name, such as orders-value, or :.CONTEXT:NAME.",
            {"type": "string", "minLength": 1},
        ),
        "version": ("The number of a version, or latest.", {"type": "string", "minLength": 1}),
        "guid": ("A schema's name in every registry, a UUID.", {"type": "string", "minLength": 1}),
        "id": ("The id of a schema.", {"type": "integer", "minimum": 1}),
    },
)


def _row(
    method: str,
    path: str,
    handler: Handler,
    access: Access,
    answer: Any,
    *errors: int,
    query: tuple[Query, ...] = (),
    body: Any = None,
    text: bool = False,
) -> Endpoint:
    also = (*h.TYPES, "text/plain") if text else h.TYPES
    if "{subject}" in path and 422 not in errors:
        errors = (*errors, 422)  # it may be no name of a subject
    return Endpoint(
        method=method, path=path, handler=handler, access=access, answers={200: answer}, errors=errors,
        query=query, body=body, produces=h.TYPE, also=also,
    )  # fmt: skip


VIEW, OPERATE, ADMINISTER, ANY, OPEN = Access.VIEW, Access.OPERATE, Access.ADMINISTER, Access.ANY, Access.OPEN
GIVEN: Final = shapes.SchemaGiven

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    _row("GET", "/", h.get_root, ANY, dict[str, Any]),
    _row("GET", "/subjects", h.list_subjects, ANY, list[str], query=(PREFIX, DELETED, DELETED_ONLY, *PAGE)),
    _row("POST", SUBJECT, h.lookup, VIEW, shapes.VersionShown, 422, query=(DELETED, NORMALIZE, FORMAT), body=GIVEN),
    _row("DELETE", SUBJECT, h.delete_subject, ADMINISTER, list[int], 422, query=(PERMANENT,)),
    _row("GET", SUBJECT + "/metadata", h.get_latest_with, VIEW, shapes.VersionShown, query=(KEY, VALUE, DELETED, FORMAT)),
    _row("GET", SUBJECT + "/versions", h.list_versions, VIEW, list[int], query=(DELETED, DELETED_ONLY, NEGATIVE, *PAGE)),
    _row("POST", SUBJECT + "/versions", h.register, OPERATE, shapes.Registered, 409, 422, query=(NORMALIZE,), body=GIVEN),
    _row("GET", VERSION, h.get_version, VIEW, shapes.VersionShown, 422, query=(DELETED, FORMAT)),
    _row("DELETE", VERSION, h.delete_version, ADMINISTER, int, 422, query=(PERMANENT,)),
    _row("GET", VERSION + "/schema", h.get_version_text, VIEW, str, 422, query=(DELETED, FORMAT), text=True),
    _row("GET", VERSION + "/referencedby", h.referenced_by, VIEW, list[int], 422, query=(DELETED, *PAGE)),
    _row("GET", "/schemas", h.list_schemas, ANY, list[shapes.VersionShown], query=(PREFIX, DELETED, LATEST, *PAGE)),
    _row("GET", "/schemas/types", h.list_types, ANY, list[str]),
    _row("GET", ID, h.get_schema, ANY, shapes.SchemaShown, query=(IN_SUBJECT, FORMAT, MAX_ID)),
    _row("GET", ID + "/schema", h.get_schema_text, ANY, str, query=(IN_SUBJECT, FORMAT), text=True),
    _row("GET", ID + "/subjects", h.get_schema_subjects, ANY, list[str], query=(IN_SUBJECT, DELETED, *PAGE)),
    _row("GET", ID + "/versions", h.get_schema_versions, ANY, list[shapes.Place], query=(IN_SUBJECT, DELETED, *PAGE)),
    _row("GET", GUID, h.get_by_guid, ANY, shapes.SchemaShown, query=(FORMAT,)),
    _row("GET", GUID + "/ids", h.get_guid_ids, ANY, list[shapes.InContext]),
    _row("GET", "/config", h.get_config, ANY, shapes.ConfigShown),
    _row("PUT", "/config", h.put_config, ADMINISTER, shapes.ConfigGiven, 422, body=shapes.ConfigGiven),
    _row("DELETE", "/config", h.delete_config, ADMINISTER, shapes.ConfigShown, 422),
    _row("GET", "/config/{subject}", h.get_config, VIEW, shapes.ConfigShown, query=(DEFAULT,)),
    _row("PUT", "/config/{subject}", h.put_config, ADMINISTER, shapes.ConfigGiven, 422, body=shapes.ConfigGiven),
    _row("DELETE", "/config/{subject}", h.delete_config, ADMINISTER, shapes.ConfigShown, 422),
    _row("GET", "/mode", h.get_mode, ANY, shapes.Mode),
    _row("PUT", "/mode", h.put_mode, ADMINISTER, shapes.Mode, 422, query=(FORCE,), body=shapes.Mode),
    _row("GET", "/mode/{subject}", h.get_mode, VIEW, shapes.Mode, query=(DEFAULT,)),
    _row("PUT", "/mode/{subject}", h.put_mode, ADMINISTER, shapes.Mode, 422, query=(FORCE,), body=shapes.Mode),
    _row("DELETE", "/mode", h.delete_mode, ADMINISTER, shapes.Mode, 422),
    _row("DELETE", "/mode/{subject}", h.delete_mode, ADMINISTER, shapes.Mode, 422),
    _row("POST", CHECK + "/{version}", h.check_version, VIEW, shapes.Compatible, 422, query=(VERBOSE, NORMALIZE), body=GIVEN),
    _row("POST", CHECK, h.check_subject, VIEW, shapes.Compatible, 422, query=(VERBOSE, NORMALIZE), body=GIVEN),
    _row("GET", "/contexts", h.list_contexts, ANY, list[str]),
    _row("GET", "/v1/metadata/version", h.get_server_version, ANY, dict[str, Any]),
    _row("GET", "/v1/metadata/id", h.get_cluster_id, ANY, dict[str, Any]),
    Endpoint(
        method="GET", path="/health", handler=h.get_health, access=OPEN, answers={200: shapes.Health, 500: shapes.Health}
    ),
    Endpoint(
        method="GET", path="/openapi.json", handler=openapi.get_openapi, access=ANY, answers={200: dict[str, Any]}
    ),
)  # fmt: skip
