"""Events in logfmt: `level=info msg="it works" took=12ms cached`."""

from __future__ import annotations

import re
from typing import Final

import orjson

from klamm_agent.stages.parse import Parsed
from klamm_agent.stages.parse.fields import Document, expand

_PAIR: Final = re.compile(r'([^\s="]+)(=)?(?(2)(?:"((?:[^"\\]|\\.)*)"(?=\s|$)|(\S*)))')


class LogfmtParser:
    """A parser of logfmt. Values are text; a name without `=` is true. Text without any `name=` is not logfmt."""

    def parse(self, texts: list[str]) -> list[Parsed]:
        """Returns each event's fields."""
        return [_parse(text) for text in texts]


def _parse(text: str) -> Parsed:
    found: Document = {}
    pairs = False
    for name, equals, quoted, bare in _PAIR.findall(text):
        if not equals:
            found[name] = True
            continue
        pairs = True
        if bare[:1] == '"':
            return f"not logfmt: the quote of {name} does not end"
        found[name] = _unescaped(quoted) if "\\" in quoted else quoted or bare
    return expand(found) if pairs else "not logfmt: there is no name=value"


def _unescaped(text: str) -> str:
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:  # an unknown escape
        return text
