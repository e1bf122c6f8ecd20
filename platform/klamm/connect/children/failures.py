"""The reason why a process ended, in its own words or from its exit code."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.connect.children.launcher import Exit
from klamm.connect.settings.restart_policy import ErrorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why a process ended that nobody asked to end."""

    error: ErrorClass
    trace: str
    message: str

    @classmethod
    def of(cls, error: ErrorClass, text: str) -> Failure:
        return cls(error=error, trace=text, message=text)


def failure_of(how: Exit, last_words: str) -> Failure:
    """Returns the failure of a process that ended without saying why; `last_words` is the stack dump of a
    crash.
    """
    if how.lost:
        whose = "its fork server" if how.signal is None else "another of its connector's tasks"
        return Failure.of(ErrorClass.LOST, f"The process was ended with {whose}")
    text = str(how)
    text = text[0].upper() + text[1:]
    if how.code == 0:
        return Failure.of(ErrorClass.RETRIABLE, "The process was asked to stop (SIGTERM), not by its worker")
    trace = f"{text}\n{last_words}" if last_words else text
    return Failure(error=ErrorClass.CRASH, message=text, trace=trace)
