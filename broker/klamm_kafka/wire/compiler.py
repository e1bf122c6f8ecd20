"""Compiles field tables to Python source: one encoder and one decoder per (message, version).

Nested structs are inlined, so a message is one function without calls per field; runs of fixed-size fields
are one `struct` call. The generated code checks as little as possible on the good path. When it raises, the
number of the line tells the field (each line of the source is recorded with its field), and the local `p` tells the
offset: errors are exact and cost nothing until they happen.

To read the source of a function, print `write_encoder(message, version, flexible).lines`, or `write_decoder`'s.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from klamm_kafka.wire.codec_source import Source
from klamm_kafka.wire.compile_decoder import write_decoder
from klamm_kafka.wire.compile_encoder import write_encoder
from klamm_kafka.wire.errors import (
    MalformedMessage,
    TruncatedMessage,
    UnencodableValue,
    UnsupportedVersion,
)
from klamm_kafka.wire.fields import MISSING, NO_TAGS, StructType
from klamm_kafka.wire.varint import Buffer

Encoder = Callable[[Any], list[Any]]
Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
StepwiseEncoder = Callable[[Any], Generator[None, None, list[bytes]]]
StepwiseDecoder = Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]


def compile_init(cls: StructType) -> Callable[..., None]:
    """Returns the keyword-only `__init__` of a struct. Each instance gets mutable defaults of its own."""
    out = Source()
    out.namespace |= {"MISSING": MISSING, "NO_TAGS": NO_TAGS}
    params, body = [], []
    for spec in cls.FIELDS:
        if spec.default is MISSING and (spec.array or spec.struct):
            maker = "[]" if spec.array else out.constant("make", spec.struct) + "()"
            params.append(f"{spec.name}=MISSING")
            body.append(f"self.{spec.name} = {maker} if {spec.name} is MISSING else {spec.name}")
        else:
            params.append(f"{spec.name}={out.constant('default', spec.make_default())}")
            body.append(f"self.{spec.name} = {spec.name}")
    out.add(f"def __init__(self, *, {', '.join([*params, 'unknown_tags=NO_TAGS'])}):")
    out.depth = 1
    for line in [*body, "self.unknown_tags = unknown_tags"]:
        out.add(line)
    init: Callable[..., None] = out.compile(f"{cls.__name__}.__init__", "__init__")
    return init


def compile_encoder(cls: StructType, version: int, *, flexible: bool) -> Encoder:
    """Returns the encoder of a message in one version."""
    out = write_encoder(cls, version, flexible)
    out.namespace["FAILED"] = lambda error: _encode_failed(out, cls.__name__, version, error)
    encoder: Encoder = out.compile(f"{cls.__name__} v{version} encode", "encode")
    return encoder


def compile_stepwise_encoder(cls: StructType, version: int, *, flexible: bool) -> StepwiseEncoder:
    """Returns an encoder of a message in one version that stops again and again."""
    out = write_encoder(cls, version, flexible, stepwise=True)
    out.namespace["FAILED"] = lambda error: _encode_failed(out, cls.__name__, version, error)
    encoder: StepwiseEncoder = out.compile(f"{cls.__name__} v{version} encode in steps", "encode")
    return encoder


def compile_decoder(cls: StructType, version: int, *, flexible: bool) -> Decoder:
    """Returns the decoder of a message in one version."""
    out = write_decoder(cls, version, flexible)
    out.namespace["FAILED"] = lambda error: _decode_failed(out, f"{cls.__name__} v{version}", error)
    decoder: Decoder = out.compile(f"{cls.__name__} v{version} decode", "decode")
    return decoder


def compile_stepwise_decoder(cls: StructType, version: int, *, flexible: bool) -> StepwiseDecoder:
    """Returns a decoder of a message in one version that stops again and again."""
    out = write_decoder(cls, version, flexible, stepwise=True)
    out.namespace["FAILED"] = lambda error: _decode_failed(out, f"{cls.__name__} v{version}", error)
    decoder: StepwiseDecoder = out.compile(f"{cls.__name__} v{version} decode in steps", "decode")
    return decoder


def _encode_failed(out: Source, message: str, version: int, error: Exception) -> NoReturn:
    fields, _ = out.at(error.__traceback__)
    title = f"{message} v{version}"
    if isinstance(error, UnsupportedVersion):
        raise UnsupportedVersion(f"{title}: {error}") from None
    path = " or ".join(path for path, _ in fields) or "?"
    error.__traceback__ = None  # as below
    raise UnencodableValue(title, path, str(error)) from None


def _decode_failed(out: Source, title: str, error: Exception) -> NoReturn:
    fields, names = out.at(error.__traceback__)
    offset, end = names.get("p", 0), names.get("n", 0)
    error.__traceback__ = (
        None  # it refers to the frame, whose locals refer back to it and to the buffer: a cycle
    )
    path = fields[0][0] if fields else "?"
    if isinstance(error, (struct.error, IndexError, EOFError)):
        for field, size in fields:  # of a run: the field that the end cuts
            path = field
            if offset + size > end:
                break
            offset += size
        raise TruncatedMessage(
            title, path, offset, f"needs more than the {end - offset} bytes left"
        ) from None
    if isinstance(error, UnicodeDecodeError):
        raise MalformedMessage(title, path, offset, "not UTF-8") from None
    raise MalformedMessage(title, path, offset, str(error)) from None
