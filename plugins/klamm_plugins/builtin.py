"""The converters that come with Klamm, registered through the same hook as a stranger's."""

from __future__ import annotations

from klamm_plugins.converter import Converter, HeaderConverter
from klamm_plugins.converters.bytearray import ByteArrayConverter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_converters() -> list[type[Converter] | type[HeaderConverter]]:
    return [ByteArrayConverter, JsonConverter, SimpleHeaderConverter, StringConverter]
