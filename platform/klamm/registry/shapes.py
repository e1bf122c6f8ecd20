"""The JSON of the registry's requests and answers, as types; the OpenAPI document is made of them."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Reference(TypedDict):
    """A name in a schema that stands for a version of a subject."""

    name: str
    subject: str
    version: int


class SchemaGiven(TypedDict):
    """A schema to register, to look up or to check. Without a text, metadata and rules of the newest version are meant."""

    schema: NotRequired[str]
    schemaType: NotRequired[str]
    references: NotRequired[list[Reference]]
    metadata: NotRequired[dict[str, Any] | None]
    ruleSet: NotRequired[dict[str, Any] | None]
    id: NotRequired[int]
    version: NotRequired[int]


class SchemaShown(TypedDict):
    """The schema of an id."""

    schema: str
    guid: str
    schemaType: NotRequired[str]
    references: NotRequired[list[Reference]]
    metadata: NotRequired[dict[str, Any]]
    ruleSet: NotRequired[dict[str, Any]]
    maxId: NotRequired[int]


class VersionShown(SchemaShown):
    """A version of a subject."""

    subject: str
    version: int
    id: int


class Registered(TypedDict):
    """The id of a schema, and its name in every registry."""

    id: int
    guid: str


class InContext(TypedDict):
    """The id of a schema in a context."""

    context: str
    id: int


class Place(TypedDict):
    """A version that has an id."""

    subject: str
    version: int


class Compatible(TypedDict):
    """The answer to a check: does the schema fit; with verbose=true, why not."""

    is_compatible: bool
    messages: NotRequired[list[str]]


class ConfigGiven(TypedDict):
    """A configuration to set."""

    compatibility: NotRequired[str | None]
    normalize: NotRequired[bool | None]
    alias: NotRequired[str | None]
    compatibilityGroup: NotRequired[str | None]


class ConfigShown(TypedDict):
    """A configuration."""

    compatibilityLevel: NotRequired[str]
    normalize: NotRequired[bool]
    alias: NotRequired[str]
    compatibilityGroup: NotRequired[str]


class Mode(TypedDict):
    """A mode."""

    mode: str


class Health(TypedDict):
    """The state of the registry."""

    status: str
    message: str
    leads: bool
