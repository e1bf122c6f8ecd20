"""All rules, and the check that applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from support.history import groups, topics, transactions, writes
from support.history.events import History, Verdict, Violation
from support.history.index import Index

RULES: Final[dict[str, Callable[[Index], Iterator[str]]]] = {
    "lost write": writes.lost,
    "compacted away": writes.compacted_away,
    "duplicate": writes.duplicated,
    "reordered": writes.reordered,
    "invented record": writes.invented,
    "offset reused": writes.reused,
    "sequence": writes.sequences,
    "hole": writes.holes,
    "dirty read": transactions.dirty,
    "hidden record": transactions.hidden,
    "read backwards": transactions.backwards,
    "partial transaction": transactions.partial,
    "contradicted transaction": transactions.contradicted,
    "hanging transaction": transactions.hanging,
    "offset went back": groups.rewound,
    "offset made up": groups.made_up,
    "skipped record": groups.skipped,
    "not exactly once": groups.not_exactly_once,
    "topic forgotten": topics.forgotten,
}
EXAMPLES_MAX: Final = 50
"""Violations of one rule that are told: a broken broker breaks a rule for every record."""


def check(history: History) -> Verdict:
    """Applies every rule to a history."""
    index = Index(history)
    found = [
        Violation(name, what) for name, rule in RULES.items() for what in islice(rule(index), EXAMPLES_MAX)
    ]
    return Verdict(tuple(found), _examined(history))


def _examined(history: History) -> dict[str, int]:
    return {
        "writes": len(history.writes),
        "transactions": len(history.transactions),
        "offset commits": len(history.commits),
        "committed offsets read": len(history.committed_reads),
        "records read": sum(len(scan.records) for scan in history.scans),
        "records delivered to groups": len(history.deliveries),
        "topic changes": len(history.topic_changes),
        "records in the logs": sum(len(log.records) for log in history.logs.values()),
    }
