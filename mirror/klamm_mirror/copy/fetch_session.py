"""An incremental fetch session as a client sees it (KIP-227), named as Kafka's FetchSessionHandler. Pure.

The broker remembers what a session reads, so that a request names only partitions that are new, are asked for something
else, or are no longer wanted, and an answer only those that have something to tell. Invariant: once the broker has
taken the request that was built last, its session holds what `build` was given. One request at a time is under way.
After an answer that was lost, nobody knows what the broker holds: then a full request ends the session and begins another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""The epoch of a full request, which begins a session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request that ends a session."""
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of an answer that a full request cures."""
_EPOCH_MAX: Final = (1 << 31) - 1

Key = tuple[str, int]


Asked = tuple[bytes, int, int, int]
"""The wishes of a request for a partition: topic id, offset, leader epoch, most bytes. A plain tuple, because each request
has thousands. The id counts where topics are named by their ids.
"""


class FetchSessionHandler:
    """The session of one connection. `session_id` is 0 while there is none."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._asked: dict[Key, Asked] = {}
        self._names: dict[bytes, str] = {}
        """The topics' names by their ids."""
        self._uses_ids = False

    def build(self, wanted: Mapping[Key, Asked], *, uses_ids: bool) -> FetchRequest:
        """Returns a request for these partitions; the caller sets its limits. `uses_ids`: it names topics by id."""
        if uses_ids != self._uses_ids:
            self.begin_anew()  # a session names all its topics in one way
        self._uses_ids = uses_ids
        if self._epoch == INITIAL_EPOCH:
            named, gone, self._names = wanted, [], {}
        else:
            before = self._asked
            named = {key: asked for key, asked in wanted.items() if before.get(key) != asked}
            gone = [
                (key, asked[0]) for key, asked in before.items()
                if key not in wanted or (uses_ids and wanted[key][0] != asked[0])
            ]  # fmt: skip
        self._names |= {asked[0]: name for (name, _), asked in named.items()}
        self._asked = dict(wanted)
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self._epoch,
            topics=_topics(named),
            forgotten_topics_data=_forgotten(gone),
        )

    def handle_response(self, answer: FetchResponse) -> bool:
        """Takes the answer to the last request. Returns False if its partitions must not be used."""
        if answer.error_code:
            self.begin_anew(known=answer.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if not all(self._asked_for(topic) for topic in answer.responses):
            self.begin_anew()
            return False
        if answer.session_id == NO_SESSION:  # no room, or no partition is left in it
            self.begin_anew(known=False)
            return True
        self.session_id = answer.session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def begin_anew(self, *, known: bool = True) -> None:
        """Makes the next request a full one, as after an answer that did not come. `known`: it also ends the session."""
        self._epoch = INITIAL_EPOCH
        if not known:
            self.session_id = NO_SESSION

    def close(self) -> FetchRequest | None:
        """Returns the request that ends the session; None if there is none."""
        if self.session_id == NO_SESSION:
            return None
        request = FetchRequest(session_id=self.session_id, session_epoch=FINAL_EPOCH, topics=[])
        self.begin_anew(known=False)
        return request

    def asked(self, key: Key) -> Asked | None:
        """Returns the wishes of the last request for a partition; None if it was not wanted."""
        return self._asked.get(key)

    def name_of(self, topic: FetchableTopicResponse) -> str:
        """Returns the name of a topic in the last answer; empty if it was not asked for."""
        return self._names.get(topic.topic_id, "") if self._uses_ids else topic.topic

    def _asked_for(self, topic: FetchableTopicResponse) -> bool:
        """Returns False for a topic with a partition that the broker should not know to be ours."""
        name = self.name_of(topic)
        return all(
            (asked := self._asked.get((name, p.partition_index))) is not None
            and (not self._uses_ids or asked[0] == topic.topic_id)
            for p in topic.partitions
        )


def _topics(wanted: Mapping[Key, Asked]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, index), (topic_id, offset, leader_epoch, max_bytes) in wanted.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(gone: list[tuple[Key, bytes]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, index), topic_id in gone:
        topic = topics.setdefault(
            (name, topic_id), ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        )
        topic.partitions.append(index)
    return list(topics.values())
