"""Avro schemas as a tree of types with their names resolved, read strictly and written as Avro's Java library writes them. Pure.

Types that come from references are in the tree, but are written by their names only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.registry import json_text

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
DEPTH_MAX: Final = 200
"""The deepest nesting that is read: deeper schemas would exhaust the stack, ours or a client's."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MISSING: Final = object()
_RESERVED: Final = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "default", "aliases"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_OF_FIELDS: Final = {"name", "type", "doc", "default", "order", "aliases"}


class AvroError(ValueError):
    """A text that is no Avro schema."""


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record. `default` is _MISSING where there is none."""

    name: str
    type: Avro
    doc: str | None = None
    default: Any = _MISSING
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not _MISSING


@dataclass(slots=True, eq=False)
class Avro:
    """A type. `kind` is Avro's word, or `union`; a named type has its `fullname`."""

    kind: str
    fullname: str = ""
    doc: str | None = None
    fields: list[Field] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    default: Any = None
    size: int = 0
    items: Avro | None = None
    """The elements of an array, the values of a map."""
    branches: list[Avro] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        return self.kind in {"record", "error", "enum", "fixed"}

    @property
    def name(self) -> str:
        return self.fullname.rpartition(".")[2]

    @property
    def label(self) -> str:
        """The name by which a union tells its branches apart."""
        return self.fullname or self.kind


def parse(text: str, references: Iterable[str] = (), *, strict: bool = True) -> tuple[Avro, frozenset[str]]:
    """Reads a schema; `references` are the texts that it refers to, in order of dependency. Returns it with the names that
    the references define. Not `strict`: names and defaults may be anything, as earlier registries took them. Raises AvroError.
    """
    names: dict[str, Avro] = {}
    for each in references:
        _Reader(names, strict=False).read(_json(each))
    foreign = frozenset(names)
    return _Reader(names, strict=strict).read(_json(text)), foreign


def _json(text: str) -> Any:
    try:
        return json_text.loads(text)
    except (ValueError, RecursionError) as e:
        if re.fullmatch(r"[\w.]+", text.strip()):
            return text.strip()  # a bare name, as Avro's library takes it
        raise AvroError(f"it is not JSON: {e}") from None


class _Reader:
    def __init__(self, names: dict[str, Avro], *, strict: bool) -> None:
        self._names = names
        self._strict = strict

    def read(self, value: Any, namespace: str = "", depth: int = 0) -> Avro:
        if depth > DEPTH_MAX:
            raise AvroError(f"it is nested deeper than {DEPTH_MAX} types")
        match value:
            case str():
                return self._named(value, namespace)
            case list():
                return self._union([self.read(each, namespace, depth + 1) for each in value])
            case {"type": str(kind)} if kind in {"record", "error"}:
                return self._record(kind, value, namespace, depth)
            case {"type": "enum"}:
                return self._enum(value, namespace)
            case {"type": "fixed"}:
                return self._fixed(value, namespace)
            case {"type": "array" | "map" as kind}:
                part = "items" if kind == "array" else "values"
                if part not in value:
                    raise AvroError(f"a type {kind} needs {part}")
                items = self.read(value[part], namespace, depth + 1)
                return Avro(kind, items=items, props=_props(value, _RESERVED[kind]))
            case {"type": str(name)}:
                found = self._named(name, namespace)
                if found.kind not in PRIMITIVES:
                    return found
                return Avro(found.kind, props=_props(value, {"type"}))
            case {"type": inner}:
                return self.read(inner, namespace, depth + 1)
        raise AvroError(f"{json.dumps(value)[:100]} is no type")

    def _named(self, name: str, namespace: str) -> Avro:
        if name in PRIMITIVES:
            return Avro(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise AvroError(f'"{name}" is no defined name')
        return found

    @staticmethod
    def _union(branches: list[Avro]) -> Avro:
        seen: set[str] = set()
        for each in branches:
            if each.kind == "union":
                raise AvroError("a union holds a union")
            if each.label in seen:
                raise AvroError(f"a union has two types {each.label}")
            seen.add(each.label)
        return Avro("union", branches=branches)

    def _define(self, kind: str, value: Mapping[str, Any], namespace: str) -> tuple[Avro, str]:
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise AvroError(f"a type {kind} has no name")
        if "." in name:
            space, _, name = name.rpartition(".")
        else:
            space = _text(value, "namespace", namespace)
        for part in [*space.split("."), name] if space else [name]:
            self._demand_name(part)
        full = f"{space}.{name}" if space else name
        if full in self._names:
            raise AvroError(f"{full} is defined twice")
        made = Avro(
            kind,
            full,
            _text(value, "doc", None),
            props=_props(value, _RESERVED.get(kind, _RESERVED["record"])),
        )
        made.aliases = [a if "." in a or not space else f"{space}.{a}" for a in _texts(value, "aliases")]
        self._names[full] = made
        return made, space

    def _record(self, kind: str, value: Mapping[str, Any], namespace: str, depth: int) -> Avro:
        made, space = self._define(kind, value, namespace)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise AvroError(f"the record {made.fullname} has no fields")
        for each in fields:
            made.fields.append(self._field(each, made.fullname, space, depth))
        seen: set[str] = set()
        for each in made.fields:
            if each.name in seen:
                raise AvroError(f"the record {made.fullname} has two fields {each.name}")
            seen.add(each.name)
        return made

    def _demand_name(self, word: str) -> None:
        if self._strict and not _NAME.fullmatch(word):
            raise AvroError(f"{word!r} is no name; letters, digits and _ are allowed")

    def _field(self, value: Any, record: str, namespace: str, depth: int) -> Field:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "type" not in value:
            raise AvroError(f"a field of {record} needs a name and a type")
        name = value["name"]
        self._demand_name(name)
        type_ = self.read(value["type"], namespace, depth + 1)
        default = value.get("default", _MISSING)
        if self._strict and default is not _MISSING and not fits(type_, default):
            raise AvroError(
                f"the default {json.dumps(default)} of {record}.{name} does not fit its type {type_.label}"
            )
        order = _text(value, "order", "ascending")
        if order not in {"ascending", "descending", "ignore"}:
            raise AvroError(
                f"the order {order!r} of {record}.{name} is none of ascending, descending, ignore"
            )
        doc, aliases = _text(value, "doc", None), _texts(value, "aliases")
        return Field(name, type_, doc, default, order, aliases, _props(value, _OF_FIELDS))

    def _enum(self, value: Mapping[str, Any], namespace: str) -> Avro:
        made, _ = self._define("enum", value, namespace)
        symbols = value.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            raise AvroError(f"the enum {made.fullname} needs a list of symbols")
        for each in symbols:
            self._demand_name(each)
        if len(set(symbols)) < len(symbols):
            raise AvroError(f"the enum {made.fullname} has a symbol twice")
        made.symbols, made.default = symbols, value.get("default")
        if made.default is not None and made.default not in symbols:
            raise AvroError(
                f"the default {made.default!r} of the enum {made.fullname} is none of its symbols"
            )
        return made

    def _fixed(self, value: Mapping[str, Any], namespace: str) -> Avro:
        made, _ = self._define("fixed", value, namespace)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise AvroError(f"the fixed type {made.fullname} needs a size")
        made.size = size
        return made


def fits(type_: Avro, value: Any) -> bool:
    """Returns whether a default is one of a type; for a union, of any of its types."""
    number = isinstance(value, int) and not isinstance(value, bool)
    match type_.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return number and -(2**31) <= value < 2**31
        case "long":
            return number and -(2**63) <= value < 2**63
        case "float" | "double":
            return number or isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")
        case "string" | "bytes" | "enum" | "fixed":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list) and all(fits(type_.items or type_, v) for v in value)
        case "map":
            return isinstance(value, dict) and all(fits(type_.items or type_, v) for v in value.values())
        case "union":
            return any(fits(each, value) for each in type_.branches)
        case _:
            return isinstance(value, dict) and all(
                fits(f.type, value[f.name]) if f.name in value else f.has_default for f in type_.fields
            )


def _text(value: Mapping[str, Any], key: str, default: Any) -> Any:
    """Returns a text, or what stands for none: as in Avro's library, anything else is none."""
    found = value.get(key)
    return found if isinstance(found, str) else default


def _texts(value: Mapping[str, Any], key: str) -> list[str]:
    found = value.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise AvroError(f"{key} must be a list of texts, not {json.dumps(found)[:100]}")
    return found


def _props(value: Mapping[str, Any], reserved: set[str]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key not in reserved}


class Writer:
    """Writes a type as Avro's Java library does. `foreign` names are written as names only; with `normal`, properties are
    sorted by their names, so that their order makes no other schema.
    """

    def __init__(self, foreign: frozenset[str] = frozenset(), *, normal: bool = False) -> None:
        self._written = set(foreign)
        self._normal = normal

    def text(self, type_: Avro) -> str:
        return json.dumps(self._type(type_, ""), separators=(",", ":"), ensure_ascii=False)

    def _type(self, type_: Avro, space: str) -> Any:
        if type_.kind == "union":
            return [self._type(each, space) for each in type_.branches]
        if type_.named:
            return self._named(type_, space)
        props = self._sorted(type_.props)
        if type_.items is not None:
            part = "items" if type_.kind == "array" else "values"
            return {"type": type_.kind, part: self._type(type_.items, space), **props}
        return {"type": type_.kind, **props} if props else type_.kind

    def _named(self, type_: Avro, space: str) -> Any:
        own = type_.fullname.rpartition(".")[0]
        if type_.fullname in self._written:
            return type_.name if own == space else type_.fullname
        self._written.add(type_.fullname)
        made: dict[str, Any] = {"type": type_.kind, "name": type_.name}
        if own != space:
            made["namespace"] = own
        if type_.doc is not None:
            made["doc"] = type_.doc
        match type_.kind:
            case "enum":
                made["symbols"] = type_.symbols
                if type_.default is not None:
                    made["default"] = type_.default
            case "fixed":
                made["size"] = type_.size
            case _:
                made["fields"] = [self._field(each, own) for each in type_.fields]
        made.update(self._sorted(type_.props))
        if type_.aliases:
            made["aliases"] = [a.removeprefix(f"{own}.") if own else a for a in type_.aliases]
        return made

    def _field(self, field: Field, space: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": field.name, "type": self._type(field.type, space)}
        if field.doc is not None:
            made["doc"] = field.doc
        if field.has_default:
            made["default"] = field.default
        if field.order != "ascending":
            made["order"] = field.order
        if field.aliases:
            made["aliases"] = field.aliases
        return {**made, **self._sorted(field.props)}

    def _sorted(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return {k: props[k] for k in sorted(props)} if self._normal else dict(props)
