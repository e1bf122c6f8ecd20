"""Events that are JSON objects."""

from __future__ import annotations

import orjson

from klamm_agent.stages.parse import Parsed
from klamm_agent.stages.parse.fields import expand


class JsonParser:
    """A parser of JSON objects. Names with dots (as ECS loggers write them) become objects."""

    def parse(self, texts: list[str]) -> list[Parsed]:
        """Returns each object's fields."""
        try:
            found = list(map(orjson.loads, texts))
        except orjson.JSONDecodeError:
            return [_parse(text) for text in texts]
        return [expand(f) if isinstance(f, dict) else _no_object(f) for f in found]


def _parse(text: str) -> Parsed:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        return f"not JSON: {e}"
    return expand(found) if isinstance(found, dict) else _no_object(found)


def _no_object(found: object) -> str:
    kinds = {list: "an array", str: "a text", bool: "true or false", type(None): "null"}
    return f"JSON, but no object: {kinds.get(type(found), 'a number')}"
