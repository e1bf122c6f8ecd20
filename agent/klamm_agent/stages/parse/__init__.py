"""Parsers from texts to fields, a module per format. Pure.

A parser gives a nested dict, new for each event, or a sentence that says why there is none.
"""

from __future__ import annotations

from typing import Any, Protocol

Parsed = dict[str, Any] | str


class Parser(Protocol):
    """A parser of one format."""

    def parse(self, texts: list[str]) -> list[Parsed]:
        """Returns each text's fields; a str is the reason why it could not be parsed."""
