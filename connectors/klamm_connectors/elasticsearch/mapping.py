"""Connect's schemas as Elasticsearch's mappings. No I/O."""

from __future__ import annotations

from typing import Any, Final

from klamm_plugins import logical
from klamm_plugins.schema import Schema, Type

_TYPES: Final = {
    Type.INT8: "byte",
    Type.INT16: "short",
    Type.INT32: "integer",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.BYTES: "binary",
}
_LOGICAL: Final[dict[str, dict[str, str]]] = {
    logical.DATE: {"type": "date"},
    logical.TIME: {"type": "date", "format": "HH:mm:ss||HH:mm:ss.SSSSSS"},
    logical.TIMESTAMP: {"type": "date"},
    logical.DECIMAL: {"type": "double"},
}


def mapping_of(schema: Schema, *, compact_maps: bool) -> dict[str, Any]:
    """Returns the mapping of a field; for a struct, `{"properties": …}`. An array has the mapping of its items."""
    if logical.is_logical(schema) and schema.name is not None:
        return dict(_LOGICAL[schema.name])
    match schema.type:
        case Type.STRUCT:
            fields = {f.name: mapping_of(f.schema, compact_maps=compact_maps) for f in schema.fields}
            return {"properties": fields}
        case Type.ARRAY:
            assert schema.value_schema is not None
            return mapping_of(schema.value_schema, compact_maps=compact_maps)
        case Type.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            if compact_maps and schema.key_schema.type is Type.STRING:
                return {"type": "object"}
            pair = {"key": schema.key_schema, "value": schema.value_schema}
            return {"properties": {n: mapping_of(s, compact_maps=compact_maps) for n, s in pair.items()}}
        case Type.STRING:
            # The same as dynamic mapping: text for search, a keyword for sorting and counting.
            return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
        case kind:
            return {"type": _TYPES[kind]}
