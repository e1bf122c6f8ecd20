"""A group that fails over reads each record once, however far it is behind: the mapping of offsets, end to end."""

from __future__ import annotations

import pytest
from support.broker import new_name, new_topic
from support.mirroring import Row, Running, produce, props, read

from klamm_kafka.client import Cluster
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.checkpointer import Checkpointer
from klamm_mirror.checkpoint.config import parse
from klamm_mirror.checkpoint.coordinators import Committed

NOW_MS = 1_700_000_000_000


def numbered(first: int, count: int) -> list[Row]:
    return [(None, b"%d" % i, [], NOW_MS + i) for i in range(first, first + count)]


async def translated(config: dict[str, str], group: str, topic: str, offset: int) -> int | None:
    """The group's offset at the target after one pass of the checkpoint connector; it is committed first."""
    settings = parse({**config, "sync.group.offsets.enabled": "true", "groups": group})
    servers = (config[f"{side}.cluster.bootstrap.servers"] for side in ("source", "target"))
    async with Cluster(next(servers)) as source, Cluster(next(servers)) as target:
        assert not await groups.commit_offsets(source, group, {(topic, 0): Committed(offset)})
        checkpointer = Checkpointer(settings.checkpointer, source=source, target=target)
        await checkpointer.step(0, NOW_MS)
        there = await groups.committed_offsets(target, group)
        assert checkpointer.counts.by_sync == 0
        remote = settings.checkpointer.rename(topic)
        return there[remote, 0].offset if (remote, 0) in there else None


@pytest.mark.usefixtures("processes")
async def test_a_lagging_group_repeats_nothing_and_loses_nothing(source, target):
    topic, sent = new_topic(source), numbered(0, 20_000)
    config = props(source.bootstrap, target.bootstrap, topics=topic)
    produce(source.bootstrap, topic, sent)
    with Running(config) as mirror:
        mirror.until(lambda: mirror.records == len(sent), "all is there")
    for offset in (0, 1, 7, 4_999, 12_345, 19_999, 20_000):
        assert await translated(config, new_name("group"), topic, offset) == offset


@pytest.mark.usefixtures("processes")
async def test_records_that_were_copied_twice_are_read_once(source, target):
    topic, sent = new_topic(source), numbered(0, 6_000)
    config = props(source.bootstrap, target.bootstrap, topics=topic)
    produce(source.bootstrap, topic, sent[:4_000])
    with Running(config) as mirror:
        mirror.until(lambda: mirror.records == 4_000, "all is there")
    # As after a crash: the commit that is known lies before what was copied.
    known = [([{"cluster": "A", "topic": topic, "partition": 0}, {"offset": 2_999}])]
    produce(source.bootstrap, topic, sent[4_000:])
    again = Running(config).start([known])
    try:
        again.until(lambda: again.records == 3_000, "the rest is there")
    finally:
        again.stop()
    copied = read(target.bootstrap, f"A.{topic}", None)
    assert len(copied) == 7_000
    for offset in (0, 2_999, 3_000, 3_500, 4_000, 5_999):
        at = await translated(config, new_name("group"), topic, offset)
        assert at is not None
        assert copied[at] == sent[offset]
        assert offset < 3_000 or copied[at:] == sent[offset:]


@pytest.mark.usefixtures("processes")
async def test_the_mapping_of_another_mirror_is_its_offset_syncs(source, target):
    topic, sent = new_topic(source), numbered(0, 3_000)
    config = props(source.bootstrap, target.bootstrap, topics=topic)
    produce(source.bootstrap, topic, sent[:1_000])
    with Running(config | {"mirror.offset.segments.enabled": "false"}) as mirror:
        mirror.until(lambda: mirror.records == 1_000, "all is there")
    commits = mirror.commits
    produce(source.bootstrap, topic, sent[1_000:])
    again = Running(config).start(commits)
    try:
        again.until(lambda: again.records == 2_000, "the rest is there")
    finally:
        again.stop()
    assert await translated(config, new_name("group"), topic, 1_555) == 1_555
    with pytest.raises(AssertionError, match="by_sync"):
        await translated(config, new_name("group"), topic, 555)
