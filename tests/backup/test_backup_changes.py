"""Topics that come, go, and are made anew while a backup is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.backups import commit, topic_configs, write
from support.broker import new_topic

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.backup import create as making
from klamm.backup import restore as restoring
from klamm.backup.errors import BackupError
from klamm.backup.folder import BackupFolder
from klamm.backup.model import State
from klamm.backup.selection import Names, Selection
from klamm.backup.store import open_store
from klamm_kafka.client import Cluster
from klamm_kafka.wire.errors import ErrorCode


class Meddler:
    """A progress that does something when the first records have come, and keeps what is said."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act
        self.said: list[str] = []

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self, offsets: int, _size: int) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()

    def say(self, text: str) -> None:
        self.said.append(text)


def taken(bootstrap: str, place: object, progress: Meddler, *topics: str) -> State:
    """Return the state of a backup of these topics."""
    folder = BackupFolder.make(open_store(str(place)), None)

    async def run() -> State:
        async with Admin(bootstrap) as admin, Cluster(bootstrap) as cluster:
            wanted = making.Wanted(selection=Selection(include=topics))
            return (await making.create(admin, cluster, folder, wanted, progress)).state(None)

    return asyncio.run(run())


def names(state: State) -> list[str]:
    return sorted(t.name for t in state.topics)


def test_a_partition_without_a_leader_is_told_with_the_way_around_it(broker, tmp_path, monkeypatch):
    topic, other = new_topic(broker), new_topic(broker)
    write(broker.bootstrap, other, 0, 10)
    ranks = making.ranks

    async def leaderless(admin, source, places, configs):
        if any(tp.topic == topic for tp in places):
            raise AdminError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-0")
        return await ranks(admin, source, places, configs)

    monkeypatch.setattr(making, "ranks", leaderless)
    said = rf"{topic}-0: .*; no backup is made \(--exclude TOPIC makes one of all others\)"
    with pytest.raises(BackupError, match=said):
        taken(broker.bootstrap, tmp_path / "b", Meddler(lambda: None), topic, other)
    assert names(taken(broker.bootstrap, tmp_path / "b", Meddler(lambda: None), other)) == [other]


@pytest.mark.parametrize(("anew", "said"), [(True, "was made anew"), (False, "was deleted")])
def test_a_topic_that_is_replaced_while_it_is_read_is_left_out_alone(broker, tmp_path, anew, said):
    topic, other = new_topic(broker), new_topic(broker)
    write(broker.bootstrap, topic, 0, 100_000, **{"batch.size": 20_000})
    write(broker.bootstrap, other, 0, 10)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})

    def replace() -> None:
        client.delete_topics([topic])[topic].result(30)
        if anew:
            client.create_topics([NewTopic(topic, 1)])[topic].result(30)

    progress = Meddler(replace)
    assert names(taken(broker.bootstrap, tmp_path / "b", progress, topic, other)) == [other]
    assert [text for text in progress.said if topic in text] == [
        f"topic {topic} {said} while it was read; it is left out"
    ]


def test_a_topic_that_is_deleted_once_it_is_read_is_said(broker, tmp_path, monkeypatch):
    topic, other = new_topic(broker), new_topic(broker)
    write(broker.bootstrap, topic, 0, 10)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    read = making._Run._read

    async def then_delete(self, *args):
        found = await read(self, *args)
        client.delete_topics([topic])[topic].result(30)
        return found

    monkeypatch.setattr(making._Run, "_read", then_delete)
    progress = Meddler(lambda: None)
    assert names(taken(broker.bootstrap, tmp_path / "b", progress, topic, other)) == [other]
    assert any(topic in text and "deleted" in text for text in progress.said), progress.said


def test_a_topic_that_a_group_made_before_it_committed_is_in_the_backup(broker, tmp_path, monkeypatch):
    """The group's offset says that its record is done, so what it wrote must be there."""
    source = new_topic(broker)
    output = f"{source}-output"
    write(broker.bootstrap, source, 0, 10)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    moment, times = making.moment, []

    async def work_first(*args):
        if not times:
            client.create_topics([NewTopic(output, 1)])[output].result(30)
            write(broker.bootstrap, output, 0, 10)
            commit(broker.bootstrap, "worker", {(source, 0): 10})
        times.append(1)
        return await moment(*args)

    monkeypatch.setattr(making, "moment", work_first)
    state = taken(broker.bootstrap, tmp_path / "b", Meddler(lambda: None), f"{source}*")
    assert [(g.name, g.offsets[0].offset) for g in state.groups] == [("worker", 10)]
    assert names(state) == [source, output]
    assert state.records == 20


def test_a_topic_that_is_deleted_before_it_is_asked_about_is_no_end_of_the_backup(
    broker, tmp_path, monkeypatch
):
    topic, other = new_topic(broker), new_topic(broker)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    configs, times = making.cluster_state.topic_configs, []

    async def delete_first(*args):
        if not times:
            client.delete_topics([topic])[topic].result(30)
            times.append(1)
        return await configs(*args)

    monkeypatch.setattr(making.cluster_state, "topic_configs", delete_first)
    state = taken(broker.bootstrap, tmp_path / "b", Meddler(lambda: None), f"/{topic}|{other}/")
    assert names(state) == [other]


def test_retention_begins_when_a_restore_has_nothing_left_to_go_on_with(broker, tmp_path, monkeypatch):
    """Groups may fail, when one of them gets a member meanwhile. Until they are done, no record may go."""
    topic = new_topic(broker, config={"retention.ms": "86400000"})
    copy = f"{topic}-copy"
    write(broker.bootstrap, topic, 0, 100)
    commit(broker.bootstrap, f"group-{topic}", {(topic, 0): 40})
    state = taken(broker.bootstrap, tmp_path / "b", Meddler(lambda: None), topic)
    folder = BackupFolder.open(open_store(str(tmp_path / "b")), None)

    async def restored(*, resume: bool) -> restoring.Outcome:
        wanted = restoring.Wanted(
            names=Names(renames={topic: copy}), resume=resume, parts=frozenset({"topics", "groups"})
        )
        async with Admin(broker.bootstrap) as admin, Cluster(broker.bootstrap) as cluster:
            return await restoring.restore(
                admin, cluster, folder, state, wanted=wanted, progress=Meddler(lambda: None)
            )

    async def refused(*_):
        raise BackupError("a group has members")

    with monkeypatch.context() as patch:
        patch.setattr(restoring.applying, "restore_groups", refused)
        with pytest.raises(BackupError, match="a group has members"):
            asyncio.run(restored(resume=False))
    assert "retention.ms,-1" in topic_configs(broker.bootstrap, copy)
    outcome = asyncio.run(restored(resume=True))
    assert (outcome.had, outcome.records, outcome.offsets) == (100, 0, 1)
    assert "retention.ms,86400000" in topic_configs(broker.bootstrap, copy)
