"""Options of `klamm produce` that say how lines become records, and their keys and values bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from klamm.cli.registry_client import Registry
from klamm_base.errors import ConfigError, KlammError

_FORMATS = "raw, string, json, hex, base64, short, int, long, float, double; with a registry avro, jsonschema, protobuf"


class Record(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = -1
    """-1: chosen by the key."""
    timestamp: int = 0
    """Milliseconds since 1970; 0: now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding(Registry):
    """The form of lines, and the formats of keys and values."""

    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="How a line is read, such as '%k:%v': %k key, %v value, %h headers as a=1,b=2, %p partition, %d timestamp in ms,"
            " %% a percent sign; \\\\t a tab. Or json: what `klamm consume -o json` prints, with its partitions and times.",
        ),
    ] = None
    now: Annotated[
        bool, typer.Option("--now", help="Give records the present time, not that of their lines.")
    ] = False
    key_format: Annotated[str, typer.Option("--key-format", help=f"{_FORMATS}.")] = "raw"
    value_format: Annotated[str, typer.Option("--value-format", help="The same for values.")] = "raw"
    key_schema: Annotated[
        Path | None, typer.Option("--key-schema", help="Register this schema for keys first.")
    ] = None
    value_schema: Annotated[
        Path | None, typer.Option("--value-schema", help="Register this schema for values first.")
    ] = None

    def template(self) -> Template | None:
        """Return the form of lines. Raises BadParameter."""
        return None if self.format_ is None else parse_template(self.format_)

    def encoded(self, records: Iterator[Record], topic: str) -> Iterator[Record]:
        """Yield records with keys and values in their formats, and their times. Raises ConfigError, KlammError."""
        if self.now:
            records = (r._replace(timestamp=0) for r in records)
        if self.key_format == self.value_format == "raw":
            return records
        key = self._encoder(self.key_format, "--key-format", f"{topic}-key", self.key_schema)
        value = self._encoder(self.value_format, "--value-format", f"{topic}-value", self.value_schema)
        return (
            r._replace(
                key=_encoded(key, r.key, f"record {n}: key"),
                value=_encoded(value, r.value, f"record {n}: value"),
            )
            for n, r in enumerate(records, 1)
        )

    def _encoder(self, name: str, option: str, subject: str, schema: Path | None) -> Callable[[bytes], bytes]:
        from klamm.records import formats
        from klamm.records.writing import encoder

        formats.check(name, option)
        if name in formats.PLAIN:
            if schema is not None:
                raise ConfigError(f"a schema is for avro, jsonschema and protobuf, not for {option} {name}")
            return lambda text: formats.encode(name, text)
        try:
            text = None if schema is None else schema.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{schema}: cannot be read: {getattr(e, 'strerror', None) or e}") from None
        return encoder(name, self.api(), subject, text)


def _encoded(encode: Callable[[bytes], bytes], data: bytes | None, what: str) -> bytes | None:
    try:
        return None if data is None else encode(data)
    except ValueError as e:
        raise KlammError(f"{what}: {e}") from None


# ---- lines


class Template(NamedTuple):
    """The parts of a line: the letters of places, and the text between them. `json`: a JSON object a line."""

    places: tuple[str, ...]
    between: tuple[bytes, ...]
    """The text before each place, and after the last."""
    json: bool = False


def parse_template(text: str) -> Template:
    """Return the parts of a pattern such as `%k:%v`. Raises BadParameter."""
    if text == "json":
        return Template((), (), json=True)
    places: list[str] = []
    between = [""]
    rest = text.replace("\\t", "\t")
    while rest:
        if not rest.startswith("%"):
            plain, mark, after = rest.partition("%")
            between[-1] += plain
            rest = mark + after
            continue
        letter, rest = rest[1:2], rest[2:]
        if letter == "%":
            between[-1] += "%"
        elif letter in {"k", "v", "h", "p", "d"} and letter not in places:
            places.append(letter)
            between.append("")
        else:
            raise typer.BadParameter(
                f"%{letter} is not one of %k %v %h %p %d %%, or is there twice", param_hint="--format"
            )
    if any(not part for part in between[1:-1]):
        raise typer.BadParameter("text must stand between two places", param_hint="--format")
    return Template(tuple(places), tuple(part.encode() for part in between))


def template_records(template: Template, lines: Iterator[bytes], key: bytes | None) -> Iterator[Record]:
    """Yield the record of each line; `key` where the lines have none. Raises KlammError that names the line."""
    for number, line in enumerate(lines, 1):
        try:
            record = _from_json(line) if template.json else _split(template, line)
        except ValueError as e:
            raise KlammError(f"line {number}: {e}") from None
        yield record._replace(key=key) if record.key is None and "k" not in template.places else record


def _split(template: Template, line: bytes) -> Record:
    parts: dict[str, bytes] = {}
    first, *others = template.between
    if not line.startswith(first):
        raise ValueError(f"does not begin with {first.decode()!r}")
    rest = line[len(first) :]
    for letter, end in zip(template.places, others, strict=True):
        if end:
            found, mark, rest = rest.partition(end)
            if not mark:
                raise ValueError(f"no {end.decode()!r} in {found[:40].decode(errors='backslashreplace')!r}")
        else:
            found = rest
        parts[letter] = found
    partition, timestamp = parts.get("p"), parts.get("d")
    return Record(
        key=parts.get("k"),
        value=parts.get("v", b"" if template.places else line),
        headers=_headers(parts.get("h", b"")),
        partition=-1 if partition is None else int(partition),
        timestamp=0 if timestamp is None else _time(timestamp),
    )


def _time(text: bytes) -> int:
    if not text.isdigit() or not 0 < int(text) < 2**63:
        raise ValueError(f"{text[:40].decode(errors='backslashreplace')!r} is no time in ms since 1970")
    return int(text)


def _headers(text: bytes) -> list[tuple[str, bytes | None]]:
    pairs = [word.partition(b"=") for word in text.split(b",") if word]
    if any(not equals for _, equals, _ in pairs):
        shown = text.decode(errors="backslashreplace")
        raise ValueError(f"{shown!r} must be name=value,name=value")
    return [(name.decode(), value) for name, _, value in pairs]


def _from_json(line: bytes) -> Record:
    """Return the record of a line as `klamm consume -o json` prints it; its topic and offset are not used."""
    found = json.loads(line)
    if not isinstance(found, dict) or "value" not in found:
        raise ValueError('must be like {"key": "k", "value": "v", "headers": [["name", "v"]]}')
    headers = found.get("headers") or []
    rows = headers if isinstance(headers, list) else [headers]
    if not all(isinstance(h, list) and len(h) == 2 and isinstance(h[0], str) for h in rows):
        raise ValueError('headers must be like [["name", "value"]]')
    return Record(
        key=_data(found.get("key")),
        value=_data(found["value"]),
        headers=[(name, _data(value)) for name, value in headers],
        partition=_number(found, "partition", 2**31),
        timestamp=max(_number(found, "timestamp", 2**63), 0),  # -1: the record had none
    )


def _number(found: dict[str, Any], name: str, below: int) -> int:
    """Return a member that is a whole number, -1 for one that is not there. Raises ValueError."""
    number = found.get(name)
    if number is None:
        return -1
    if type(number) is not int or not -1 <= number < below:
        raise ValueError(f"{name} is {json.dumps(number)}, not a whole number from -1 to {below - 1}")
    return number


def _data(value: Any) -> bytes | None:
    import base64

    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str() as text, **rest} if not rest:
            return base64.b64decode(text, validate=True)
        case _:
            return json.dumps(value, ensure_ascii=False).encode()
