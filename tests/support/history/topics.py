"""Rules about topics: what was answered as created is there whole, what was answered as deleted is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from support.history.events import Outcome, TopicChange
from support.history.index import Index


def forgotten(index: Index) -> Iterator[str]:
    """Finds a topic that was created and is not there, was deleted and is there, or is there in part."""
    there = index.history.topics
    if there is None:
        return
    changes: dict[str, dict[bool, TopicChange]] = defaultdict(dict)
    for change in index.history.topic_changes:
        changes[change.topic][change.created] = change
    for topic, by_kind in changes.items():
        created, deleted = by_kind.get(True), by_kind.get(False)
        if deleted is not None and deleted.outcome is Outcome.OK:
            if topic in there:
                yield f"topic {topic} was deleted and is there"
        elif topic not in there:
            if created is not None and created.outcome is Outcome.OK and deleted is None:
                yield f"topic {topic} was created and is not there"
        elif created is not None and there[topic] != created.partitions:
            yield f"topic {topic} was created with {created.partitions} partitions and has {there[topic]}"
