"""Metadata and rules of schemas: what a new version takes over from the one before it, and from the configuration. Pure.

The registry runs no rule. It keeps them from getting lost: a producer that registers a schema without any gets those that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from klamm.registry.errors import RegistryError, invalid_schema
from klamm.registry.model import Schema

VERSION: Final = "confluent:version"
"""A property of metadata that has the number of its version."""
SETTINGS: Final = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
_PARTS: Final = {
    "metadata": ("tags", "properties", "sensitive"),
    "ruleSet": ("migrationRules", "domainRules", "encodingRules"),
}

_Part = Mapping[str, Any] | None


def given(body: Mapping[str, Any], name: str) -> _Part:
    """Returns the metadata or rule set of a request, without what is empty. Raises RegistryError 422."""
    found = body.get(name)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise RegistryError(422, f"{name} must be an object")
    for part in _PARTS[name]:
        kind = dict if part in {"tags", "properties"} else list
        if found.get(part) is not None and not isinstance(found[part], kind):
            raise RegistryError(422, f"{name}.{part} must be {'an object' if kind is dict else 'a list'}")
    return {key: each for key, each in found.items() if each not in (None, {}, [])} or None


def completed(schema: Schema, previous: Schema | None, config: Mapping[str, Any]) -> Schema:
    """Returns a schema with all that it does not have itself: the text, metadata and rules of the version before it, and the
    defaults and overrides of the configuration. Raises RegistryError 42201.
    """
    if not schema.text.strip():
        if previous is None:
            raise invalid_schema("Empty schema")
        schema = replace(schema, kind=previous.kind, text=previous.text, references=previous.references)
    metadata, rules = schema.metadata, schema.rules
    if previous is not None:
        metadata, rules = metadata or previous.metadata, rules or previous.rules
    metadata = _merged(_merged(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rules = _merged(_merged(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet"))
    return replace(schema, metadata=metadata, rules=rules)


def numbered(schema: Schema, version: int) -> Schema:
    """Returns a schema whose metadata have the number of its version, if they have one at all."""
    properties = (schema.metadata or {}).get("properties") or {}
    if VERSION not in properties or schema.metadata is None:
        return schema
    return replace(schema, metadata={**schema.metadata, "properties": {**properties, VERSION: str(version)}})


def identity(schema: Schema) -> str:
    """Returns the identity of a schema, whatever the number of its version is."""
    properties = (schema.metadata or {}).get("properties") or {}
    if VERSION not in properties or schema.metadata is None:
        return schema.identity
    others = {key: each for key, each in properties.items() if key != VERSION}
    metadata = {key: each for key, each in schema.metadata.items() if key != "properties"}
    if others:
        metadata["properties"] = others
    return replace(schema, metadata=metadata or None).identity


def _merged(weak: _Part, strong: _Part) -> _Part:
    """Returns both: of two properties or rules of one name, the strong one."""
    if not weak or not strong:
        return strong or weak
    found = {**weak, **strong}
    for key in weak.keys() & strong.keys():
        if isinstance(weak[key], Mapping) and isinstance(strong[key], Mapping):
            found[key] = {**weak[key], **strong[key]}
        elif isinstance(weak[key], list) and isinstance(strong[key], list):
            names = {_name(each) for each in strong[key]}
            found[key] = [*(each for each in weak[key] if _name(each) not in names), *strong[key]]
    return found


def _name(rule: Any) -> Any:
    return rule.get("name") if isinstance(rule, Mapping) else str(rule)
