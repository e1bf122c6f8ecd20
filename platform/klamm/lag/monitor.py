"""The lag of all clusters: watches them, judges their groups, has notices sent, keeps history."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from klamm.lag.history import History
from klamm.lag.incidents import Incidents, Notice
from klamm.lag.model import GroupStatus
from klamm.lag.sending import Notifier
from klamm.lag.settings import LagSettings, NotifierSettings
from klamm.lag.state import ClusterState
from klamm.lag.watch import ClusterWatch, now_ms
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

JUDGE_S: Final = 1.0
"""Between two looks at the statuses of groups, for notices."""
JUDGE_SHARE: Final = 20
"""A look at ten thousand partitions takes a tenth of a second: the pause until the next one is so many times as long."""
GROUPS_A_SLICE: Final = 20
"""Groups that are judged before requests have their turn."""
SAVE_S: Final = 10.0


class Monitor:
    """The watch of all clusters of `settings`. Raises KlammError for a history that cannot be used, ConfigError for a template."""

    def __init__(self, settings: LagSettings) -> None:
        self.settings = settings
        self.history = History(
            settings.history_dir,
            retention_ms=settings.history_retention_ms,
            rows_max=settings.history_max_rows,
        )
        self.states = {c.name: ClusterState(c.name, settings.judging) for c in settings.clusters}
        begin = {name: self.history.restore(state) for name, state in self.states.items()}
        self.watches = {
            c.name: ClusterWatch(c, self.states, begin[c.name], settings.wanted) for c in settings.clusters
        }
        self.notifiers = {n.rules.name: Notifier(n, self._sent) for n in settings.notifiers}
        self._tasks: asyncio.TaskGroup | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}
        self.incidents = Incidents([n.rules for n in settings.notifiers])
        self.incidents.open = self.history.incidents()
        for incident in self.incidents.open.values():
            for name in incident.sent & self.notifiers.keys():
                self.notifiers[name].knows(incident.id)
        self.history_trouble: str | None = None
        self._judged: list[GroupStatus] = []
        """The statuses of the last look."""
        self._seen: dict[tuple[str, str], int] = {}
        """The last time at which a group could be judged."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self.watches.values():
                tasks.create_task(watch.run())
            self._tasks = tasks
            self._start_notifiers()
            tasks.create_task(self._judge())
            tasks.create_task(self._save())

    def _start_notifiers(self) -> None:
        assert self._tasks is not None, "runs"
        for name in self.notifiers.keys() - self._sending.keys():
            self._sending[name] = self._tasks.create_task(self.notifiers[name].run())

    def change_notifiers(self, settings: Sequence[NotifierSettings]) -> None:
        """Use other notifiers from now on; what waits is sent by the new ones of the same name. Raises ConfigError, and changes nothing,
        for one that cannot be used.
        """
        made = {n.rules.name: Notifier(n, self._sent) for n in settings}
        for name in self.notifiers.keys() - made.keys():
            del self.notifiers[name]
            if (task := self._sending.pop(name, None)) is not None:
                task.cancel()
        for name, notifier in made.items():
            if name in self.notifiers:
                self.notifiers[name].change(notifier)
            else:
                self.notifiers[name] = notifier
        self.incidents.change([n.rules for n in settings])
        self.settings = replace(self.settings, notifiers=tuple(settings))
        if self._tasks is not None:
            self._start_notifiers()
        self._keep(self._save_incidents)

    async def close(self) -> None:
        """Keep the last state; close connections and history. `run` has ended."""
        self._keep(self.save)
        for watch in self.watches.values():
            await watch.close()
        self.history.close()

    def status(self, cluster: str, group: str) -> GroupStatus | None:
        """Returns the status of a group of now, or of when it was seen last; None for an unknown group or cluster."""
        state = self.states.get(cluster)
        return state.status(group, self._at(state, group)) if state is not None else None

    def _at(self, state: ClusterState, group: str) -> int:
        """Returns the time of which something is known of a group: what cannot be read now looks like a reader that has stopped."""
        if group in state and self._blind(state.name, group, state.kind(group)):
            return self._seen.get((state.name, group), now_ms())
        return now_ms()

    def statuses(self) -> Iterator[GroupStatus]:
        """Yields the statuses of all groups; each is of the moment at which it is asked for."""
        for state in self.states.values():
            for group in state.groups():
                if (status := state.status(group, self._at(state, group))) is not None:
                    yield status

    async def judge(self) -> None:
        """Look at all groups once, and hand notices to their notifiers."""
        found: list[Notice] = []
        there: dict[tuple[str, str], GroupStatus] = {}
        seen: dict[tuple[str, str], int] = {}
        for number, status in enumerate(self.statuses(), 1):
            there[status.cluster, status.group] = status
            if not self.watches[status.cluster].looked or self._blind(
                status.cluster, status.group, status.kind
            ):
                continue
            seen[status.cluster, status.group] = now_ms()
            found += self.incidents.seen(status, now_ms())
            if number % GROUPS_A_SLICE == 0:
                await asyncio.sleep(0)
        self._judged = list(there.values())
        self._seen = {place: at_ms for place, at_ms in (self._seen | seen).items() if place in there}
        for cluster, group in self.incidents.open.keys() - there.keys():
            # Until a cluster has answered after our start, its groups are not gone but unknown.
            known = cluster not in self.watches or self.watches[cluster].looked
            if known and not self._blind(cluster, group, ""):
                found += self.incidents.gone(cluster, group)
        for notice in found:
            if notice.notifier in self.notifiers:  # it may be gone since
                self.notifiers[notice.notifier].put(notice)
        if found:
            self._keep(self._save_incidents)

    def _blind(self, cluster: str, group: str, kind: str) -> bool:
        """Returns whether positions of a group cannot be read now: a mirror's are in another cluster."""
        return any(watch.blind(cluster, group, kind) for watch in self.watches.values())

    def save(self) -> None:
        """Keep history. Raises KlammError."""
        states = [
            (state, {s.name: s.places() for s in self.watches[name].sources})
            for name, state in self.states.items()
        ]
        self.history.save(states, self._judged, now_ms())
        self._save_incidents()

    def _save_incidents(self) -> None:
        self.history.save_incidents(self.incidents.kept)

    def _sent(self, notice: Notice) -> None:
        if notice.notifier not in self.notifiers:
            return  # it was taken away while it sent
        self.incidents.sent(notice)
        self._keep(self._save_incidents)

    def _keep(self, step: Callable[[], None]) -> None:
        """Keep something; a disk that is full ends nothing, and is said once."""
        try:
            step()
            self.history_trouble = None
        except KlammError as e:
            if self.history_trouble is None:
                log.error("%s", e)  # noqa: TRY400 - a sentence for the operator
            self.history_trouble = str(e)

    async def _judge(self) -> None:
        while True:
            began = time.process_time()
            await self.judge()
            await asyncio.sleep(max(JUDGE_S, JUDGE_SHARE * (time.process_time() - began)))

    async def _save(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            self._keep(self.save)
