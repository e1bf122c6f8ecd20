"""The list of the transforms that come with Klamm. Imported where plugins are listed or used, not by the base classes."""

from __future__ import annotations

from klamm_plugins.transform import Transformation
from klamm_plugins.transforms.cast import CastKey, CastValue
from klamm_plugins.transforms.debezium.by_logical_table_router import ByLogicalTableRouter
from klamm_plugins.transforms.debezium.event_router import EventRouter
from klamm_plugins.transforms.debezium.extract_new_record_state import ExtractNewRecordState
from klamm_plugins.transforms.debezium.scripting import ContentBasedRouter, FilterByCondition
from klamm_plugins.transforms.drop_headers import DropHeaders
from klamm_plugins.transforms.extract_field import ExtractFieldKey, ExtractFieldValue
from klamm_plugins.transforms.filter import Filter
from klamm_plugins.transforms.flatten import FlattenKey, FlattenValue
from klamm_plugins.transforms.header_from import HeaderFromKey, HeaderFromValue
from klamm_plugins.transforms.hoist_field import HoistFieldKey, HoistFieldValue
from klamm_plugins.transforms.insert_field import InsertFieldKey, InsertFieldValue
from klamm_plugins.transforms.insert_header import InsertHeader
from klamm_plugins.transforms.mask_field import MaskFieldKey, MaskFieldValue
from klamm_plugins.transforms.regex_router import RegexRouter
from klamm_plugins.transforms.replace_field import ReplaceFieldKey, ReplaceFieldValue
from klamm_plugins.transforms.set_schema_metadata import SetSchemaMetadataKey, SetSchemaMetadataValue
from klamm_plugins.transforms.timestamp_converter import TimestampConverterKey, TimestampConverterValue
from klamm_plugins.transforms.timestamp_router import TimestampRouter
from klamm_plugins.transforms.value_to_key import ValueToKey

TRANSFORMS: tuple[type[Transformation], ...] = (
    ByLogicalTableRouter,
    CastKey,
    CastValue,
    ContentBasedRouter,
    DropHeaders,
    EventRouter,
    ExtractFieldKey,
    ExtractFieldValue,
    ExtractNewRecordState,
    Filter,
    FilterByCondition,
    FlattenKey,
    FlattenValue,
    HeaderFromKey,
    HeaderFromValue,
    HoistFieldKey,
    HoistFieldValue,
    InsertFieldKey,
    InsertFieldValue,
    InsertHeader,
    MaskFieldKey,
    MaskFieldValue,
    RegexRouter,
    ReplaceFieldKey,
    ReplaceFieldValue,
    SetSchemaMetadataKey,
    SetSchemaMetadataValue,
    TimestampConverterKey,
    TimestampConverterValue,
    TimestampRouter,
    ValueToKey,
)
