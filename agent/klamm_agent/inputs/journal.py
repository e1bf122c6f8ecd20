"""Entries of systemd's journal: reads journalctl's export format, and turns an entry into an event's time and ECS fields. Pure."""

from __future__ import annotations

from typing import Any, Final

from klamm_agent.syslog.messages import FACILITIES, SEVERITIES

Entry = dict[bytes, bytes]

_PLACES: Final[dict[bytes, tuple[str, ...]]] = {
    b"_HOSTNAME": ("host", "name"),
    b"_MACHINE_ID": ("host", "id"),
    b"SYSLOG_IDENTIFIER": ("log", "syslog", "appname"),
    b"SYSLOG_PID": ("log", "syslog", "procid"),
    b"CODE_FILE": ("log", "origin", "file", "name"),
    b"CODE_LINE": ("log", "origin", "file", "line"),
    b"CODE_FUNC": ("log", "origin", "function"),
    b"_PID": ("process", "pid"),
    b"_COMM": ("process", "name"),
    b"_EXE": ("process", "executable"),
    b"_CMDLINE": ("process", "command_line"),
    b"_UID": ("user", "id"),
    b"_GID": ("user", "group", "id"),
    b"_SYSTEMD_UNIT": ("systemd", "unit"),
    b"_SYSTEMD_USER_UNIT": ("systemd", "user_unit"),
    b"_SYSTEMD_SLICE": ("systemd", "slice"),
    b"_SYSTEMD_INVOCATION_ID": ("systemd", "invocation_id"),
    b"_TRANSPORT": ("systemd", "transport"),
    b"_BOOT_ID": ("systemd", "boot_id"),
    b"MESSAGE_ID": ("systemd", "message_id"),
    b"CONTAINER_ID_FULL": ("container", "id"),
    b"CONTAINER_NAME": ("container", "name"),
    b"IMAGE_NAME": ("container", "image", "name"),
}
_NUMBERS: Final = frozenset((b"_PID", b"CODE_LINE"))
_HERE: Final = frozenset(
    (
        b"MESSAGE",
        b"PRIORITY",
        b"SYSLOG_FACILITY",
        b"SYSLOG_TIMESTAMP",
        b"SYSLOG_RAW",
        b"_SOURCE_REALTIME_TIMESTAMP",
    )
)
_KEPT: Final = 1024
_TIME_DIGITS: Final = 20  # of a number of 64 bits
_FIELD_MAX: Final = 768 * 1024 * 1024  # bytes; systemd's own bound of a field


class ExportError(ValueError):
    """The stream is not in the journal's export format."""


class Export:
    """A parser of the stream of `journalctl -o export`; the stream may arrive cut at any byte."""

    def __init__(self) -> None:
        self._held = b""
        self._entry: Entry = {}

    def feed(self, data: bytes) -> list[Entry]:
        """Returns the entries that are complete now. A field that repeats has its last value. Raises ExportError."""
        data = self._held + data
        found: list[Entry] = []
        at, entry = 0, self._entry
        while (end := data.find(b"\n", at)) >= 0:
            if end == at:
                if entry:
                    found.append(entry)
                    entry = {}
                at += 1
                continue
            name, equals, value = data[at:end].partition(b"=")
            after = end + 1
            if not equals:  # a value that holds line ends: its length, 8 bytes, comes before it
                length = int.from_bytes(data[after : after + 8], "little")
                if len(data) < after + 8 or len(data) < after + 8 + length + 1:
                    if len(data) >= after + 8 and length > _FIELD_MAX:
                        raise ExportError(f"a field {name[:40]!r} of {length} bytes")
                    break
                value, after = data[after + 8 : after + 8 + length], after + 8 + length + 1
                if data[after - 1 : after] != b"\n":
                    raise ExportError(f"no line end behind field {name[:40]!r}")
            entry[name] = value
            at = after
        self._held, self._entry = data[at:], entry
        return found


class Fields:
    """The ECS fields of entries; entries of one process share a dict."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], dict[str, Any]] = {}

    def of(self, entry: Entry) -> dict[str, Any]:
        """Returns an entry's fields, in a dict that other entries may share."""
        plain = not any(name[:1] != b"_" and name not in _PLACES and name not in _HERE for name in entry)
        if not plain:
            return _fields(entry)
        key = (
            entry.get(b"PRIORITY", b""),
            entry.get(b"SYSLOG_FACILITY", b""),
            *(entry.get(n, b"") for n in _PLACES),
        )
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = _fields(entry)
        return found


def time_of(entry: Entry) -> float | None:
    """Returns the time of logging in seconds since the epoch: the sender's, or else the journal's."""
    for name in (b"_SOURCE_REALTIME_TIMESTAMP", b"__REALTIME_TIMESTAMP"):
        value = entry.get(name, b"")
        if value.isdigit() and len(value) <= _TIME_DIGITS:
            return int(value) / 1e6
    return None


def _fields(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {}
    custom: dict[str, str] = {}
    for name, value in entry.items():
        text = value.decode(errors="replace")
        if (place := _PLACES.get(name)) is not None:
            number = name in _NUMBERS and text.isascii() and text.isdigit()
            _put(found, place, int(text) if number else text)
        elif name[:1] != b"_" and name not in _HERE:
            custom[name.decode(errors="replace").lower()] = text
    severity, facility = entry.get(b"PRIORITY", b""), entry.get(b"SYSLOG_FACILITY", b"")
    if len(severity) == 1 and severity in b"01234567":
        level = int(severity)
        _put(found, ("log", "level"), SEVERITIES[level])
        _put(found, ("log", "syslog", "severity"), {"code": level, "name": SEVERITIES[level]})
        if facility.isdigit() and int(facility) < len(FACILITIES):
            _put(found, ("log", "syslog", "priority"), int(facility) * 8 + level)
    if facility.isdigit() and int(facility) < len(FACILITIES):
        _put(found, ("log", "syslog", "facility"), {"code": int(facility), "name": FACILITIES[int(facility)]})
    if custom:
        found["journald"] = {"custom": custom}
    return found


def _put(document: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for name in place[:-1]:
        document = document.setdefault(name, {})
    document[place[-1]] = value
