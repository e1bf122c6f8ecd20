"""Field tables: the definition of a protocol message, and the methods of its instances.

A class body of `field(...)` rows is the whole definition. Creating a class only collects its rows, so that
importing a table is cheap; `__init__`, encoders and decoders are compiled from them on first use (see
`compiler`). Instances are plain slotted values; nothing is checked until they are encoded.

    class Endpoint(Struct):
        host: str = field("string", "0+")
        port: int = field("uint16", "0+")

Versions are written as Kafka writes them: "3", "0-5", "9+", "none".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from klamm_kafka.wire.errors import UnsupportedVersion
from klamm_kafka.wire.fields import MISSING, NO_TAGS, VERSION_MAX, FieldSpec, StructType, parse_versions
from klamm_kafka.wire.varint import Buffer

if TYPE_CHECKING:
    from klamm_kafka.wire.compiler import Decoder, Encoder, StepwiseDecoder, StepwiseEncoder

UNLIMITED: Final = 1 << 62


def field(
    type_: str | type[Struct] | list[str] | list[Any],
    versions: str,
    *,
    nullable: str = "none",
    default: object = MISSING,
    tag: int | None = None,
    ignorable: bool = False,
    compact: bool = True,
    secret: bool = False,
) -> Any:
    """Returns a row of a field table.

    `versions` are those that have the field, `nullable` those in which it may be null; `tag` makes it a tagged field;
    an `ignorable` value is dropped in a version without the field, any other raises UnsupportedVersion unless
    it is the default; `compact=False` keeps the old length prefix in flexible versions; repr does not show a `secret`
    value.
    """
    return FieldSpec(
        type_,
        versions=versions,
        nullable=nullable,
        default=default,
        tag=tag,
        ignorable=ignorable,
        compact=compact,
        secret=secret,
    )


class Struct(metaclass=StructType):
    """A value with the fields of its table. It takes keyword arguments only; a field that is left out has its default."""

    FIELDS: ClassVar[tuple[FieldSpec, ...]]

    if TYPE_CHECKING:
        unknown_tags: Mapping[int, bytes] = NO_TAGS
    else:
        __slots__ = ("unknown_tags",)

    def __init__(self, **values: Any) -> None:
        from klamm_kafka.wire.compiler import compile_init

        cls = type(self)
        cls.__init__ = compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        if any(getattr(self, spec.name) != getattr(other, spec.name) for spec in self.FIELDS):
            return False
        return dict(self.unknown_tags) == dict(other.unknown_tags)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        parts = [
            f"{spec.name}={'[hidden]' if spec.secret else repr(getattr(self, spec.name))}"
            for spec in self.FIELDS
        ]
        if self.unknown_tags:
            parts.append(f"unknown_tags={dict(self.unknown_tags)!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class Message(Struct):
    """A Struct that stands by itself: a request, a response, a header, or the key or value of a record.

    Class options: `versions` (those that exist), `flexible` (those with compact lengths and tags), `kind`,
    `api_key` where it has one, `unstable=True` where the last version is not released.
    """

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    KIND: ClassVar[str] = ""
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE_FROM: ClassVar[int] = VERSION_MAX
    UNSTABLE: ClassVar[bool] = False
    _encoders: ClassVar[dict[int, Encoder]]
    _stepwise_encoders: ClassVar[dict[int, StepwiseEncoder]]
    _decoders: ClassVar[dict[int, Decoder]]
    _stepwise_decoders: ClassVar[dict[int, StepwiseDecoder]]

    def __init_subclass__(
        cls, *, versions: str, flexible: str = "none", kind: str, api_key: int = -1, unstable: bool = False
    ) -> None:
        cls.API_KEY = api_key
        cls.KIND = kind
        cls.MIN_VERSION, cls.MAX_VERSION = parse_versions(versions)
        cls.FLEXIBLE_FROM = VERSION_MAX if flexible == "none" else parse_versions(flexible)[0]
        cls.UNSTABLE = unstable
        cls._encoders = {}
        cls._stepwise_encoders = {}
        cls._decoders = {}
        cls._stepwise_decoders = {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.FLEXIBLE_FROM

    @classmethod
    def decode(
        cls, buf: Buffer, version: int, pos: int = 0, elements_max: int = UNLIMITED
    ) -> tuple[Self, int]:
        """Returns (message, end), read from `buf` at `pos`; `buf` ends where the frame ends.

        Reads at most `elements_max` elements of arrays and tagged fields, all together: each costs some microseconds, and a
        buffer may hold one for every byte. `records` come back as views of `buf` (of a bytearray they can be written to, and have
        no hash), everything else is copied. Raises MalformedMessage for bytes that are not this message, UnsupportedVersion
        for a version that it does not have.
        """
        decoder = cls._decoders.get(version)
        if decoder is None:
            from klamm_kafka.wire.compiler import compile_decoder

            cls._check_version(version)
            decoder = cls._decoders[version] = compile_decoder(
                cls, version, flexible=cls.is_flexible(version)
            )
        return decoder(buf, pos, elements_max)

    @classmethod
    def decode_steps(
        cls, buf: Buffer, version: int, pos: int = 0, elements_max: int = UNLIMITED
    ) -> Generator[None, None, tuple[Self, int]]:
        """Does what `decode` does, in steps: an event loop can do other things between them."""
        decoder = cls._stepwise_decoders.get(version)
        if decoder is None:
            from klamm_kafka.wire.compiler import compile_stepwise_decoder

            cls._check_version(version)
            decoder = cls._stepwise_decoders[version] = compile_stepwise_decoder(
                cls, version, flexible=cls.is_flexible(version)
            )
        return decoder(buf, pos, elements_max)

    def encode(self, version: int) -> bytes:
        """Returns the body in this version, without a header.

        Raises UnsupportedVersion for a value that this version cannot express, UnencodableValue for one that no version can.
        """
        return b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[bytes | bytearray | memoryview]:
        """Returns the body as `encode` does, but in pieces: `records` are among them as they were given, uncopied."""
        encoder = self._encoders.get(version)
        if encoder is None:
            from klamm_kafka.wire.compiler import compile_encoder

            self._check_version(version)
            encoder = self._encoders[version] = compile_encoder(
                type(self), version, flexible=self.is_flexible(version)
            )
        return encoder(self)

    def encode_steps(self, version: int) -> Generator[None, None, list[bytes]]:
        """Does what `encode` does, in steps, and returns the body in pieces of some kilobytes.

        An array may be anything that has a length and can be iterated once: its elements can be made as they are encoded.
        """
        encoder = self._stepwise_encoders.get(version)
        if encoder is None:
            from klamm_kafka.wire.compiler import compile_stepwise_encoder

            self._check_version(version)
            encoder = self._stepwise_encoders[version] = compile_stepwise_encoder(
                type(self), version, flexible=self.is_flexible(version)
            )
        return encoder(self)

    @classmethod
    def first_field(cls, version: int) -> str | None:
        """Returns the name of the field with which the body begins; None if it has none."""
        return next((spec.name for spec in cls.FIELDS if spec.in_version(version)), None)

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise UnsupportedVersion(
                f"{cls.__name__} has no version {version}: it has {cls.MIN_VERSION} to {cls.MAX_VERSION}"
            )
