"""Documents made by a template: one call escapes the text of a whole block. Pure.

For inputs that ask for documents and nothing else; parsed events go through `document`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from klamm_agent.stages.staged import decoded
from klamm_agent.stages.timestamps import stamp

_JOINT: Final = "\x1e"
_WRITTEN: Final = b"\\u001e"  # the joint in JSON; a block with either is escaped line by line


class Envelope:
    """A template for lines as ECS documents: `@timestamp`, `message`, `log`, and `base` (host, agent, the input's own fields)."""

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._rest = b"}," + orjson.dumps(dict(base))[1:]

    def wrap(self, lines: Sequence[bytes], offsets: Sequence[int], path: str, at: float) -> list[bytes]:
        """Returns the values for `lines`, read at `at` (seconds since the epoch). Bytes that are no text become U+FFFD."""
        head = b'{"@timestamp":"' + stamp(round(at, 3)).encode() + b'","message":"'
        shown = orjson.dumps(path.encode(errors="replace").decode())
        middle = b'","log":{"file":{"path":' + shown + b'},"offset":'
        rest = self._rest
        return [
            b"%b%b%b%d%b" % (head, body, middle, offset, rest)
            for body, offset in zip(escaped(lines), offsets, strict=True)
        ]


def escaped(lines: Sequence[bytes]) -> list[bytes]:
    """Returns texts as JSON has them, without quotes; bytes that are no text become U+FFFD."""
    text = _JOINT.encode().join(lines).decode(errors="replace")
    bodies = orjson.dumps(text)[1:-1].split(_WRITTEN)
    if len(bodies) == len(lines):
        return bodies
    return [orjson.dumps(one)[1:-1] for one in decoded(list(lines), "replace")]
