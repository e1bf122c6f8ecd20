"""Is every document that a JSON Schema allows allowed by another? Pure.

A schema is first brought into a form (`_Form`) in which each part is of one kind: a list of types is a choice, keywords of a type
beside `anyOf` or `$ref` are a product. Kinds of differences are those of Confluent's registry. A pair that is being compared
already is taken as compatible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from klamm.registry.difference import Difference, Steps

_SUMS: Final = ("anyOf", "oneOf")
_KINDS: Final = {
    "object": (
        "properties", "required", "additionalProperties", "unevaluatedProperties", "patternProperties", "maxProperties", "minProperties",
        "dependentRequired", "dependentSchemas", "dependencies",
    ),
    "array": ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "maxItems", "minItems", "uniqueItems"),
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
}  # fmt: skip
_UPPER: Final = {
    "maxLength": "MAX_LENGTH", "maximum": "MAXIMUM", "exclusiveMaximum": "EXCLUSIVE_MAXIMUM", "maxItems": "MAX_ITEMS", "maxContains": "MAX_CONTAINS",
    "maxProperties": "MAX_PROPERTIES",
}  # fmt: skip
_LOWER: Final = {
    "minLength": "MIN_LENGTH", "minimum": "MINIMUM", "exclusiveMinimum": "EXCLUSIVE_MINIMUM", "minItems": "MIN_ITEMS", "minContains": "MIN_CONTAINS",
    "minProperties": "MIN_PROPERTIES",
}  # fmt: skip
_WORDS: Final = {
    "TYPE_CHANGED": "the type is another one",
    "TYPE_NARROWED": "the new schema allows fewer types",
    "SCHEMA_ADDED": "the old schema allows anything here, the new one does not",
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "the old schema allows any value for a property that the new one restricts",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "the new schema requires a property for which the old one allows anything",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": "the old schema allows any value for a property that the new one restricts",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the old schema allows values for a property that the new one refuses",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the new schema has no more properties, and lacks one of the old schema",
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the new schema refuses values of a property of the old schema",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "the new schema requires a property that the old one does not have",
    "REQUIRED_ATTRIBUTE_ADDED": "the new schema requires a property that the old one does not require",
    "ADDITIONAL_PROPERTIES_REMOVED": "the new schema refuses further properties",
    "ADDITIONAL_PROPERTIES_NARROWED": "the new schema allows further properties of some values only",
    "UNEVALUATED_PROPERTIES_REMOVED": "the new schema refuses further properties",
    "UNEVALUATED_PROPERTIES_NARROWED": "the new schema allows further properties of some values only",
    "UNEVALUATED_ITEMS_REMOVED": "the new schema refuses further items",
    "ADDITIONAL_ITEMS_REMOVED": "the new schema refuses further items",
    "ENUM_ARRAY_NARROWED": "the new schema lacks values of the old one",
    "ENUM_ARRAY_CHANGED": "the values are others",
    "SUM_TYPE_NARROWED": "the new schema has fewer choices",
    "PRODUCT_TYPE_EXTENDED": "the new schema demands more at the same time",
    "COMBINED_TYPE_CHANGED": "the schemas are combined in another way",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "a choice of the old schema fits none of the new one",
    "NOT_TYPE_EXTENDED": "the new schema excludes more",
    "PATTERN_ADDED": "the new schema has a pattern",
    "PATTERN_CHANGED": "the pattern is another one",
    "UNIQUE_ITEMS_ADDED": "the new schema demands that items differ",
    "DEPENDENCY_ARRAY_ADDED": "the new schema requires properties together",
    "DEPENDENCY_ARRAY_EXTENDED": "the new schema requires more properties together",
    "DEPENDENCY_SCHEMA_ADDED": "the new schema demands more where a property is there",
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the old schema allows values for an item that the new one refuses",
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the new schema refuses values of an item of the old schema",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "the new schema restricts an item for which the old one allows anything",
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the new schema refuses an item of the old one",
}  # fmt: skip

PATTERN_MAX: Final = 1_000
"""The longest pattern that is tried on a property's name; a longer one covers nothing."""
REPEATED_MAX: Final = 25
"""The longest name on which a pattern with repeated groups is tried."""
TRIES_MAX: Final = 10**8
"""The most ways to try a pattern: about a second."""

_Pair = tuple[int, int]
Resolve = Callable[[str], Any]
"""Returns the schema of a `$ref`; raises ValueError for one that leads nowhere."""


@dataclass(slots=True)
class _Form:
    """A part of a schema: `any`, `never`, `enum`, `sum`, `product`, `not`, or a type. `raw` has its keywords."""

    kind: str
    raw: Mapping[str, Any]
    parts: Sequence[Any] = ()
    by: str = ""
    """The keyword of a sum."""


def differences(new: Any, old: Any, new_ref: Resolve, old_ref: Resolve) -> list[Difference]:
    """Returns all that keeps documents of the old schema from being documents of the new one."""
    return list(_Comparison(new_ref, old_ref, Steps()).pair(old, new, "#"))


def form_of(schema: Any, resolve: Resolve) -> _Form:
    """Returns a schema in the form that is compared."""
    schema = _resolved(schema, resolve)
    if schema is True or not isinstance(schema, Mapping):
        return _Form("never" if schema is False else "any", {})
    parts: list[_Form] = []
    if "const" in schema or "enum" in schema:
        return _Form("enum", schema, [schema["const"]] if "const" in schema else schema["enum"])
    types = schema.get("type")
    if types is None:
        types = next((kind for kind, keys in _KINDS.items() if any(k in schema for k in keys)), None)
    if isinstance(types, list):
        own = [{**schema, "type": t} for t in types]
        bare = [{k: v for k, v in each.items() if k not in (*_SUMS, "allOf", "not")} for each in own]
        parts.append(_Form("sum", schema, bare) if len(bare) > 1 else form_of(bare[0], resolve))
    elif types is not None:
        parts.append(_Form(types, schema))
    parts.extend(_Form("sum", schema, schema[key], key) for key in _SUMS if key in schema)
    if "allOf" in schema:
        parts.append(_Form("product", schema, schema["allOf"]))
    if "not" in schema:
        parts.append(_Form("not", schema, [schema["not"]]))
    if not parts:
        return _Form("any", schema)
    return parts[0] if len(parts) == 1 else _Form("product", schema, parts)


def _resolved(schema: Any, resolve: Resolve) -> Any:
    """Returns the schema for which a `$ref` stands."""
    for _ in range(100):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            break
        schema = resolve(str(schema["$ref"]))
    return schema


class _Comparison:
    """Compares pairs of schemas. Each is compared once: what is wrong with it is told in full at the first place, and as one
    difference at others.
    """

    def __init__(
        self, new_ref: Resolve, old_ref: Resolve, steps: Steps, turned: _Comparison | None = None
    ) -> None:
        self._new_ref, self._old_ref, self._steps = new_ref, old_ref, steps
        self._turned = turned or _Comparison(old_ref, new_ref, steps, self)
        """Compares in the other direction, for `not`."""
        self._forms_of: tuple[dict[int, tuple[Any, _Form]], ...] = ({}, {})
        """The forms of old and new schemas by their ids, beside the schemas, so that ids stay those of these."""
        self._running: set[_Pair] = set()
        self._fits: dict[_Pair, None] = {}
        """Pairs without differences, if those that are being compared have none; the latest come last."""
        self._unfit: dict[_Pair, Difference] = {}

    def pair(self, old: Any, new: Any, path: str) -> Iterator[Difference]:
        """Yields the differences of two schemas, or of two forms."""
        self._steps.take()
        a, b = self._form(old, 0), self._form(new, 1)
        key = id(a), id(b)
        if key in self._running or key in self._fits:
            return
        known = self._unfit.get(key)
        if known is not None and (not path.startswith("#") or known.path.startswith("#")):
            yield Difference(kind=known.kind, path=path, words=f"At path '{path}': as at path '{known.path}'")
            return
        self._running.add(key)
        first: Difference | None = None
        try:
            for each in self._forms(a, b, path):
                first = first or each
                yield each
        finally:
            self._running.discard(key)
        if first is None:
            self._fits[key] = None
        else:
            self._unfit[key] = first

    def _form(self, schema: Any, side: int) -> _Form:
        if isinstance(schema, _Form):
            return schema
        resolve = (self._old_ref, self._new_ref)[side]
        schema = _resolved(schema, resolve)
        known = self._forms_of[side].get(id(schema))
        if known is None:
            known = schema, form_of(schema, resolve)
            self._forms_of[side][id(schema)] = known
        return known[1]

    def can(self, old: Any, new: Any) -> bool:
        """Returns whether there is no difference. What follows from a pair that turns out to differ is forgotten."""
        a, b = self._form(old, 0), self._form(new, 1)
        if (id(a), id(b)) in self._unfit:
            return False
        count = len(self._fits)
        found = next(self.pair(a, b, ""), None)
        if found is None:
            return True
        while len(self._fits) > count:
            self._fits.popitem()
        self._unfit[id(a), id(b)] = found
        return False

    def _forms(self, old: _Form, new: _Form, path: str) -> Iterator[Difference]:
        if old.kind == "never" or new.kind == "any":
            return
        if old.kind not in {"sum", "product"} and new.kind in {"sum", "product"}:
            yield from self._to_combined(old, new, path)
        elif old.kind == "sum" and new.kind == "product":
            if not all(self.can(part, new) for part in old.parts):
                yield self._said("COMBINED_TYPE_CHANGED", path)
        elif old.kind == "sum" and new.kind != "sum":
            for part in old.parts:  # each choice must fit
                yield from self.pair(part, new, path)
        elif old.kind == "product" and new.kind != "product":
            if not any(self.can(part, new) for part in old.parts):
                yield self._said("COMBINED_TYPE_CHANGED" if new.kind == "sum" else "TYPE_CHANGED", path)
        elif old.kind != new.kind:
            yield from self._other_kind(old, new, path)
        else:
            yield from self._same_kind(old, new, path)

    def _to_combined(self, old: _Form, new: _Form, path: str) -> Iterator[Difference]:
        if new.kind == "product":
            for part in new.parts:
                yield from self.pair(old, part, path)
        elif len(new.parts) == 1:
            yield from self.pair(old, new.parts[0], path)
        elif not any(self.can(old, part) for part in new.parts):
            yield self._said("TYPE_CHANGED", path)

    def _other_kind(self, old: _Form, new: _Form, path: str) -> Iterator[Difference]:
        if (old.kind, new.kind) == ("integer", "number"):
            yield from self._limits(old, new, path)
        elif (old.kind, new.kind) == ("number", "integer"):
            yield self._said("TYPE_NARROWED", path)
        elif old.kind == "any":
            yield self._said("SCHEMA_ADDED", path)
        elif old.kind == "enum":
            if not all(_is(value, new.kind) for value in old.parts):
                yield self._said("TYPE_CHANGED", path)
        else:
            yield self._said("TYPE_CHANGED", path)

    def _same_kind(self, old: _Form, new: _Form, path: str) -> Iterator[Difference]:
        match new.kind:
            case "sum":
                missing = [p for p in old.parts if not any(self.can(p, q) for q in new.parts)]
                if missing:
                    kind = (
                        "SUM_TYPE_NARROWED"
                        if len(new.parts) < len(old.parts)
                        else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
                    )
                    yield self._said("COMBINED_TYPE_CHANGED" if (old.by, new.by) == _SUMS else kind, path)
            case "product":
                if any(not any(self.can(p, q) for p in old.parts) for q in new.parts):
                    more = len(new.parts) > len(old.parts)
                    yield self._said(
                        "PRODUCT_TYPE_EXTENDED" if more else "COMBINED_TYPE_SUBSCHEMAS_CHANGED", path
                    )
            case "not":
                if not self._turned.can(new.parts[0], old.parts[0]):
                    yield self._said("NOT_TYPE_EXTENDED", path)
            case "enum":
                yield from self._enum(old, new, path)
            case "object":
                yield from self._object(old.raw, new.raw, path)
            case "array":
                yield from self._array(old.raw, new.raw, path)
            case _:
                yield from self._limits(old, new, path)

    def _enum(self, old: _Form, new: _Form, path: str) -> Iterator[Difference]:
        before, after = ({json.dumps(v, sort_keys=True) for v in form.parts} for form in (old, new))
        if not before <= after:
            yield self._said(
                "ENUM_ARRAY_NARROWED" if after < before else "ENUM_ARRAY_CHANGED", f"{path}/enum"
            )

    def _limits(self, old: _Form, new: _Form, path: str) -> Iterator[Difference]:
        a, b = old.raw, new.raw
        yield from self._bounds(a, b, path)
        if "pattern" in b and b["pattern"] != a.get("pattern"):
            yield self._said("PATTERN_CHANGED" if "pattern" in a else "PATTERN_ADDED", f"{path}/pattern")
        if "multipleOf" in b:
            at, step = f"{path}/multipleOf", b["multipleOf"]
            if "multipleOf" not in a:
                yield self._said("MULTIPLE_OF_ADDED", at)
            elif not _divides(step, a["multipleOf"]):
                larger = _divides(a["multipleOf"], step)
                yield self._said("MULTIPLE_OF_EXPANDED" if larger else "MULTIPLE_OF_CHANGED", at)

    def _bounds(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
        for names, sign, word in ((_UPPER, 1, "DECREASED"), (_LOWER, -1, "INCREASED")):
            for name, kind in names.items():
                if not isinstance(new.get(name), int | float):
                    continue
                if not isinstance(old.get(name), int | float):
                    yield self._said(f"{kind}_ADDED", f"{path}/{name}", f"the new schema has {name}")
                elif new[name] != old[name] and (new[name] < old[name]) is (sign > 0):
                    yield self._said(f"{kind}_{word}", f"{path}/{name}", f"{name} is stricter")

    # ---- objects

    def _object(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
        yield from self._bounds(old, new, path)
        before, after = old.get("properties") or {}, new.get("properties") or {}
        for name in before.keys() | after.keys():
            at = f"{path}/properties/{name}"
            if name not in after:
                yield from self._removed(name, before[name], new, at)
            elif name not in before:
                yield from self._added(name, after[name], old, new, at)
            else:
                yield from self.pair(before[name], after[name], at)
        required = set(new.get("required") or ()) - set(old.get("required") or ())
        for name in sorted(required & before.keys() & after.keys()):
            if not _has_default(after[name]):
                yield self._said("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")
        yield from self._additional(old, new, path)
        yield from self._dependencies(old, new, path)

    def _removed(self, name: str, before: Any, new: Mapping[str, Any], at: str) -> Iterator[Difference]:
        covering = _covering(name, new)
        if covering is None or covering is True or covering == {}:
            return
        if covering is False:
            if before is not False:
                yield self._said("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", at)
        elif inner := list(self.pair(before, covering, at)):
            yield from inner
            yield self._said("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at)

    def _added(
        self, name: str, after: Any, old: Mapping[str, Any], new: Mapping[str, Any], at: str
    ) -> Iterator[Difference]:
        covering, required = _covering(name, old), name in (new.get("required") or ())
        word = (
            ("REQUIRED_PROPERTY_WITH_DEFAULT" if _has_default(after) else "REQUIRED_PROPERTY")
            if required
            else "OPTIONAL_PROPERTY"
        )
        if covering is True or covering == {}:
            if after is not True and after != {}:
                yield self._said(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL", at)
        elif covering is not False and (inner := list(self.pair(covering, after, at))):
            yield from inner
            yield self._said("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at)
        elif word == "REQUIRED_PROPERTY":
            yield self._said("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", at)

    def _additional(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
        (_, before), (key, after) = _rest(old, "Properties"), _rest(new, "Properties")
        at, word = f"{path}/{key}", "UNEVALUATED" if key.startswith("un") else "ADDITIONAL"
        if after is True or after == {} or before is False:
            return
        if after is False:
            yield self._said(f"{word}_PROPERTIES_REMOVED", at)
        elif before is True or before == {}:
            yield self._said(f"{word}_PROPERTIES_NARROWED", at)
        else:
            yield from self.pair(before, after, at)

    def _dependencies(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str
    ) -> Iterator[Difference]:
        """Yields what is new where a property is there: by `dependencies`, or what later drafts made of them."""
        before, after = _dependent(old), _dependent(new)
        for (name, is_list), needed in after.items():
            at, known = f"{path}/dependencies/{name}", before.get((name, is_list))
            if known is None:
                yield self._said("DEPENDENCY_ARRAY_ADDED" if is_list else "DEPENDENCY_SCHEMA_ADDED", at)
            elif not is_list:
                yield from self.pair(known, needed, at)
            elif not set(needed) <= set(known):
                yield self._said("DEPENDENCY_ARRAY_EXTENDED", at)

    # ---- arrays

    def _array(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
        yield from self._bounds(old, new, path)
        if new.get("uniqueItems") and not old.get("uniqueItems"):
            yield self._said("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")
        (before, before_rest), (after, after_rest) = _items(old), _items(new)
        for number in range(max(len(before), len(after))):
            at = f"{path}/items/{number}"
            a = before[number] if number < len(before) else before_rest
            b = after[number] if number < len(after) else after_rest
            if b is False and a is not False:
                yield self._said("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", at)
            elif a is True and number >= len(before) and form_of(b, self._new_ref).kind != "any":
                yield self._said("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", at)
            elif a is not False and (inner := list(self.pair(a, b, at))):
                yield from inner
                if number >= min(len(before), len(after)):
                    way = "ADDED" if number >= len(before) else "REMOVED"
                    yield self._said(f"ITEM_{way}_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at)
        if after_rest is False and before_rest is not False:
            word = "UNEVALUATED" if "unevaluatedItems" in new else "ADDITIONAL"
            yield self._said(f"{word}_ITEMS_REMOVED", f"{path}/{word.lower()}Items")
        elif before_rest is not False:
            yield from self.pair(before_rest, after_rest, f"{path}/items")

    @staticmethod
    def _said(kind: str, path: str, words: str | None = None) -> Difference:
        if words is None:
            words = _WORDS.get(kind, kind.replace("_", " ").lower())
        return Difference(kind=kind, path=path, words=f"At path '{path}': {words}")


def _covering(name: str, schema: Mapping[str, Any]) -> Any:
    """Returns the schema that a property without one of its own must fit; False: there may be none."""
    for pattern, each in (schema.get("patternProperties") or {}).items():
        try:
            if _is_quick(pattern, len(name)) and re.search(pattern, name):
                return each
        except (re.error, OverflowError):
            continue  # ECMA's expressions are not all Python's: such a pattern covers nothing
    return _rest(schema, "Properties")[1]


def _is_quick(pattern: str, length: int) -> bool:
    """Returns whether a pattern cannot take long for a name of this length: Python's engine tries out what is ambiguous, and
    nothing else is answered meanwhile.
    """
    if len(pattern) > PATTERN_MAX:
        return False
    bare = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern)
    if length > REPEATED_MAX and re.search(r"\)[*+{]", bare):
        return False
    repeats, optional = len(re.findall(r"[*+{]", bare)), len(re.findall(r"(?<!\()\?", bare))
    return bool(max(length, 2) ** repeats * (1 << optional) <= TRIES_MAX)


def _divides(step: Any, number: Any) -> bool:
    """Returns whether a number is a multiple of another, as they stand in the text: 0.3 is one of 0.1."""
    return bool(step) and not Fraction(str(number)) % Fraction(str(step))


def _rest(schema: Mapping[str, Any], what: str) -> tuple[str, Any]:
    """Returns the keyword for properties or items without a schema of their own, and the schema for them."""
    key = f"additional{what}"
    if key not in schema and f"unevaluated{what}" in schema:
        key = f"unevaluated{what}"
    return key, schema.get(key, True)


def _dependent(schema: Mapping[str, Any]) -> dict[tuple[str, bool], Any]:
    """Returns what must hold where a property is there: a list of other properties, or a schema."""
    return {
        (name, isinstance(needed, list)): needed
        for key in ("dependencies", "dependentRequired", "dependentSchemas")
        for name, needed in (schema.get(key) or {}).items()
    }


def _items(schema: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
    """Returns the schemas of the first items, and that of the others."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema["items"] if "items" in schema else _rest(schema, "Items")[1]
    items = schema.get("items")
    if items is None or isinstance(items, list):
        return items or (), _rest(schema, "Items")[1]
    return (), items


def _has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def _is(value: Any, kind: str) -> bool:
    """Returns whether a value is of a type of JSON Schema."""
    match value:
        case None:
            return kind == "null"
        case bool():
            return kind == "boolean"
        case int():
            return kind in {"integer", "number"}
        case float():
            return kind == "number" or (kind == "integer" and value.is_integer())
        case str():
            return kind == "string"
        case list():
            return kind == "array"
        case _:
            return kind == "object"
