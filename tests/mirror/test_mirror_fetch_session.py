"""The mirror's fetch sessions: the handler against our broker's own sessions, whatever is lost, evicted or made anew."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.fetch_world import EPOCH, PARTITIONS, World

from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.fetch import FetchRequest, FetchResponse
from klamm_mirror.copy.fetch_session import Asked, FetchSessionHandler

NAMES = ("a", "b")
KEYS = [(name, index) for name in NAMES for index in range(PARTITIONS)]


class Sessions(RuleBasedStateMachine):
    """After each request that the broker took, its session holds what the mirror wants, no more and no less."""

    @initialize(slots=st.sampled_from([0, 1, 10]))
    def begin(self, slots: int) -> None:
        self.world = World(slots)
        for name in NAMES:
            self.world.create(name)
        self.handler = FetchSessionHandler()
        self.offsets = dict.fromkeys(KEYS, 0)
        self.uses_ids = True
        self.lost = False
        self.full = 0

    @rule(name=st.sampled_from(NAMES), index=st.integers(0, PARTITIONS - 1))
    def append(self, name: str, index: int) -> None:
        self.world.append(name, index)

    @rule(name=st.sampled_from(NAMES))
    def make_anew(self, name: str) -> None:
        self.world.delete(name)
        self.world.create(name)
        self.offsets |= {key: 0 for key in KEYS if key[0] == name}

    @rule()
    def change_version(self) -> None:
        self.uses_ids = not self.uses_ids

    @rule()
    def evict(self) -> None:
        """Another client takes the session's place, or the broker was started anew."""
        self.world.fetch_sessions.remove(self.handler.session_id)

    @rule()
    def lose_the_next_answer(self) -> None:
        self.lost = True

    @rule(wanted=st.sets(st.sampled_from(KEYS), min_size=1), most=st.sampled_from([100, 200]))
    def fetch(self, wanted: set[tuple[str, int]], most: int) -> None:
        topics = self.world.topics.by_name
        asked = {key: (topics[key[0]].id, self.offsets[key], EPOCH, most) for key in wanted}
        for attempt in range(3):
            answer = self._send(asked)
            if self.handler.handle_response(answer):
                break
            assert attempt < 2, "a full request cures any error of a session"
            assert answer.error_code in {70, 71, 106}
        if self.lost:  # the broker has taken the request all the same
            self.lost = False
            self.handler.begin_anew()
        elif answer.session_id:
            self._compare(answer.session_id, asked)
        for topic in answer.responses:
            for data in topic.partitions:
                self.offsets[self.handler.name_of(topic), data.partition_index] = data.high_watermark

    def _send(self, asked: dict[tuple[str, int], Asked]) -> FetchResponse:
        request = self.handler.build(asked, uses_ids=self.uses_ids)
        request.max_bytes = 1 << 20
        if request.session_epoch == 0:
            self.full += 1
            assert {(t.topic, p.partition) for t in request.topics for p in t.partitions} == set(asked)
        return self.world.fetch(request, 13 if self.uses_ids else 12)

    def _compare(self, session_id: int, asked: dict[tuple[str, int], Asked]) -> None:
        session = self.world.fetch_sessions._sessions[session_id]
        held = {
            key: [w.asked.fetch_offset, w.asked.current_leader_epoch, w.asked.partition_max_bytes]
            for key, w in session.partitions.items()
        }
        assert held == {
            (topic_id if self.uses_ids else name, index): wishes
            for (name, index), (topic_id, *wishes) in asked.items()
        }
        assert len(self.world.fetch_sessions) == 1, "no session is left behind"


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=150, stateful_step_count=30)


def asked(**offsets: int) -> dict[tuple[str, int], Asked]:
    return {(name, 0): (name.encode() * 16, offset, EPOCH, 100) for name, offset in offsets.items()}


def answer(session_id: int = 7, **more: int) -> FetchResponse:
    return FetchResponse(session_id=session_id, responses=[], **more)


def named(request: FetchRequest) -> list[str]:
    return [t.topic for t in request.topics]


def test_a_request_names_changes_only_and_the_last_ends_the_session():
    handler = FetchSessionHandler()
    assert handler.close() is None
    first = handler.build(asked(a=1, b=1), uses_ids=True)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, ["a", "b"])
    assert handler.handle_response(answer())
    second = handler.build(asked(a=2, b=1), uses_ids=True)
    assert (second.session_id, second.session_epoch, named(second)) == (7, 1, ["a"])
    assert handler.handle_response(answer())
    third = handler.build(asked(b=1), uses_ids=True)
    assert (third.session_epoch, named(third), len(third.forgotten_topics_data)) == (2, [], 1)
    last = handler.close()
    assert last is not None
    assert (last.session_id, last.session_epoch, last.topics) == (7, -1, [])
    assert handler.close() is None


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_an_error_of_the_session_makes_a_full_request(code, session_id):
    handler = FetchSessionHandler()
    handler.build(asked(a=1), uses_ids=True)
    handler.handle_response(answer())
    handler.build(asked(a=1), uses_ids=True)
    assert not handler.handle_response(answer(error_code=code))
    again = handler.build(asked(a=1), uses_ids=True)
    assert (again.session_id, again.session_epoch, named(again)) == (session_id, 0, ["a"])


def test_epochs_wrap_to_one():
    handler = FetchSessionHandler()
    handler.build(asked(a=1), uses_ids=True)
    handler.handle_response(answer())
    handler._epoch = (1 << 31) - 1
    handler.build(asked(a=1), uses_ids=True)
    handler.handle_response(answer())
    assert handler.build(asked(a=1), uses_ids=True).session_epoch == 1
