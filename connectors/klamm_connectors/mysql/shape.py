"""The configured form of records. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm_connectors.mysql.values import Modes


@dataclass(frozen=True, slots=True)
class Shape:
    """The configured form of records."""

    prefix: str
    connector: str = "mysql"
    rows_only: bool = False
    plain_keys: bool = False
    tombstones: bool = True
    modes: Modes = field(default_factory=Modes)
    delimiter: str = "."
    schema_names: str = "none"
    """The adjustment of schemas' names: `none`, `avro`, `avro_unicode`."""
    field_names: str = "none"
    """The adjustment of fields' names, as above."""
