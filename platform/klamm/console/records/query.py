"""A search of records, as the page's address says it. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.admin.reset import ResetError, parse_datetime
from klamm.console.errors import ConsoleError
from klamm.console.records.expression import compile_expression, compile_path
from klamm.console.records.plan import Places
from klamm.console.records.shown import FORMS, Record

LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
STARTS: Final = ("newest", "oldest", "offset", "time")
PARTITION_MAX: Final = 1_000_000
Test = Callable[[Record], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search. `at`: the offset or the time in ms where it begins; `until_ms`: no record that is later; `places`: where it goes on;
    `committed`: no record of a transaction that is open or was aborted.

    `raw` tests look at bytes, and come first; `tests` look at decoded values.
    """

    start: str = "newest"
    at: int = 0
    until_ms: int | None = None
    places: Places | None = None
    committed: bool = True
    partitions: frozenset[int] | None = None
    limit: int = LIMIT
    key_form: str = "auto"
    value_form: str = "auto"
    raw: tuple[Test, ...] = ()
    tests: tuple[Test, ...] = ()

    @property
    def picky(self) -> bool:
        """True where some records are left out by what they hold."""
        return bool(self.raw or self.tests)

    def wants(self, record: Record) -> bool:
        """Tells whether a record is a match."""
        if self.until_ms is not None and record.timestamp is not None and record.timestamp > self.until_ms:
            return False
        return all(test(record) for test in self.raw) and all(test(record) for test in self.tests)


def read_query(given: Mapping[str, str]) -> Query:
    """Returns the search of an address' parameters. Raises ConsoleError naming the field."""
    start = given.get("start") or "newest"
    if start not in STARTS:
        raise ConsoleError(f"start: {start!r} is not one of {', '.join(STARTS)}")
    at = 0
    if start == "offset":
        at = _number("offset", given.get("at", "") or "0", -(2**62))
    elif start == "time":
        at = read_time("time", given.get("at", ""))
    until = given.get("until", "")
    key_form, value_form = given.get("kf") or "auto", given.get("vf") or "auto"
    for name, form in (("kf", key_form), ("vf", value_form)):
        if form not in FORMS:
            raise ConsoleError(f"{name}: {form!r} is not one of {', '.join(FORMS)}")
    raw, tests = _tests(given)
    return Query(
        start=start,
        at=at,
        until_ms=read_time("until", until) if until else None,
        places=read_places(on) if (on := given.get("on", "")) else None,
        committed=given.get("un", "") != "1",
        partitions=read_partitions(given.get("p", "")),
        limit=min(_number("limit", given.get("limit") or str(LIMIT), 1), LIMIT_MAX),
        key_form=key_form,
        value_form=value_form,
        raw=raw,
        tests=tests,
    )


def _tests(given: Mapping[str, str]) -> tuple[tuple[Test, ...], tuple[Test, ...]]:
    raw: list[Test] = []
    tests: list[Test] = []
    if key := given.get("key", ""):
        raw.append(key_test(key))
    if text := given.get("text", ""):
        raw.append(text_test(text))
    if path := given.get("path", ""):
        tests.append(_path_test(path, given.get("is", "")))
    if expression := given.get("where", ""):
        tests.append(_expression_test(expression))
    return tuple(raw), tuple(tests)


def key_test(key: str) -> Test:
    """Returns a test of the key: `user-7` exactly, `user-*` by its beginning. A key by a schema is compared as it is shown."""
    wanted = key.encode()
    begins = wanted.endswith(b"*")
    wanted = wanted.removesuffix(b"*") if begins else wanted

    def test(r: Record) -> bool:
        found = r.key
        if found is not None and found[:1] == b"\0" and r.key_form in ("auto", "registry"):
            value = r.decoded_key().value
            found = found if value is None else str(value).encode()
        return found is not None and (found.startswith(wanted) if begins else found == wanted)

    return test


def text_test(text: str) -> Test:
    """Returns a test whether key, value or a header contains a text, in whatever case."""
    wanted = text.lower().encode()
    plain = text.isascii()  # other letters have cases of several bytes
    folded = text.casefold()

    def holds(part: bytes | None) -> bool:
        if part is None:
            return False
        return wanted in part.lower() if plain else folded in part.decode(errors="replace").casefold()

    def test(r: Record) -> bool:
        return holds(r.value) or holds(r.key) or any(holds(n.encode()) or holds(v) for n, v in r.headers)

    return test


def _path_test(path: str, wanted: str) -> Test:
    """Returns a test whether there is something at a path of the value and, with `wanted`, whether it is that."""
    follow = compile_path(path)
    if not wanted:
        return lambda r: follow(r.decoded_value().value) is not None
    try:
        as_json: Any = json.loads(wanted)
    except ValueError:
        as_json = wanted

    def test(r: Record) -> bool:
        found = follow(r.decoded_value().value)
        return found is not None and (found in (as_json, wanted))

    return test


def _expression_test(text: str) -> Test:
    evaluate = compile_expression(text)

    def test(r: Record) -> bool:
        try:
            return bool(evaluate(r))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, RecursionError):
            return False

    return test


def read_partitions(text: str) -> frozenset[int] | None:
    """Returns the partitions of `0,3-5`; None for all. Raises ConsoleError."""
    if not text.strip():
        return None
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        first = _number("partitions", low, 0, PARTITION_MAX)
        last = _number("partitions", high, first, PARTITION_MAX) if dash else first
        found.update(range(first, last + 1))
    return frozenset(found)


def read_places(text: str) -> Places:
    """Returns the places of `0:120,1:7`. Raises ConsoleError."""
    found: Places = {}
    for word in text.split(","):
        partition, colon, offset = word.partition(":")
        if not colon:
            raise ConsoleError(f"on: {word!r} is not PARTITION:OFFSET")
        found[_number("on", partition, 0, PARTITION_MAX)] = _number("on", offset, 0)
    return found


def written_places(places: Places) -> str:
    """Returns places as an address has them."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(places.items()))


def read_time(name: str, text: str) -> int:
    """Returns `2026-01-31T23:59:59` (in UTC, or with +01:00), or ms since 1970, as ms. Raises ConsoleError."""
    given = text.strip().replace(" ", "T")
    if given.isdecimal() and given.isascii():
        return _number(name, given, 0)
    if len(given) == 10:
        given += "T00:00:00"
    try:
        return parse_datetime(given)
    except ResetError as e:
        raise ConsoleError(f"{name}: {e}") from None


def _number(name: str, text: str, least: int, most: int = 2**63 - 1) -> int:
    given = text.strip()
    if (
        not given.lstrip("-").isdecimal()
        or not given.isascii()
        or len(given) > 20
        or not least <= int(given) <= most
    ):
        raise ConsoleError(
            f"{name}: {text!r} is no whole number" + (f" from {least} on" if least >= 0 else "")
        )
    return int(given)
