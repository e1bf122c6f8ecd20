"""Start offsets of share groups, as administrators set and delete them, and the end of a group's states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.effects import ShareKeyLike, Token
from klamm_broker.coordinator.share import records
from klamm_broker.coordinator.share.core import ShareCore
from klamm_broker.coordinator.share.group import ShareGroup
from klamm_broker.coordinator.share.model import AlteredOffsets, DeletedOffsets
from klamm_broker.coordinator.share.records import TopicState
from klamm_kafka.wire.errors import ErrorCode

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ShareOffsets:
    """Sets and deletes start offsets of groups without members."""

    def __init__(self, core: ShareCore) -> None:
        self._core = core

    def initialized(self, group_id: str) -> dict[bytes, frozenset[int]]:
        """Returns the partitions whose state is stored; none for a group that is no share group."""
        group = self._core.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return {}
        return {topic_id: it.partitions for topic_id, it in group.initialized.items()}

    # Alter

    def alter(self, group_id: str, offsets: Mapping[str, Mapping[int, int]], token: Token) -> None:
        """Handle an AlterShareGroupOffsets. The reply is an AlteredOffsets."""
        self._core.journal.when_free(
            group_id,
            lambda: self._alter(group_id, offsets, token),
            lambda: self._core.turn.reply(token, AlteredOffsets(ErrorCode.UNKNOWN_SERVER_ERROR)),
        )

    def _alter(self, group_id: str, offsets: Mapping[str, Mapping[int, int]], token: Token) -> None:
        core, turn = self._core, self._core.turn
        try:
            group = core.find_or_make(group_id)
            _check_empty(group)
        except GroupError as e:
            turn.reply(token, AlteredOffsets(e.code, str(e)))
            return
        told: dict[str, dict[int, ErrorCode]] = {}
        begun: dict[bytes, dict[int, int]] = {}
        for name, wanted in offsets.items():
            topic = core.topics.by_name(name)
            count = 0 if topic is None else topic.partitions
            told[name] = {p: ErrorCode.NONE if 0 <= p < count else _UNKNOWN for p in wanted}
            if topic is not None:
                begun[topic.id] = {p: offset for p, offset in wanted.items() if 0 <= p < count}
        if not any(begun.values()):
            turn.reply(token, AlteredOffsets(topics=told))
            return
        now_ms = turn.now.wall_ms
        noted = {t: TopicState(core.name(t), frozenset(found), now_ms) for t, found in begun.items()}

        def finish(errors: Mapping[ShareKeyLike, ErrorCode]) -> None:
            for (_, topic_id, partition), error in errors.items():
                told[core.name(topic_id)][partition] = error
            turn.reply(token, AlteredOffsets(topics=told))

        core.write(
            group,
            [core.initializing_record(group, noted)],
            lambda: core.initialize(group, group.epoch, begun, finish),
            lambda error: turn.reply(token, AlteredOffsets(error, error.message)),
        )

    # Delete

    def delete(self, group_id: str, names: Sequence[str], token: Token) -> None:
        """Handle a DeleteShareGroupOffsets. The reply is a DeletedOffsets."""
        self._core.journal.when_free(
            group_id,
            lambda: self._delete(group_id, names, token),
            lambda: self._core.turn.reply(token, DeletedOffsets(ErrorCode.UNKNOWN_SERVER_ERROR)),
        )

    def _delete(self, group_id: str, names: Sequence[str], token: Token) -> None:
        core, turn = self._core, self._core.turn
        try:
            group = core.find(group_id)
            _check_empty(group)
        except GroupError as e:
            turn.reply(token, DeletedOffsets(e.code, str(e)))
            return
        told: dict[str, tuple[ErrorCode, str | None]] = {}
        gone: dict[bytes, str] = {}
        keys: list[ShareKeyLike] = []
        for name in names:
            topic = core.topics.by_name(name)
            if topic is None:
                told[name] = (_UNKNOWN, _UNKNOWN.message)
                continue
            ready = group.initialized.get(topic.id)
            if ready is None and topic.id not in group.deleting_topics:
                told[name] = (_UNKNOWN, "There is no offset information to delete.")
                continue
            gone[topic.id] = name
            partitions: Iterable[int] = range(topic.partitions) if ready is None else ready.partitions
            keys += [(group_id, topic.id, p) for p in partitions]
        if not gone:
            turn.reply(token, DeletedOffsets(topics=told))
            return
        left = {t: it for t, it in group.initialized.items() if t not in gone}
        deleting = {**group.deleting_topics, **gone}
        made = records.state_partitions(group_id, group.initializing, left, deleting)

        def deleted(errors: Mapping[ShareKeyLike, ErrorCode]) -> None:
            bad = {key[1]: error for key, error in errors.items() if error is not ErrorCode.NONE}
            for topic_id, name in gone.items():
                error = bad.get(topic_id, ErrorCode.NONE)
                told[name] = (error, None if error is ErrorCode.NONE else error.message)
            core.journal.when_free(group_id, lambda: self._deleted(group, gone.keys() - bad.keys()))
            turn.reply(token, DeletedOffsets(topics=told))

        core.write(
            group,
            [made],
            lambda: turn.change_share_states(dict.fromkeys(keys), deleted),
            lambda error: turn.reply(token, DeletedOffsets(error, error.message)),
        )

    def _deleted(self, group: ShareGroup, topic_ids: Iterable[bytes]) -> None:
        """Note that the states of these topics are gone."""
        gone = set(topic_ids)
        if not gone or self._core.groups.get(group.group_id) is not group or group.deleting:
            return
        left = {t: name for t, name in group.deleting_topics.items() if t not in gone}
        made = records.state_partitions(group.group_id, group.initializing, group.initialized, left)
        self._core.write(group, [made], lambda: None, lambda _: None)

    # The end of a group

    def delete_states(self, group: ShareGroup, then: Callable[[ErrorCode], None]) -> None:
        """Delete the states of all its partitions, before the group itself goes. `then` gets the first error."""
        core = self._core
        partitions: dict[bytes, frozenset[int]] = {}
        for found in (group.initialized, group.initializing):
            for topic_id, it in found.items():
                partitions[topic_id] = partitions.get(topic_id, frozenset()) | it.partitions
        for topic_id in group.deleting_topics:
            topic = core.topics.by_id(topic_id)
            if topic is not None:
                partitions[topic_id] = frozenset(range(topic.partitions))
        if not partitions:
            then(ErrorCode.NONE)
            return
        deleting = {topic_id: core.name(topic_id) for topic_id in partitions}
        made = records.state_partitions(group.group_id, {}, {}, deleting)
        keys: list[ShareKeyLike] = [(group.group_id, t, p) for t, found in partitions.items() for p in found]

        def deleted(errors: Mapping[ShareKeyLike, ErrorCode]) -> None:
            then(next((e for e in errors.values() if e is not ErrorCode.NONE), ErrorCode.NONE))

        core.write(group, [made], lambda: core.turn.change_share_states(dict.fromkeys(keys), deleted), then)


def _check_empty(group: ShareGroup) -> None:
    """Raises GroupError (NON_EMPTY_GROUP) for a group with members."""
    if not group.is_empty:
        raise GroupError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.message)
