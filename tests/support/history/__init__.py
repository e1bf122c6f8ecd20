"""The clients' requests to a broker, the content of its logs in the end, and a judgement whether the two agree.

`History` holds the operations, `check(history)` the verdict. Pure: nothing here does I/O or knows a clock.
"""

from support.history.check import RULES, check
from support.history.events import (
    Commit,
    CommittedRead,
    Delivery,
    Flow,
    History,
    Log,
    LogRecord,
    Outcome,
    Scan,
    TopicChange,
    Transaction,
    Verdict,
    Violation,
    Write,
)

__all__ = [
    "RULES",
    "Commit",
    "CommittedRead",
    "Delivery",
    "Flow",
    "History",
    "Log",
    "LogRecord",
    "Outcome",
    "Scan",
    "TopicChange",
    "Transaction",
    "Verdict",
    "Violation",
    "Write",
    "check",
]
