"""The rows of a field table, and the metaclass that collects them.

`struct` builds messages from them, `compiler` compiles encoders and decoders from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, dataclass_transform

VERSION_MAX: Final = 32767
UUID_ZERO: Final = bytes(16)
NO_TAGS: Final[Mapping[int, bytes]] = MappingProxyType({})


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()

_ZERO: Final[dict[str, object]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "float64": 0.0,
    "uuid": UUID_ZERO,
}


def parse_versions(text: str) -> tuple[int, int]:
    """Returns first and last version of a range; an empty range (last < first) for "none"."""
    if text == "none":
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class FieldSpec:
    """One row of a table. `type` is a wire type's name or a Struct class; `array` means an array of that type."""

    __slots__ = (
        "array",
        "compact",
        "default",
        "ignorable",
        "name",
        "nullable",
        "secret",
        "tag",
        "type",
        "versions",
    )

    def __init__(
        self,
        type_: Any,
        *,
        versions: str,
        nullable: str = "none",
        default: object = MISSING,
        tag: int | None = None,
        ignorable: bool = False,
        compact: bool = True,
        secret: bool = False,
    ) -> None:
        self.name = ""
        self.array = type(type_) is list
        self.type: str | StructType = type_[0] if self.array else type_
        self.versions = versions
        self.nullable = nullable
        self.default = default
        self.tag = tag
        self.ignorable = ignorable
        self.compact = compact
        self.secret = secret

    def element(self) -> FieldSpec:
        """Returns one element of an array field, as a field of its own that is never null."""
        return FieldSpec(self.type, versions=self.versions, compact=self.compact)

    @property
    def struct(self) -> StructType | None:
        """The nested Struct class, if the field is (an array of) one."""
        return None if isinstance(self.type, str) else self.type

    def in_version(self, version: int) -> bool:
        first, last = parse_versions(self.versions)
        return first <= version <= last

    def nullable_in(self, version: int) -> bool:
        first, last = parse_versions(self.nullable)
        return first <= version <= last

    def make_default(self) -> Any:
        """Returns a fresh default value, for an instance that was given none."""
        if self.default is not MISSING:
            return self.default
        if self.array:
            return []
        if isinstance(self.type, str):
            return _ZERO.get(self.type, 0)
        return self.type()


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Collects the rows of a class body into `FIELDS` and gives the class slots of those names."""

    FIELDS: tuple[FieldSpec, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        rows = [(key, value) for key, value in namespace.items() if type(value) is FieldSpec]
        for key, spec in rows:
            spec.name = key
            del namespace[key]
        namespace["FIELDS"] = tuple(spec for _, spec in rows)
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(key for key, _ in rows)
        return super().__new__(mcs, name, bases, namespace, **options)
