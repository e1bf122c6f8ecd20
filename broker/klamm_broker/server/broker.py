"""Puts a broker together: makes its parts, opens and closes them, does the periodic work, reacts to failing disks.

`Broker` knows no sockets. It is opened once, serves from one event loop's thread, and is closed once. No part knows
`Broker`: each part gets what it needs, and the handlers get its `BrokerState`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm_base.errors import ConfigError
from klamm_base.first_use import FirstUse
from klamm_base.internal_topics import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, TRANSACTIONS_TOPIC
from klamm_broker.log.disk_failure import is_broken
from klamm_broker.log.errors import LogError, UnusableDirectory
from klamm_broker.log.log_manager import LogManager
from klamm_broker.server import file_names
from klamm_broker.server.authorizer_keys import CLASS as AUTHORIZER
from klamm_broker.server.cleaner import LogCleaner
from klamm_broker.server.cluster_config import FILE_NAME as CLUSTER_FILE
from klamm_broker.server.cluster_config import ClusterConfig, ResourceType
from klamm_broker.server.dynamic_config import MIN_ISR
from klamm_broker.server.flusher import Flusher
from klamm_broker.server.groups import GroupShell
from klamm_broker.server.quotas import FILE_NAME as QUOTAS_FILE
from klamm_broker.server.quotas import ClientQuotas
from klamm_broker.server.replica_mover import ReplicaMover
from klamm_broker.server.state import BrokerState
from klamm_broker.server.topic_changes import TopicChanges
from klamm_broker.server.transactions import TransactionShell

if TYPE_CHECKING:
    from klamm_broker.server.acl_file import StoredAuthorizer
    from klamm_broker.server.client_telemetry import ClientTelemetry
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.scram_users import ScramUsers
    from klamm_broker.server.share_groups import ShareServing
    from klamm_broker.server.share_states import ShareStateShell
    from klamm_broker.server.token_file import TokenFile
    from klamm_broker.server.topics import Topic

log = logging.getLogger(__name__)

_TOKENS: Final = "delegation.token"
SOON_S: Final = 0.05
"""The pause between two parts of periodic work."""
PAUSE_MAX_S: Final = 86_400.0
"""Longest pause of periodic work. Kafka's "never" (Long.MAX_VALUE) does not fit a timer."""


class Broker(BrokerState):
    """Owns logs, topics and coordinators of one node.

    `failure` says why the broker has to stop; `on_failure` is called once there is one.
    """

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, loop)
        self.topic_changes = TopicChanges(self, self)
        self.cleaner = LogCleaner(self)
        self.mover = ReplicaMover(self)
        self.failure: UnusableDirectory | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._jobs: dict[str, asyncio.Future[None]] = {}
        self._failing: set[str] = set()  # jobs whose last run failed, which was logged
        self._flusher: Flusher

    # ---- life

    def open(self) -> None:
        """Lock the data directory, recover every partition, start the coordinators. Raises KlammError."""
        config = self.config
        self.logs = LogManager(
            config.log_dirs,
            config.topic_defaults,
            now_ms=self.now_ms(),
            node_id=config.node_id,
            cluster_id=config["cluster.id"],
            producer_id_expiration_ms=config["producer.id.expiration.ms"],
            commit_by_flush=config["durability"] == "fsync",
        )
        self.logs.report = self._disk_error
        self._load_cluster_config()
        self._prepare_users()
        self._prepare_tokens()
        self.quotas = ClientQuotas(config.log_dir / QUOTAS_FILE, config)
        self.telemetry_taken = FirstUse(self._make_telemetry)
        if config[AUTHORIZER]:
            self.authorizer = self._open_authorizer()
        for name in self.logs.topics:
            self.serve_topic(name)
        self.share_states_kept, self.shares_served = (
            FirstUse(self._open_share_states), FirstUse(self._make_shares),
        )  # fmt: skip
        self.groups = GroupShell(self, self.topic_changes, self.cluster_config, self.share_states_kept)
        self.transactions = TransactionShell(self, self.topic_changes, self.groups, self.cluster_config)
        if SHARE_GROUPS_TOPIC in self.topics.by_name:
            self.share_states_kept()
        self.groups.open()
        self.transactions.open()
        self._every("log.flush.offset.checkpoint.interval.ms", self._write_checkpoints)
        self._every("log.retention.check.interval.ms", self._apply_retention)
        self._every(
            "producer.id.expiration.check.interval.ms", lambda: self.logs.expire_producers(self.now_ms())
        )
        self._every("share.coordinator.state.topic.prune.interval.ms", self._prune_share_states)
        self._flusher = Flusher(self.logs, interval_ms=config["log.flush.scheduler.interval.ms"])
        self._flusher.start(self.loop)
        self.mover.resume()
        self.cleaner.start()

    def _load_cluster_config(self) -> None:
        """Load and apply the properties that were changed at run time. A value that no longer fits is logged and ignored."""
        # A new file takes the minimum from server.properties for good, as in Kafka with eligible leader replicas.
        least = str(self.config[MIN_ISR])
        new = {(ResourceType.BROKER, ""): {MIN_ISR: least}}
        self.cluster_config = ClusterConfig.load(self.config.log_dir / CLUSTER_FILE, new=new)
        try:
            self.apply_dynamic_config()
        except ConfigError as e:
            log.error("configurations in %s could not be applied: %s", CLUSTER_FILE, e)  # noqa: TRY400

    def _prepare_users(self) -> None:
        """Read the users if there are any; otherwise whoever asks for one first has the empty list made."""

        def load() -> ScramUsers:
            from klamm_broker.server.scram_users import ScramUsers

            return ScramUsers.load(path)

        path = self.config.log_dir / file_names.USERS
        self.users_kept = FirstUse(load)
        if path.exists():
            self.users_kept()

    def _prepare_tokens(self) -> None:
        """Read the delegation tokens if there can be any; otherwise whoever asks for one first has the empty list made."""
        self.tokens_kept = FirstUse(self._open_tokens)
        if (
            self.config[f"{_TOKENS}.secret.key"] is not None
            or (self.config.log_dir / file_names.TOKENS).exists()
        ):
            self.tokens_kept()

        def sweep() -> bool:
            return self.tokens_kept.made is not None and self.tokens_kept.made.sweep(self.now_ms())

        self._every(f"{_TOKENS}.expiry.check.interval.ms", sweep)

    def _open_tokens(self) -> TokenFile:
        from klamm_broker.security.tokens import TokenRules
        from klamm_broker.server.token_file import TokenFile

        config = self.config
        rules = TokenRules(
            max_ms=config[f"{_TOKENS}.max.lifetime.ms"], renew_ms=config[f"{_TOKENS}.expiry.time.ms"]
        )
        key = config[f"{_TOKENS}.secret.key"]
        return TokenFile(config.log_dir / file_names.TOKENS, None if key is None else key.value, rules)

    def _open_share_states(self) -> ShareStateShell:
        from klamm_broker.server.share_states import ShareStateShell

        shell = ShareStateShell(self, self.topic_changes)
        shell.open()
        return shell

    def _make_shares(self) -> ShareServing:
        from klamm_broker.server.share_groups import ShareServing

        return ShareServing(self, self.share_states_kept(), self.cluster_config)

    def _close_shares(self) -> None:
        for part in (self.shares_served.made, self.share_states_kept.made):
            if part is not None:
                part.close()

    def _prune_share_states(self) -> None:
        if self.share_states_kept.made is not None:
            self.share_states_kept.made.prune()

    def _make_telemetry(self) -> ClientTelemetry:
        from klamm_broker.server.client_telemetry import ClientTelemetry

        return ClientTelemetry(self.cluster_config, max_bytes=self.config["telemetry.max.bytes"])

    def _open_authorizer(self) -> StoredAuthorizer:
        from klamm_broker.server.acl_file import open_authorizer
        from klamm_broker.server.audit import Denials

        self.denials = Denials(self.loop.time, self.loop.call_later)
        return open_authorizer(self.config, self.denials)

    async def close(self) -> None:
        """Flush, checkpoint, leave the clean-shutdown marker."""
        for timer in self._timers.values():
            timer.cancel()
        if self.denials is not None:
            self.denials.close()
        await self.topic_changes.finish()
        await self.cleaner.stop()
        await self.mover.stop()
        await self._flusher.stop()
        await self.commits.stop()
        if self._jobs:
            await asyncio.wait(list(self._jobs.values()))
        if self.failure is not None:
            self._abandon()
            return
        self.transactions.close()
        self.groups.close()
        self._close_shares()
        self.logs.close()

    # ---- directories that fail

    def _disk_error(self, directory: Path, error: OSError) -> None:
        """Take note that an operation in a log directory has failed. Any thread may call this, in the middle of anything."""
        if is_broken(directory, error):
            self.loop.call_soon_threadsafe(self.fail_directory, directory, error)

    def fail_directory(self, path: Path, error: OSError) -> None:
        """Take a log directory offline until the next start. Without the first directory the broker has to stop."""
        logs = self.logs
        if self.failure is not None or path in logs.unusable:
            return
        if path == logs.directories[0].path:
            why = f"log directory {path} has failed: {error}"
            if len(self.config.log_dirs) > 1:
                why += ". It is the first of log.dirs, which holds the list of topics"
            self.failure = UnusableDirectory(f"{why}. The broker stops")
            log.critical("%s", self.failure)
            self.on_failure()
            return
        gone = logs.fail_directory(path, error)
        log.critical(
            "log directory %s has failed: %s. Its %d partitions are offline until it works and the broker is started again",
            path, error, len(gone),
        )  # fmt: skip
        for offline in gone:
            partition = self.partition(offline.topic, offline.partition)
            if partition is not None:
                partition.log = offline
                self.waiting.gone(partition)
                self.commits.gone(partition)

    def _abandon(self) -> None:
        """Release everything without writing. The next start finds out what the failing disk holds."""
        self.transactions.close()
        self.groups.close()
        self._close_shares()
        self.logs.release()

    def _write_checkpoints(self) -> None:
        self._in_thread("writing checkpoints", self.logs.checkpoint_job)

    def _apply_retention(self) -> None:
        now_ms = self.now_ms()
        self.logs.apply_retention(now_ms)
        self.fetch_sessions.note_log_starts()
        self._in_thread("removing deleted topics", lambda: self.logs.removal_job(now_ms))

    def _in_thread(self, what: str, make_job: Callable[[], Callable[[], None]]) -> None:
        """Make a job for the disk here and run it in a thread. While the last such job runs, the work is left for later."""
        if what in self._jobs:
            return

        def done(job: asyncio.Future[None]) -> None:
            del self._jobs[what]
            error = job.exception()
            if error is None:
                if what in self._failing:
                    self._failing.remove(what)
                    log.warning("%s succeeds again", what)
            elif not isinstance(error, OSError):
                log.error("%s failed; it will be tried again", what, exc_info=error)
            elif what not in self._failing:  # a full disk stays full for a while: log that once
                self._failing.add(what)
                log.error("%s failed; it will be tried again: %s", what, error)

        self._jobs[what] = self.loop.run_in_executor(None, make_job())
        self._jobs[what].add_done_callback(done)

    def _every(self, key: str, work: Callable[[], object]) -> None:
        """Do `work` at the interval of a property, and soon again if it returns True, as more is left.

        A failing disk is reported, and the work is tried again.
        """
        pause_s = min(self.config[key] / 1000, PAUSE_MAX_S)

        def tick() -> None:
            more: object = False
            try:
                more = work()
            except (LogError, OSError) as e:
                log.error("%s: the periodic work failed: %s", key, e)  # noqa: TRY400
            next_s = min(pause_s, SOON_S) if more is True else pause_s
            self._timers[key] = self.loop.call_later(next_s, tick)

        if pause_s > 0:
            self._timers[key] = self.loop.call_later(pause_s, tick)

    # ---- changes of topics (`TopicListener`)

    def on_topics_created(self, names: Collection[str]) -> None:
        for name in names:
            partitions = len(self.topics.by_name[name].partitions)
            if name == OFFSETS_TOPIC:
                self.groups.coordinator.on_offsets_topic_created(partitions)
            elif name == SHARE_GROUPS_TOPIC:
                if self.share_states_kept.made is not None:
                    self.share_states_kept.made.states.on_topic_created(partitions)
            elif name == TRANSACTIONS_TOPIC:
                self.transactions.coordinator.on_topic_created(partitions)
        self.groups.on_topics_changed(names, created=True)

    def on_partitions_added(self, topic: Topic) -> None:
        self.groups.on_topics_changed([topic.name])

    def on_topic_deleted(self, topic: Topic) -> None:
        gone = [(topic.name, p.index) for p in topic.partitions]
        self.cleaner.on_partitions_deleted(gone)
        self.groups.on_partitions_deleted(gone)
        self._forget_shares(frozenset([topic.id]))
        if topic.name == TRANSACTIONS_TOPIC:
            self.transactions.coordinator.on_topic_deleted()

    def _forget_shares(self, topic_ids: frozenset[bytes]) -> None:
        """Forget deleted topics in share groups, if there were any."""
        served, states, groups = self.shares_served.made, self.share_states_kept.made, self.groups
        if served is not None:
            served.drop_topics(topic_ids)
        share = groups.coordinator.share_groups.made
        if share is not None:
            groups.run(share.on_topics_deleted(topic_ids, groups.now()))
        if states is not None:
            states.on_topics_deleted(topic_ids)
