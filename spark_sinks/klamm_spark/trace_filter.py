"""A filter for the standard error of a driver process and its Java, without stack traces. Pure: one line at a time.

Java, Py4J and Python each tell of one error in dozens of lines, most of them several times. A person who looks at a
terminal needs the first line of each; the whole is in a log file.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 400
_FRAME: Final = re.compile(
    r"\s+at \S+\(.*|\s*\.\.\. \d+ (?:more|elided).*|\s*(?:Caused by|Suppressed): .*|\s*Driver stacktrace:.*|\s*JVM stacktrace:.*"
)
_ERROR: Final = re.compile(r"(?:: )?(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b.*")
"""A Java error's full name at the start of a line. The lines after it belong to it."""
_PYTHON: Final = re.compile(
    r"\s*Traceback \(most recent call last\):|During handling of the above exception|The above exception was the direct"
)
_PYSPARK: Final = '{"ts": '
"""A record of PySpark's own logger, with whole traces in one line. The failure says the same."""
_LOG: Final = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ |\d{4}-\d\d-\d\dT\S+ (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|spark |%\d\|"
)
"""The first line of a log record: Java's, ours, librdkafka's."""


class TraceFilter:
    """Filters lines. `shown` returns the rest of a line, or None for nothing."""

    def __init__(self) -> None:
        self._inside = False

    def shown(self, line: str) -> str | None:
        text = line.rstrip("\n")
        if text.startswith(_PYSPARK):
            return None
        if _LOG.match(text):
            self._inside = False
        elif _PYTHON.match(text) or _ERROR.match(text) or _FRAME.fullmatch(text):
            self._inside = True
            return None
        elif self._inside:
            return None
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
