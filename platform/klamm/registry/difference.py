"""A difference between two schemas that breaks compatibility, in words, and as the list of an answer shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference: Confluent's name of its kind, where it is, and what is wrong. `info` is a detail for programs."""

    kind: str
    path: str
    words: str
    info: str = ""

    def __str__(self) -> str:
        info = f", additionalInfo:'{self.info}'" if self.info else ""
        return f"{{errorType:'{self.kind}', description:'{self.words}'{info}}}"
