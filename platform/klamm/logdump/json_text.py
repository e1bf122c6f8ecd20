"""Messages as the JSON text that Kafka's tools print: fields in their order, in camel case, bytes as base64."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from klamm_kafka.wire.fields import FieldSpec
from klamm_kafka.wire.struct import Struct

_SMALL_HEX: Final = re.compile(r"\\u00([0-9a-f]{2})")


def to_json(message: Struct, version: int) -> dict[str, Any]:
    """Return the fields of a version of the message.

    Includes tagged fields that can be null, or differ from the default.
    """
    result: dict[str, Any] = {}
    for spec in message.FIELDS:
        value = getattr(message, spec.name)
        if not spec.in_version(version):
            continue
        if spec.tag is not None and _left_out(spec, value, version):
            continue
        result[camel(spec.name)] = _value(spec, value, version)
    return result


def _left_out(spec: FieldSpec, value: Any, version: int) -> bool:
    """Return whether a tagged field is left out.

    Null is printed, even where it is the default; an empty array is left out.
    """
    if spec.nullable_in(version):
        return bool(spec.array) and value == []
    return bool(value == spec.make_default())


def _value(spec: FieldSpec, value: Any, version: int) -> Any:
    if value is None:
        return None
    if spec.array:
        return [_one(spec, item, version) for item in value]
    return _one(spec, value, version)


def _one(spec: FieldSpec, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return to_json(value, version)
    if spec.type == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    return value


def camel(name: str) -> str:
    """Return `group_epoch` as `groupEpoch`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def compact(document: Mapping[str, Any]) -> str:
    """Return JSON without spaces, as Jackson writes it."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return _SMALL_HEX.sub(lambda found: "\\u00" + found[1].upper(), text)
