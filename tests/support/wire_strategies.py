"""Hypothesis strategies for messages, derived from their field tables, and what a version can say of them."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from random import Random
from typing import Any

from hypothesis import strategies as st

from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.fields import FieldSpec
from klamm_kafka.wire.struct import Message, Struct

RECORD_MODULES = ("header", "group_records", "transaction_records", "consumer_protocol", "end_txn_marker")
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def all_messages() -> Iterator[type[Message]]:
    """Yields every message class there is: requests and responses by API key, then headers and records."""
    for key in ApiKey:
        yield from message_types(key)
    for name in RECORD_MODULES:
        module = import_module(f"klamm_kafka.wire.messages.{name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                yield value


def versions_of(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


def integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.sampled_from((0, 1, -1, low, high)) | st.integers(low, high)


def scalars(spec: FieldSpec) -> st.SearchStrategy[Any]:
    if spec.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    match spec.type:
        case "bool":
            return st.booleans()
        case "uint16":
            return st.integers(0, 65535)
        case "float64":
            return st.floats(allow_nan=False)
        case "string":
            return st.text(max_size=6) | st.just("x" * 200)
        case "uuid":
            return st.sampled_from((bytes(16), bytes(range(16)))) | st.binary(min_size=16, max_size=16)
        case "bytes" | "records":
            return st.binary(max_size=6) | st.just(b"y" * 200)
        case str() as name:
            return integers(BITS[name])
        case struct:
            return structs(struct)


def values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    one = scalars(spec)
    strategy = st.lists(one, max_size=2) if spec.array else one
    # A default is likelier than chance makes it, because tagged fields are written only when they differ.
    choices = [strategy, strategy, st.builds(spec.make_default)]
    if spec.nullable != "none":
        choices.append(st.none())
    return st.one_of(choices)


unknown_tags = st.just({}) | st.dictionaries(st.integers(90, 20_000), st.binary(max_size=4), max_size=2)


@cache
def structs(cls: type[Struct]) -> st.SearchStrategy[Any]:
    """Instances with a value in every field, whatever version has it: `project` cuts them down.

    To make a strategy takes longer than to draw from it.
    """
    fields = {spec.name: values(spec) for spec in cls.FIELDS}
    return st.builds(cls, **fields, unknown_tags=unknown_tags)


def filled(cls: type[Struct], seed: int) -> Any:
    """Returns an instance in which nothing is empty and nothing is null, so that no field of any depth goes untested."""
    random = Random(f"{seed} {cls.__name__}")

    def one(spec: FieldSpec) -> Any:
        match spec.type:
            case "bool":
                return True
            case "uint16":
                return random.randint(1, 65535)
            case "float64":
                return random.uniform(1, 1e9)
            case "string":
                return "".join(random.choices("aé漢", k=random.choice((1, 7, 150))))
            case "uuid":
                return random.randbytes(16)
            case "bytes" | "records":
                return random.randbytes(random.choice((1, 5, 300)))
            case str() as name if spec.name.endswith("error_code"):
                return random.choice([int(code) for code in ErrorCode if code])
            case str() as name:
                return random.getrandbits(BITS[name] - 1) or 1
            case struct:
                return filled(struct, random.getrandbits(30))

    fields = {s.name: [one(s), one(s)] if s.array else one(s) for s in cls.FIELDS}
    return cls(**fields, unknown_tags={99: b"z"} if seed % 2 else {})


def project(value: Struct, version: int, *, flexible: bool, with_unknown_tags: bool = True) -> Any:
    """Returns a copy of the value with what this version can say: the rest is default."""
    kept: dict[str, Any] = {}
    for spec in value.FIELDS:
        present = spec.in_version(version) and (spec.tag is None or flexible)
        content = getattr(value, spec.name) if present else spec.make_default()
        if content is None and not spec.nullable_in(version) and present:
            content = (
                []
                if spec.array
                else spec.struct()
                if spec.struct
                else b""
                if spec.type in ("bytes", "records")
                else ""
            )
        if spec.struct and content is not None and present:

            def cut(item):
                return project(item, version, flexible=flexible, with_unknown_tags=with_unknown_tags)

            content = [cut(item) for item in content] if spec.array else cut(content)
        kept[spec.name] = content
    if flexible and with_unknown_tags:
        kept["unknown_tags"] = value.unknown_tags
    return type(value)(**kept)


def expressible(message: Message, version: int, **options: bool) -> Any:
    return project(message, version, flexible=message.is_flexible(version), **options)
