"""Protobuf's JSON written as messages: the bytes that stand behind a schema's number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import json_format

from klamm_plugins.converters import protobuf_pool
from klamm_plugins.converters.protobuf import to_place

_FIRST: Final = (0,)


class FirstMessage:
    """The first message of a schema, by which values are written. `references` are the texts of imported files by their names.

    Raises DataError for a schema that cannot be read.
    """

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self.schema = protobuf_pool.read(text, references)
        self._class = protobuf_pool.message_class(self.schema.message(_FIRST))
        self._place = to_place(_FIRST)

    def encode(self, value: Any) -> bytes:
        """Return the message's place in the schema, and the message. Raises ValueError for a value that does not fit."""
        try:
            message = json_format.ParseDict(value, self._class(), descriptor_pool=self.schema.file.pool)
        except (json_format.Error, TypeError, ValueError, AttributeError) as e:
            raise ValueError(str(e)) from None
        return self._place + bytes(message.SerializeToString())
