"""Syslog messages: RFC 5424, RFC 3164, and what senders really write. Pure.

No message is refused: a message of no known format is an event with its whole text. Fields of an event are nested as in ECS
(`log.syslog.*`, `log.level`, `host.name`). Events of one sender share their dicts, which nobody may change.

These deviations from RFC 3164 are understood: no priority; RFC 3339 times (rsyslog's forward format), a year, fractions, a zone's
name behind the time, Cisco's sequence numbers and marks; no host (local sockets); IPv6 hosts; no time at all.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any, Final

from klamm_agent.syslog.times import BSD, ISO, Times

SEVERITIES: Final = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
FACILITIES: Final = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp", "audit",
    "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_PRIORITIES: Final = frozenset(text for n in range(192) for text in (b"%d" % n, b"%02d" % n, b"%03d" % n))
_UNIVERSAL: Final = (b"UTC", b"GMT")
_KEPT: Final = 4096  # sets of fields that senders share
_BOM: Final = b"\xef\xbb\xbf"

_PRIORITY: Final = re.compile(rb"<(\d{1,3})>")
_NEW: Final = re.compile(  # RFC 5424: version, time, host, application, process, message id
    rb"([1-9]\d{0,2}) (?:-|(" + ISO + rb")) (\S{1,255}) (\S{1,128}) (\S{1,128}) (\S{1,64})(?: |$)"
)
_ELEMENTS: Final = re.compile(rb'(?:\[[^\s=\]"]+(?: +[^\s=\]"]+="(?:[^"\\]|\\.)*")*\s*\])+', re.DOTALL)
_ELEMENT: Final = re.compile(rb'\[([^\s=\]"]+)((?: +[^\s=\]"]+="(?:[^"\\]|\\.)*")*)\s*\]', re.DOTALL)
_PARAMETER: Final = re.compile(rb' +([^\s=\]"]+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\\]])')
_TIMED: Final = re.compile(
    rb"\s?(?:\d+: )?(?:[\w.-]+: )?[*.]?("
    + ISO
    + rb"|"
    + BSD
    + rb")(?: ([A-Z]{2,5})(?= \d{4} |: )(?: \d{4})?)?:?(?: |$)"
)
_HOST: Final = rb"(?:([^\s:\[\]<>]+|[0-9A-Fa-f]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?) (?:: )?)?"
_TAG: Final = rb"([^\s:\[]{1,128})(?:\[([^\]\s]{0,64})\])?:(?: |$)"
_HEAD: Final = re.compile(_HOST + _TAG)
_COMMON: Final = re.compile(  # the form of nearly all senders, matched at once
    rb"<(\d{1,3})>(" + ISO + rb"|" + BSD + rb") ([^\s:\[\]<>]+) ([^\s:\[]{1,128})(?:\[([^\]\s]{0,64})\])?: "
)
_SENDER: Final = re.compile(rb"([^\s:\[\]<>]+|[0-9A-Fa-f]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?) ")
_PROCESS: Final = re.compile(rb"\s?([^\s:\[\]<>]{1,128})\[(\d{1,10})\]: ")

Parsed = tuple[list[bytes], list[float], list[dict[str, Any]]]
_Head = tuple[bytes | None, ...]


class Parser:
    """A parser of framed messages. `zone` is for times without one (None: the machine's)."""

    def __init__(self, zone: dt.tzinfo | None = None) -> None:
        self._times, self._universal = Times(zone), Times(dt.UTC)
        self._fields: dict[tuple[str, _Head], dict[str, Any]] = {}
        self.unparsed = 0
        """The number of messages without a priority; such an event has a text and no fields."""

    def parse(self, messages: Sequence[bytes], peers: Sequence[str], at: float) -> Parsed:
        """Returns texts, times and fields of `messages`, which came at `at` from `peers` (one each; "" for none)."""
        texts, times, fields = [], [], []
        for message, peer in zip(messages, peers, strict=True):
            text, time, head, elements = self._one(message, at)
            found = self._fields.get((peer, head)) or self._remember(peer, head)
            if elements:
                found = _with_elements(found, elements)
            texts.append(text)
            times.append(time)
            fields.append(found)
        return texts, times, fields

    def _one(self, message: bytes, at: float) -> tuple[bytes, float, _Head, bytes]:
        """Returns text, time, the rest of the header (priority, host, application, process, message id, version), and structured data."""
        common = _COMMON.match(message)
        if common is not None and common[1] in _PRIORITIES:
            priority, stamp, host, app, process = common.groups()
            time = self._times.of(stamp, at)
            head = (priority, host, app, process, None, None)
            return message[common.end() :], at if time is None else time, head, b""
        start = _PRIORITY.match(message)
        if start is None or start[1] not in _PRIORITIES:
            self.unparsed += 1
            return message, at, _NOTHING, b""
        end = start.end()
        new = _NEW.match(message, end)
        if new is not None:
            version, stamp, host, app, process, name = new.groups()
            elements, text = _split_data(message, new.end())
            time = self._times.of(stamp, at) if stamp else None
            return text, at if time is None else time, (start[1], host, app, process, name, version), elements
        timed = _TIMED.match(message, end)
        if timed is None:
            # A time tells a header from a text that holds a colon; a process number does so, too
            found = _PROCESS.match(message, end)
            if found is None:
                return message[end:], at, (start[1], None, None, None, None, None), b""
            return message[found.end() :], at, (start[1], None, found[1], found[2], None, None), b""
        time = (self._universal if timed[2] in _UNIVERSAL else self._times).of(timed[1], at)
        host, app, process, rest = _split_head(message, timed.end())
        return message[rest:], at if time is None else time, (start[1], host, app, process, None, None), b""

    def _remember(self, peer: str, head: _Head) -> dict[str, Any]:
        if len(self._fields) >= _KEPT:
            self._fields.clear()
        found = self._fields[peer, head] = _fields_of(peer, head)
        return found


_NOTHING: Final[_Head] = (None,) * 6


def _split_head(message: bytes, at: int) -> tuple[bytes | None, bytes | None, bytes | None, int]:
    """Returns host, tag and process behind a time, and where the text begins."""
    head = _HEAD.match(message, at)
    if head is not None:
        return head[1], head[2], head[3], head.end()
    sender = _SENDER.match(message, at)
    if sender is not None:
        return sender[1], None, None, sender.end()
    return None, None, None, at


def _split_data(message: bytes, at: int) -> tuple[bytes, bytes]:
    """Returns structured data and text of RFC 5424. Anything that is no such data is text: many senders leave the data out."""
    end, data = at, b""
    if (elements := _ELEMENTS.match(message, at)) is not None:
        end, data = elements.end(), elements[0]
    elif message.startswith(b"-", at):
        end = at + 1
    if message.startswith(b" ", end):
        # rsyslog repeats the space that was behind the tag of RFC 3164
        extra = message.startswith(b" ", end + 1) and not message.startswith(b" ", end + 2)
        return data, message[end + 1 + extra :].removeprefix(_BOM)
    if end == len(message):
        return data, b""
    return b"", message[at:].removeprefix(_BOM)


def _fields_of(peer: str, head: _Head) -> dict[str, Any]:
    priority, host, app, process, name, version = (
        None if part is None or part == b"-" else part.decode(errors="replace") for part in head
    )
    found: dict[str, Any] = {}
    log: dict[str, Any] = {}
    if priority is not None:
        facility, severity = divmod(int(priority), 8)
        syslog: dict[str, Any] = {
            "priority": int(priority),
            "facility": {"code": facility, "name": FACILITIES[facility]},
            "severity": {"code": severity, "name": SEVERITIES[severity]},
        }
        rest = {"hostname": host, "appname": app, "procid": process, "msgid": name, "version": version}
        syslog |= {key: value for key, value in rest.items() if value}
        log = {"level": SEVERITIES[severity], "syslog": syslog}
    if peer:
        log["source"] = {"address": peer}
    if log:
        found["log"] = log
    if host:
        found["host"] = {"name": host}
    if app or process:
        found["process"] = _process(app, process)
    return found


def _process(app: str | None, process: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": app} if app else {}
    if process and process.isascii() and process.isdigit() and len(process) <= 10:
        found["pid"] = int(process)
    return found


def _with_elements(fields: dict[str, Any], elements: bytes) -> dict[str, Any]:
    """Returns a copy of `fields` with the structured data of one message."""
    log = fields["log"]
    return fields | {"log": log | {"syslog": log["syslog"] | {"structured_data": structured_data(elements)}}}


def structured_data(elements: bytes) -> dict[str, dict[str, Any]]:
    """Reads `[id a="1" a="2"]` as `{"id": {"a": ["1", "2"]}}`; a name that comes once has its value alone."""
    found: dict[str, dict[str, Any]] = {}
    for element in _ELEMENT.finditer(elements):
        parameters = found.setdefault(element[1].decode(errors="replace"), {})
        for name, raw in _PARAMETER.findall(element[2]):
            key, value = name.decode(errors="replace"), _ESCAPED.sub(r"\1", raw.decode(errors="replace"))
            before = parameters.get(key)
            if before is None:
                parameters[key] = value
            elif isinstance(before, list):
                before.append(value)
            else:
                parameters[key] = [before, value]
    return found
