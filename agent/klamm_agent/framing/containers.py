r"""Lines of container logs: the CRI's format and docker's json-file, joined from their parts. Pure.

CRI: `2024-05-01T12:00:00.123456789Z stdout F text`; P instead of F marks a part, whose end is in a following line of the
same stream. docker: `{"log":"text\n","stream":"stdout","time":"…"}`; a text without a line end is a part.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

FORMATS: Final = ("auto", "cri", "docker")
_CRI: Final = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [PF](?:[: ]|$)"
)
_SECOND: Final = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)Z"  # as both formats usually have it
_ROW: Final = re.compile(rb"(?m)^" + _SECOND + rb" (stdout|stderr) F(?::\S*)?(?: (.*))?$")
_TIMES: Final = re.compile(rb"(?m)^" + _SECOND + rb"$")
_POD: Final = re.compile(
    r"/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[^/_]+)/(?P<container>[^/]+)/[^/]+$"
)
_LINK: Final = re.compile(
    r"/(?P<pod>[^/_]+)_(?P<namespace>[^/_]+)_(?P<container>[^/]+)-(?P<id>[0-9a-f]{64})\.log[^/]*$"
)
_DOCKER: Final = re.compile(r"/(?P<id>[0-9a-f]{64})/(?P=id)-json\.log[^/]*$")
_EPOCH: Final = 0.0  # for a line without a time; the cutter puts in the time of reading


@dataclass(slots=True)
class Lines:
    """Lines as the program wrote them. `first` and `last`: the lines of the file that each was made of."""

    texts: list[bytes] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=dict)
    """By stream: the index of its last line, which has no end yet. `texts` has its text so far."""


def kind_of(lines: Sequence[bytes]) -> str:
    """Returns `cri` or `docker`, by the look of the first line; empty when it is neither."""
    first = next((line for line in lines if line), b"")
    if _CRI.match(first):
        return "cri"
    return "docker" if first.startswith(b'{"') and b'"log":' in first else ""


def assemble(lines: Sequence[bytes], kind: str, max_bytes: int) -> tuple[Lines, int]:
    """Joins lines of `kind` from their parts; returns them, and how many were cut at `max_bytes`.

    A line of another format stays as it is, in the stream "".
    """
    whole = _docker_whole(lines) if kind == "docker" else _cri_whole(lines)
    if whole is not None:
        return whole, 0
    found, cuts = Lines(), 0
    open_parts: dict[str, list[int]] = {}
    rows = _docker(lines) if kind == "docker" else _cri(lines)
    for i, (text, stream, time, ends) in enumerate(rows):
        parts = open_parts.get(stream)
        if parts is None and ends:
            _add(found, (text, stream, time, True), i, i)
            continue
        if parts is None:
            parts = open_parts[stream] = []
        parts.append(i)
        size = sum(len(rows[p][0]) for p in parts)
        if ends or size >= max_bytes:
            cuts += not ends
            _join(found, rows, parts)
            del open_parts[stream]
    for stream, parts in open_parts.items():
        found.parts[stream] = len(found.texts)
        _join(found, rows, parts)
    return found, cuts


def _cri_whole(lines: Sequence[bytes]) -> Lines | None:
    """Reads the usual block, without a step per line in Python; None when some line is a part or of another format."""
    rows = _ROW.findall(b"\n".join(lines))
    if len(rows) != len(lines) or not rows:
        return None
    seconds, fractions, streams, texts = zip(*rows, strict=True)
    times = _times(seconds, fractions)
    if times is None:
        return None
    return _whole(list(texts), times, [_STREAMS[s] for s in streams])


def _docker_whole(lines: Sequence[bytes]) -> Lines | None:
    try:
        documents = orjson.loads(b"[" + b",".join(lines) + b"]")
        texts = "".join([d["log"] for d in documents]).encode().split(b"\n")
        moments = _TIMES.findall("\n".join([d["time"] for d in documents]).encode())
        streams = [d["stream"] for d in documents]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None  # some line is not of the format, or no text: then it is done line by line
    texts.pop()
    if not len(texts) == len(moments) == len(documents) == len(lines):
        return None
    times = _times(*zip(*moments, strict=True)) if moments else []
    # Every document has one line end, at its end
    if times is None or not all(d["log"][-1:] == "\n" for d in documents):
        return None
    return _whole([text.removesuffix(b"\r") for text in texts], times, streams)


def _whole(texts: list[bytes], times: list[float], streams: list[str]) -> Lines:
    numbers = list(range(len(texts)))
    return Lines(texts, numbers, numbers, times, streams)


_Row = tuple[bytes, str, float, bool]  # text, stream, time, whether the line ends here


def _add(found: Lines, row: _Row, first: int, last: int) -> None:
    text, stream, time, _ = row
    found.texts.append(text)
    found.first.append(first)
    found.last.append(last)
    found.times.append(time)
    found.streams.append(stream)


def _join(found: Lines, rows: list[_Row], parts: list[int]) -> None:
    _, stream, time, _ = rows[parts[0]]
    _add(found, (b"".join([rows[p][0] for p in parts]), stream, time, True), parts[0], parts[-1])


def _cri(lines: Sequence[bytes]) -> list[_Row]:
    known: dict[bytes, float] = {}
    rows: list[_Row] = []
    for line in lines:
        time, _, rest = line.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tags, _, text = rest.partition(b" ")
        # There may be several tags, joined by colons; the first is P or F
        if stream in _STREAMS and (tags in _WHOLE or tags[:2] in _MORE) and (at := _time(time, known)):
            rows.append((text, _STREAMS[stream], at, tags[:1] == b"F"))
        else:
            rows.append((line, "", _EPOCH, True))
    return rows


_STREAMS: Final = {b"stdout": "stdout", b"stderr": "stderr"}
_WHOLE: Final = frozenset({b"F", b"P"})
_MORE: Final = frozenset({b"F:", b"P:"})


def _docker(lines: Sequence[bytes]) -> list[_Row]:
    try:
        documents = orjson.loads(b"[" + b",".join(lines) + b"]")
    except orjson.JSONDecodeError:
        documents = None
    if documents is None or len(documents) != len(lines):
        documents = [_document(line) for line in lines]
    known: dict[bytes, float] = {}
    rows: list[_Row] = []
    for line, document in zip(lines, documents, strict=True):
        text = document.get("log") if isinstance(document, dict) else None
        if not isinstance(text, str):
            rows.append((line, "", _EPOCH, True))
            continue
        time = _time(str(document.get("time", "")).encode(), known)
        whole = text.endswith("\n")
        body = text[:-1].removesuffix("\r") if whole else text
        rows.append((body.encode(errors="replace"), str(document.get("stream", "")), time, whole))
    return rows


def _document(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _times(seconds: Sequence[bytes], fractions: Sequence[bytes]) -> list[float] | None:
    """Returns seconds since the epoch, None when some text is no time. It works out each whole second once."""
    known = {second: _time(second + b"Z", {}) for second in set(seconds)}
    if 0.0 in known.values():
        return None
    return [known[second] + float(fraction) for second, fraction in zip(seconds, fractions, strict=True)]


def _time(text: bytes, known: dict[bytes, float]) -> float:
    """Returns an RFC 3339 time as seconds since the epoch, 0 when it is none. `known` keeps whole seconds."""
    second, zone = text[:19], b"Z"
    fraction = 0.0
    rest = text[19:]
    if rest[:1] == b".":
        digits = rest[1:].rstrip(b"Z")
        for sign in (b"+", b"-"):
            digits, found, offset = digits.partition(sign)
            if found:
                zone = sign + offset
                break
        if not digits.isdigit():
            return 0.0
        fraction = int(digits) / 10 ** len(digits)
    elif rest:
        zone = rest
    at = known.get(second + zone)
    if at is None:
        try:
            at = dt.datetime.fromisoformat((second + zone).decode("ascii")).timestamp()
        except ValueError:
            return 0.0
        known[second + zone] = at
    return at + fraction


def fields_of(path: str) -> dict[str, Any]:
    """Returns what a container log's path tells: Kubernetes' namespace, pod and container, or docker's container id."""
    if match := _POD.search(path):
        pod: dict[str, Any] = {"name": match["pod"], "uid": match["uid"]}
        container = match["container"]
        return {
            "kubernetes": {"namespace": match["namespace"], "pod": pod, "container": {"name": container}},
            "container": {"name": container},
        }
    if match := _LINK.search(path):
        return {
            "kubernetes": {
                "namespace": match["namespace"],
                "pod": {"name": match["pod"]},
                "container": {"name": match["container"]},
            },
            "container": {"id": match["id"], "name": match["container"]},
        }
    if match := _DOCKER.search(path):
        return {"container": {"id": match["id"]}}
    return {}
