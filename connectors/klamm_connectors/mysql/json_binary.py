"""MySQL's binary JSON as JSON text, by mysql-replication's parser (not tried against a MySQL server)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def json_text(data: bytes) -> str | None:
    """Returns the document as compact text; None for an empty value, which MySQL writes for JSON it could not keep."""
    if not data:
        return None
    from pymysqlreplication.json_binary import parse_json

    return json.dumps(_plain(parse_json(data[0], data[1:])), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case dict():
            return {str(_plain(k)): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case Decimal():
            return float(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
