"""The converters, transforms and predicates that come with Klamm, registered through the same hooks as a stranger's."""

from __future__ import annotations

from klamm_plugins.converter import Converter, HeaderConverter
from klamm_plugins.converters.avro import AvroConverter
from klamm_plugins.converters.bytearray import ByteArrayConverter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.json_schema_registry import JsonSchemaConverter
from klamm_plugins.converters.number import (
    BooleanConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from klamm_plugins.converters.protobuf import ProtobufConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from klamm_plugins.transform import Predicate, Transformation
from klamm_plugins.transforms.all import TRANSFORMS


@hookimpl
def register_converters() -> list[type[Converter] | type[HeaderConverter]]:
    return [
        AvroConverter,
        BooleanConverter,
        ByteArrayConverter,
        DoubleConverter,
        FloatConverter,
        IntegerConverter,
        JsonConverter,
        JsonSchemaConverter,
        LongConverter,
        ProtobufConverter,
        ShortConverter,
        SimpleHeaderConverter,
        StringConverter,
    ]


@hookimpl
def register_transforms() -> list[type[Transformation]]:
    return list(TRANSFORMS)


@hookimpl
def register_predicates() -> list[type[Predicate]]:
    return [HasHeaderKey, RecordIsTombstone, TopicNameMatches]
