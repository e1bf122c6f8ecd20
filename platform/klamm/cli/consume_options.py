"""Options of `klamm consume` that choose records, and say what their bytes mean."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.registry_client import Registry
from klamm_base.errors import ConfigError

if TYPE_CHECKING:
    from klamm.records.formats import Decode

_FORMATS = "raw, string, json, hex, base64, short, int, long, float, double; with a registry avro, jsonschema, protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The topics' partitions, and where to begin in them."""

    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the first record.")] = (
        False
    )
    offset: Annotated[
        str | None,
        typer.Option("--offset", help="start, end, an offset, -N (the last N), or @MS (a timestamp)."),
    ] = None
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Only this partition; may be given several times."),
    ] = None
    regex: Annotated[
        bool, typer.Option("--regex", help="Topics are regular expressions for whole names.")
    ] = False

    def check(self, group: str | None, from_: str | None) -> None:
        """Raise BadParameter for options that exclude each other."""
        if self.from_beginning and self.offset:
            raise typer.BadParameter("give --from-beginning or --offset, not both", param_hint="--offset")
        if group and (self.offset or self.partition):
            raise typer.BadParameter(
                "a group chooses its offsets and partitions itself", param_hint="--group"
            )
        if from_ and (self.from_beginning or self.offset or group):
            raise typer.BadParameter(
                "give --from, or the other options for where to begin", param_hint="--from"
            )

    def begin(self, place: tuple[str, int] | None, *, to_end: bool) -> str:
        """Return where to begin, in the words of --offset. A reader to an end begins at the start."""
        if place is not None:
            return f"@{place[1]}" if place[0] == "time" else str(place[1])
        return self.offset or ("start" if self.from_beginning or to_end else "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The choice of records to be printed."""

    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="Begin at this offset, or at this time: ISO 8601, @MS, or 90m: 90 minutes ago."
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option("--to", help="End before this offset or time, and at the end of the partitions."),
    ] = None
    grep: Annotated[
        str | None,
        typer.Option("--grep", help="Only records with a key or value that has this pattern in it."),
    ] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only records with this key.")] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY=VALUE", help="Only records with this header."),
    ] = None
    jsonpath: Annotated[
        list[str] | None,
        typer.Option(
            "--jsonpath",
            help="Only records whose value fulfils this: $.user.id, $.items[*].price > 10, $.name =~ '^a'.",
        ),
    ] = None

    def place(self, text: str | None) -> tuple[str, int] | None:
        """Return `offset` or `time` with the number. Raises ConfigError."""
        from klamm.cli.times import parse_time

        if text is None:
            return None
        if text.isdecimal():
            return "offset", int(text)
        return "time", parse_time(text.removeprefix("@"))

    def filter(self) -> Callable[[Record], bool] | None:
        """Return a function that says whether a record is printed; None where all are. Raises ConfigError."""
        from klamm.records.formats import as_bytes
        from klamm.records.paths import parse

        tests: list[Callable[[Record], bool]] = []
        if self.key is not None:
            wanted = self.key.encode()
            tests.append(lambda r: as_bytes(r.key_value) == wanted and r.key() is not None)
        if self.grep is not None:
            try:
                pattern = re.compile(self.grep.encode())
            except re.error as e:
                raise ConfigError(f"--grep {self.grep}: no regular expression: {e}") from None
            tests.append(
                lambda r: any(
                    pattern.search(as_bytes(v)) for v in (r.key_value, r.value_value) if v is not None
                )
            )
        for word in self.header or ():
            name, equals, value = word.partition("=")
            if not equals:
                raise ConfigError(f"--header {word}: must be KEY=VALUE")
            tests.append(lambda r, pair=(name, value.encode()): pair in (r.headers() or []))  # type: ignore[misc]
        for text in self.jsonpath or ():
            condition = parse(text)
            tests.append(lambda r, fulfils=condition: fulfils(_document(r.value_value)))  # type: ignore[misc]
        return (lambda record: all(test(record) for test in tests)) if tests else None


def _document(value: Any) -> Any:
    """Return a value as JSON; None for text that is none."""
    if isinstance(value, bytes | str):
        try:
            return json.loads(value)
        except ValueError:
            return None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding(Registry):
    """The formats of keys and values."""

    key_format: Annotated[str, typer.Option("--key-format", help=f"{_FORMATS}.")] = "raw"
    value_format: Annotated[str, typer.Option("--value-format", help="The same for values.")] = "raw"
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Pass over records that are not in these formats, and say so.")
    ] = False

    def decoders(self) -> tuple[Decode, Decode]:
        """Return the functions for keys and values. Raises ConfigError."""
        from klamm.records import formats

        formats.check(self.key_format, "--key-format")
        formats.check(self.value_format, "--value-format")
        return (
            formats.decoder(self.key_format, is_key=True, registry=self._settings(self.key_format)),
            formats.decoder(self.value_format, is_key=False, registry=self._settings(self.value_format)),
        )

    def _settings(self, name: str) -> dict[str, str]:
        """Return the settings of a converter that asks a registry."""
        from klamm.records.formats import needs_registry

        if not needs_registry(name):
            return {}
        settings = {"schema.registry.url": self.api().server.url}
        if self.registry_user is not None:
            settings |= {
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": self.registry_user,
            }
        return settings

    @property
    def plain(self) -> bool:
        """True where keys and values are printed as they are."""
        return self.key_format == self.value_format == "raw"


class Record:
    """A message with its key and value decoded; the rest is the message's own."""

    __slots__ = ("_message", "key_value", "value_value")

    def __init__(self, message: Any, keys: Decode, values: Decode) -> None:
        from klamm.records.formats import decoded

        self._message = message
        at = f"{message.topic()}-{message.partition()}@{message.offset()}"
        self.key_value = decoded(keys, message.topic(), message.key(), f"key of {at}")
        self.value_value = decoded(values, message.topic(), message.value(), f"value of {at}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def key(self) -> bytes | None:
        """Return the key as it is printed."""
        return self._text(self.key_value, self._message.key())

    def value(self) -> bytes | None:
        """Return the value as it is printed."""
        return self._text(self.value_value, self._message.value())

    @staticmethod
    def _text(value: Any, raw: bytes | None) -> bytes | None:
        from klamm.records.formats import as_bytes

        return None if raw is None else as_bytes(value)


def told_bad(error: Exception) -> None:
    """Say on standard error that a record is passed over."""
    sys.stderr.write(f"klamm: passed over: {error}\n")
