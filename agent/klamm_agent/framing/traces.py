"""Stack traces as tables: a line moves a machine from state to state, or ends the event. Pure.

A trace belongs to the line before it when that line tells of an error (a logger wrote both). Otherwise it is an event of its own,
as when a program dies. A line that tells of an error may still grow, and so may a trace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_Rules = tuple[tuple[re.Pattern[bytes], str], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine for one language's traces. `begins` has the lines that begin a trace, with the state after them. `rules`, by state: the
    first that matches counts; when none matches, the trace has ended. `between`: states of lines that belong to a trace only when it
    goes on after them.
    """

    begins: _Rules
    rules: dict[str, _Rules]
    between: frozenset[str] = frozenset()


def _p(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


_BLANK: Final = _p(r"\s*$")
_ERROR: Final = re.compile(
    rb"(?i)error|exception|critical|fatal|severe|warn|fail|panic|traceback|crash|abort"
)

_PY_TRACE: Final = _p(r"Traceback \(most recent call last\):")
_PY_GROUP: Final = _p(r"\s*\+ Exception Group Traceback \(most recent call last\):")
_PY_LINK: Final = _p(
    r"\s*(?:During handling of the above exception|The above exception was the direct cause)"
)
_PYTHON: Final = Machine(
    begins=((_PY_TRACE, "frames"), (_PY_GROUP, "group"), (_p(r'\s+File "[^"]+", line \d+'), "frames")),
    rules={
        # Source lines and carets are indented; the line that names the exception is not
        "frames": ((_p(r"\s+\S"), "frames"), (_p(r"[\w.]+(?::\s|:?\s*$)"), "named")),
        "named": ((_PY_LINK, "link"), (_p(r"\s+\S"), "named"), (_BLANK, "gap")),
        "group": ((_p(r"\s+[|+]"), "group"), (_PY_LINK, "link"), (_BLANK, "gap")),
        "gap": ((_BLANK, "gap"), (_PY_LINK, "link")),
        "link": ((_BLANK, "link"), (_PY_TRACE, "frames"), (_PY_GROUP, "group")),
    },
    between=frozenset({"gap", "link"}),
)

_JAVA_FRAME: Final = _p(
    r"\s+(?:at |eval at |\.{3} \d+ (?:more|common frames)|nested exception is:|- (?:locked|waiting|parking|eliminated) |--- )"
    r"|\s*(?:Caused by|Suppressed): |\s*(?:Wrapped by|CIRCULAR REFERENCE)|--- End of stack trace from "
    r"|\s+\[CIRCULAR REFERENCE"
)
_JAVA_NAME: Final = _p(
    r"(?:Exception in thread \"[^\"]*\" |Caused by: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable|Failure|Fault)\b[\w$]*(?::|\s*$)"
)
_JAVA: Final = Machine(
    begins=((_JAVA_NAME, "named"), (_JAVA_FRAME, "frames")),
    rules={
        "named": ((_JAVA_FRAME, "frames"), (_p(r"\t+\S"), "frames")),
        "frames": ((_JAVA_FRAME, "frames"), (_p(r"\t+\S"), "frames")),
    },
)

_GO_HEAD: Final = _p(r"panic: |fatal error: |runtime: goroutine stack exceeds|http: panic serving ")
_GO_LINE: Final = (
    _p(
        r"goroutine \d+ .*\[|\[signal |\t|created by |exit status \d|\[originating from |\.\.\.additional frames elided|"
        r"runtime[ :.]|[\w./*()\[\]%~$-]+\([^()]*(?:\([^()]*\)[^()]*)*\)(?: *in goroutine \d+)?\s*$|r(?:[a-z]{1,2}|\d+) +0x|[a-z]{2}s? +0x"
    ),
    "lines",
)
_GO: Final = Machine(
    begins=((_GO_HEAD, "lines"), (_p(r"goroutine \d+ (?:gp=\S+ .*)?\[.*\]:"), "lines")),
    rules={
        "lines": (_GO_LINE, (_GO_HEAD, "lines"), (_BLANK, "gap")),
        "gap": ((_BLANK, "gap"), _GO_LINE, (_GO_HEAD, "lines")),
    },
    between=frozenset({"gap"}),
)

_RUBY_FRAME: Final = _p(r"\s+(?:\d+: )?from |\s+\S+:\d+:in [`']|\S+:\d+:in [`'][^(]*$")
_RUBY: Final = Machine(
    begins=(
        (_p(r"\S+:\d+:in [`'].*\([\w:]+\)\s*$"), "frames"),
        (_p(r"(?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|Interrupt|NotFound|Invalid)\b.*$"), "named"),
        (_p(r"\s*Traceback \(most recent call last\):"), "frames"),
        (_RUBY_FRAME, "frames"),
    ),
    rules={
        "named": ((_BLANK, "gap"), (_RUBY_FRAME, "frames")),
        "gap": ((_BLANK, "gap"), (_RUBY_FRAME, "frames")),
        "frames": (
            (_RUBY_FRAME, "frames"),
            (_p(r"\S+:\d+:in [`'].*\([\w:]+\)\s*$"), "frames"),
        ),
    },
    between=frozenset({"gap"}),
)

MACHINES: Final = {"python": _PYTHON, "java": _JAVA, "go": _GO, "ruby": _RUBY}


class Traces:
    """A grouping by one or more of `MACHINES`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._machines = [MACHINES[name] for name in names]
        begins = (rule.pattern for machine in self._machines for rule, _ in machine.begins)
        self._any = re.compile(b"|".join(b"(?:%b)" % b for b in begins)).match

    def starts(self, lines: Sequence[bytes]) -> tuple[list[int], bool]:
        """Does what `Grouping.starts` says."""
        begins = self._any
        found: list[int] = []
        open_end, following = False, 0
        for i in [i for i, line in enumerate(lines) if begins(line)]:
            if i < following:
                continue
            found += range(following, i)
            if i == following or not _ERROR.search(lines[i - 1]):
                found.append(i)
            following, open_end = self._end(lines, i)
        found += range(following, len(lines))
        if following < len(lines):
            open_end = _ERROR.search(lines[-1]) is not None
        return found, open_end

    def _end(self, lines: Sequence[bytes], start: int) -> tuple[int, bool]:
        """Returns where the trace that begins at `start` ends, and whether it may go on behind the last line."""
        best, growing = start + 1, False
        for machine in self._machines:
            state = next((s for rule, s in machine.begins if rule.match(lines[start])), "")
            if not state:
                continue
            end, i = start + 1, start + 1
            while i < len(lines):
                line = lines[i]
                state = next((s for rule, s in machine.rules[state] if rule.match(line)), "")
                if not state:
                    break
                i += 1
                if state not in machine.between:
                    end = i
            if state:  # the lines end here: the trace may go on
                return len(lines), True
            best, growing = max(best, end), False
        return best, growing
