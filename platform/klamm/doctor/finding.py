"""A finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of what was looked at. FAILED will hurt now, WARNING later; UNKNOWN could not be looked at."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: what was looked at (`check`), how it is, a sentence, and what to do."""

    check: str
    state: State
    said: str
    advice: str = ""


def ok(check: str, said: str) -> Finding:
    return Finding(check, State.OK, said)


def warning(check: str, said: str, advice: str = "") -> Finding:
    return Finding(check, State.WARNING, said, advice)


def failed(check: str, said: str, advice: str = "") -> Finding:
    return Finding(check, State.FAILED, said, advice)


def unknown(check: str, said: str, advice: str = "") -> Finding:
    return Finding(check, State.UNKNOWN, said, advice)
