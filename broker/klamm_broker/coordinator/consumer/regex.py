"""Regular expressions of subscriptions, in RE2's syntax as in Kafka (KIP-848), so that none can run for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_kafka.wire.errors import ErrorCode

_KAFKAS_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""The words of RE2's Java edition for RE2's errors."""


def compiled(expression: str) -> Any:
    """Returns the compiled expression. Raises GroupError (INVALID_REGULAR_EXPRESSION)."""
    import re2  # it takes some MB, and most brokers never see a regular expression

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as e:
        why = e.args[0]
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        what = text.partition(": ")[0]
        text = _KAFKAS_WORDS.get(what, what)
        raise GroupError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {text}.",
        ) from None


def resolve(expression: str, names: Iterable[str]) -> frozenset[str]:
    """Returns the topics whose whole name the expression matches; none when it is not valid."""
    try:
        pattern = compiled(expression)
    except GroupError:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name))
