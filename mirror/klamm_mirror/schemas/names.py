"""Names of subjects at the target's registry, and which subjects a flow copies. Pure.

Confluent's strategies name subjects by topics: `orders-value` and `orders-key` (TopicNameStrategy),
`orders-com.acme.Order` (TopicRecordNameStrategy), or by records alone: `com.acme.Order` (RecordNameStrategy). Names of
records have no `-`, so the last one ends the topic's name. A subject of a topic follows the topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PARTS: Final = ("key", "value")
_CONTEXT: Final = re.compile(r"(:\.[^:]*:)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SubjectNames:
    """The names of one flow. `wants` selects subjects, `wants_topic` topics; `remote_topic` names topics at the target."""

    wants: Callable[[str], bool]
    wants_topic: Callable[[str], bool]
    remote_topic: Callable[[str], str]

    def selects(self, subject: str) -> bool:
        """Returns True for a subject that the flow copies: of a topic that it mirrors, or of no topic."""
        topic, part = topic_of(subject)
        if topic is not None and part in PARTS and not self.wants_topic(topic):
            return False
        return self.wants(subject)

    def remote(self, subject: str) -> str:
        """Returns the target's name of a subject."""
        context, name = _split(subject)
        topic, part = topic_of(name)
        if topic is None or not self.wants_topic(topic):
            return subject
        return f"{context}{self.remote_topic(topic)}-{part}"


def topic_of(subject: str) -> tuple[str | None, str]:
    """Returns the topic in a subject's name, and what follows it: key, value, or the name of a record."""
    topic, dash, part = _split(subject)[1].rpartition("-")
    return (topic, part) if dash and topic and part else (None, subject)


def _split(subject: str) -> tuple[str, str]:
    match = _CONTEXT.fullmatch(subject)
    assert match is not None, "matches any text"
    return match[1] or "", match[2]
