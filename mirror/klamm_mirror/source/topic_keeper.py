"""The thread of MirrorSourceConnector that looks after topics: periodically, and soon again after a failure."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_kafka.client import ClientError, Cluster
from klamm_mirror.clients import ClientSettings
from klamm_mirror.gaps.ledger import Ledger, ledger_of
from klamm_mirror.gaps.source_cluster import check_source
from klamm_mirror.settings.common_config import Side
from klamm_mirror.settings.filters import patterns
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.source.config import PAUSED
from klamm_mirror.source.log_sizes import log_sizes
from klamm_mirror.topics.acls import AclSync
from klamm_mirror.topics.config_policy import POLICY, ConfigPolicy
from klamm_mirror.topics.target import DELETE, DELETIONS, Topics
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

FIRST_LOOK_S: Final = 20.0
"""Seconds that the connector's `task_configs` waits for the first look at both clusters."""
RETRY_S: Final = 2.0
NAMED_MAX: Final = 20


class TopicKeeper:
    """Looks after the topics of one flow. Calls `changed` when it finds partitions that no task has."""

    def __init__(
        self, props: Mapping[str, str], parsed: Mapping[str, Any], changed: Callable[[], None]
    ) -> None:
        self._parsed = parsed
        self._flow = f"{parsed['source.cluster.alias']}->{parsed['target.cluster.alias']}"
        self._tasks = int(props.get("tasks.max", "1"))
        sides: tuple[Side, Side] = ("source", "target")
        self._clients = [ClientSettings.of(props, side, "admin") for side in sides]
        self._changed = changed
        self._plugins = FlowPlugins(props, parsed)
        self._acls = AclSync()
        self._configs = ConfigPolicy(parsed[POLICY])
        self._fail: Callable[[Exception], None] = lambda _: None
        self._topics: dict[str, int] | None = None
        self._remotes: dict[str, str] = {}
        self.sizes: Mapping[tuple[str, int], int] = {}
        """The bytes that the source holds of partitions, where several tasks share them."""
        self.found_later: frozenset[str] = frozenset()
        """The partitions (`topic-0`) that came after the first look."""
        self.unlisted: frozenset[str] = frozenset()
        """The topics of the first look that the ledger of an earlier run does not have."""
        self._kept: frozenset[str] = frozenset()
        """The remote topics that stay though their sources were deleted."""
        self._error: Exception | None = None
        self._given = False
        self._looked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-topics", daemon=True)

    def start(self, fail: Callable[[Exception], None]) -> None:
        """Starts the thread. It passes an error that makes going on useless to `fail`."""
        self._fail = fail
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(RETRY_S)
        self._plugins.close()

    def partitions(self) -> list[tuple[str, int]]:
        """Returns all partitions to mirror, in order. Waits for the first look. Raises ConnectError, ConfigError."""
        self._looked.wait(FIRST_LOOK_S)
        topics = self._topics
        if topics is None:
            if isinstance(self._error, ConfigError):
                raise self._error
            raise ConnectError(
                f"The clusters cannot be asked for their topics yet: {self._error or 'no answer'}"
            )
        self._given = True
        paused = patterns(PAUSED, self._parsed[PAUSED])
        resting = [topic for topic in sorted(topics) if paused.fullmatch(topic)]
        if resting:
            log.info("%d topics are paused: %s", len(resting), ", ".join(resting[:NAMED_MAX]))
        return [
            (topic, p)
            for topic, count in sorted(topics.items())
            if topic not in resting
            for p in range(count)
        ]

    def _run(self) -> None:
        next_find, prepared = 0.0, False
        syncs = {"sync.topic.configs": self._sync_configs, "sync.topic.acls": self._sync_acls}
        due = {what: 0.0 for what in syncs if self._parsed[f"{what}.enabled"]}
        while not self._stopping.is_set():
            now = time.monotonic()
            try:
                if now >= next_find:
                    asyncio.run(self._look(first=not prepared))
                    prepared, next_find = True, self._next("refresh.topics")
                    self._error = None
                    self._looked.set()
                for what in [w for w, at in due.items() if now >= at]:
                    asyncio.run(syncs[what]())
                    due[what] = self._next(what)
            except ClientError as e:
                if self._error is None:
                    log.warning("the topics will be looked at again soon: %s", e)
                self._error = e
                self._looked.set()
                if not e.retriable:
                    self._fail(ConnectError(f"Topics cannot be looked after: {e}"))
                    return
                self._stopping.wait(RETRY_S)
            except Exception as e:
                self._error = e
                self._looked.set()
                self._fail(e)
                return
            self._stopping.wait(0.2)

    def _next(self, what: str) -> float:
        if not self._parsed[f"{what}.enabled"]:
            return float("inf")
        return time.monotonic() + float(self._parsed[f"{what}.interval.seconds"])

    async def _look(self, *, first: bool) -> None:
        async with self._cluster(0) as source, self._cluster(1) as target:
            if first:  # nothing is made before
                await self._topics_of(source, target).check_clusters()
            ledger = await self._read_ledger(target)
            topics = self._topics_of(source, target)
            found = await topics.find()
            wanted = (known for name, known in ledger.table.topics.items() if topics.wants(name))
            check_source(wanted, topics.cluster, self._flow)
            _, self.sizes = await asyncio.gather(self._prepare(topics), self._sizes_of(source, found))
            if self._topics is None and ledger.table.topics:
                self.unlisted = frozenset(topics.ids.keys() - ledger.table.topics.keys())
            made = await topics.make(found)
            named = self._plugins.policy.mapped_name
            news = ledger.table.news(found, topics.ids, named, made, topics.cluster)
            await ledger.write(news)
            if self._parsed[DELETIONS] == DELETE and (ended := ledger.table.ended(found, topics.wants)):
                self._tell_kept(await topics.delete(ended, ledger.table.made()))
            # Topics that are gone keep their tasks until these have entered the end in the ledger.
            found |= ledger.table.gone(found, topics.wants)
        before, self._topics = self._topics, found
        if before is not None:
            self.found_later |= {
                f"{t}-{p}" for t, count in found.items() for p in range(before.get(t, 0), count)
            }
        if found != before:
            log.info("%d topics with %d partitions are mirrored", len(found), sum(found.values()))
            if self._given or (before is None and self._looked.is_set()):
                self._changed()

    def _tell_kept(self, names: Sequence[str]) -> None:
        """Names each remote topic once that stays though its source was deleted."""
        for name in names:
            if name not in self._kept:
                log.warning(
                    "%s stays, though its source was deleted (%s): this flow did not make it", name, DELETIONS
                )
        self._kept = frozenset(names)

    async def _read_ledger(self, target: Cluster) -> Ledger:
        ledger = ledger_of(target, self._plugins.policy, self._parsed)
        if not await ledger.catch_up():
            await ledger.make(self._plugins.forwarded(target))
        self._remotes = ledger.table.remotes()
        return ledger

    async def _prepare(self, topics: Topics) -> None:
        """Creates the flow's topics of offsets. Those at one cluster one after the other: a plugin may make them."""
        if self._parsed["offset-syncs.topic.location"] == "target":
            await topics.prepare_syncs()
            await topics.prepare_segments()
        else:
            await asyncio.gather(topics.prepare_syncs(), topics.prepare_segments())

    async def _sizes_of(self, source: Cluster, topics: Mapping[str, int]) -> Mapping[tuple[str, int], int]:
        return await log_sizes(source, topics) if self._tasks > 1 else {}

    def _topics_of(self, source: Cluster, target: Cluster) -> Topics:
        return Topics(self._parsed, self._plugins, source, target, self._remotes)

    async def _sync_configs(self) -> None:
        if not self._topics:
            return
        async with self._cluster(0) as source, self._cluster(1) as target:
            changed = await self._topics_of(source, target).sync_configs(sorted(self._topics), self._configs)
        if changed:
            log.info("%d remote topics got the settings of their sources", changed)

    async def _sync_acls(self) -> None:
        async with self._cluster(0) as source, self._cluster(1) as target:
            topics = self._topics_of(source, target)
            await self._acls.sync(
                source, self._plugins.admin(target), wants=topics.wants, rename=topics.remote
            )

    def _cluster(self, side: int) -> Cluster:
        return self._clients[side].cluster()
