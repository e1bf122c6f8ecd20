"""Topics when the disk takes nothing any more: what failed has not happened, and can be asked for again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm_base.files import NotSynced
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.segment import Segment
from klamm_broker.log.topic_registry import TopicRegistry

NOW = 1_800_000_000_000


@pytest.fixture
def manager(tmp_path):
    opened = LogManager(tmp_path / "data", now_ms=NOW)
    opened.create_topic("t", 1, {"retention.ms": "1"}, now_ms=NOW)
    yield opened
    opened.close()


def fill(patch, cls, name, calls):
    """Makes the method find the disk full from its `calls`-th call on."""
    original, count = getattr(cls, name), [0]

    def refuse(*args, **kwargs):
        count[0] += 1
        if count[0] > calls:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*args, **kwargs)

    patch.setattr(cls, name, refuse)


CHANGES = {
    "create": lambda m: m.create_topic("new", 3, now_ms=NOW),
    "grow": lambda m: m.add_partitions("t", 3, now_ms=NOW),
    "delete": lambda m: m.delete_topic("t", now_ms=NOW),
    "configs": lambda m: m.alter_configs("t", {"retention.ms": "2"}),
}
FAILURES = {
    "registry": (TopicRegistry, "_write", 0),
    "segments": (Segment, "create", 1),
    "segments and then the registry": (Segment, "create", 0),
}


def state(manager):
    topics = {t.name: (t.partitions, dict(t.configs)) for t in manager.topics.values()}
    return topics, sorted(log.name for log in manager)


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        *((change, "registry") for change in CHANGES),
        *((change, failure) for change in ("create", "grow") for failure in list(FAILURES)[1:]),
    ],
)
def test_a_change_that_failed_has_not_happened_and_can_be_repeated(manager, change, failure, monkeypatch):
    before = state(manager)
    with monkeypatch.context() as patch:
        fill(patch, *FAILURES[failure])
        if "then" in failure:
            fill(patch, TopicRegistry, "_write", 1)
        with pytest.raises(OSError, match="No space left"):
            CHANGES[change](manager)
    assert state(manager) == before
    CHANGES[change](manager)
    after = state(manager)
    assert after != before
    manager.close()
    again = LogManager(Path(manager.directory), now_ms=NOW)
    assert state(again) == after
    again.close()


@pytest.mark.parametrize("failure", FAILURES)
def test_of_several_new_topics_those_that_failed_have_not_happened(manager, failure, monkeypatch):
    before, wanted = state(manager), {"a": (1, {}), "b": (2, {}), "c": (1, {})}
    there = {"a": 1} if failure == "segments" else {}
    with monkeypatch.context() as patch:
        fill(patch, *FAILURES[failure])
        if "then" in failure:
            fill(patch, TopicRegistry, "_write", 1)
        failed = manager.create_topics(wanted, now_ms=NOW)
    assert {name: str(error) for name, error in failed.items()} == dict.fromkeys(
        wanted.keys() - there.keys(), "[Errno 28] No space left on device"
    )
    assert state(manager)[1] == sorted([*before[1], *(f"{name}-0" for name in there)])
    missing = {name: wanted[name] for name in failed}
    assert manager.create_topics(missing | {"t": (1, {})}, now_ms=NOW).keys() == {"t"}
    after = state(manager)
    assert after[1] == ["a-0", "b-0", "b-1", "c-0", "t-0"]
    manager.close()
    again = LogManager(Path(manager.directory), now_ms=NOW)
    assert state(again) == after
    again.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_in_the_file_but_not_for_sure_is_taken_back_there(manager, change, monkeypatch):
    def broken(_):
        raise OSError(errno.EIO, "Input/output error")

    before = state(manager)
    with monkeypatch.context() as patch:
        patch.setattr("klamm_base.files.sync_directory", broken)
        with pytest.raises(NotSynced):
            CHANGES[change](manager)
    assert state(manager) == before
    stored = TopicRegistry.load(manager.directories[0].path / "klamm-topics.json")
    assert {t.name: (t.partitions, dict(t.configs)) for t in stored.topics.values()} == before[0]
    CHANGES[change](manager)
    assert state(manager) != before
