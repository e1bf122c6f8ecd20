"""Decides what to tell about a group's status: the beginning of an incident, the same again, its end. Pure.

An incident begins when a group is no longer OK, and ends when it is OK again, or gone. A notifier hears of it once the status
reaches the notifier's threshold; again, if it wants that, at most every `send_interval_ms`; and of its end if it heard of
its beginning. So every beginning that is told has one end.

A notice may wait for its receiver longer than this process lives. An incident is kept until its end is sent, and remembers which
notifiers have sent its beginning: those that have not are given it again after a restart.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from klamm.lag.model import GroupStatus, Status, not_found


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifierRules:
    """When a notifier is used. With `send_interval_ms` 0 it hears of a beginning once."""

    name: str
    threshold: int
    send_interval_ms: int
    send_close: bool
    wants: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to be told by a notifier. `status` is the group's of now."""

    notifier: str
    incident: str
    opened: bool
    began_ms: int
    status: GroupStatus


@dataclass(slots=True)
class Incident:
    """An incident. `told` has the time of the last notice of each notifier, `sent` the notifiers that have sent one."""

    id: str
    began_ms: int
    told: dict[str, int] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)

    def kept(self) -> dict[str, Any]:
        """Returns what a restart needs to know."""
        told = {name: at_ms for name, at_ms in self.told.items() if name in self.sent}
        return {"id": self.id, "began_ms": self.began_ms, "told": told}

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Incident:
        """Returns an incident of an earlier life."""
        return cls(**kept, sent=set(kept["told"]))


class Incidents:
    """All incidents that go on, by cluster and group."""

    def __init__(self, notifiers: Sequence[NotifierRules]) -> None:
        self._notifiers = notifiers
        self.open: dict[tuple[str, str], Incident] = {}
        self._closing: dict[tuple[str, str], Incident] = {}
        """Incidents that have ended, and whose end is not sent by all notifiers yet."""

    def change(self, notifiers: Sequence[NotifierRules]) -> None:
        """Go by other notifiers from now on. Those that are not there any more have told nothing, and new ones hear of what is open."""
        self._notifiers = notifiers
        names = {rules.name for rules in notifiers}
        for incident in [*self.open.values(), *self._closing.values()]:
            incident.told = {name: at_ms for name, at_ms in incident.told.items() if name in names}
            incident.sent &= names
        self._closing = {place: incident for place, incident in self._closing.items() if incident.told}

    @property
    def kept(self) -> dict[tuple[str, str], Incident]:
        """Incidents that a restart needs to know."""
        return self._closing | self.open

    def sent(self, notice: Notice) -> None:
        """Take in that a notice was sent, or will never be."""
        place = (notice.status.cluster, notice.status.group)
        for incidents in (self.open, self._closing):
            incident = incidents.get(place)
            if incident is not None and incident.id == notice.incident:
                if notice.opened:
                    incident.sent.add(notice.notifier)
                else:
                    incident.told.pop(notice.notifier, None)
        if (closing := self._closing.get(place)) is not None and not closing.told:
            del self._closing[place]

    def seen(self, status: GroupStatus, now_ms: int) -> list[Notice]:
        """Take in a group's status, returns what is to be told of it."""
        place = (status.cluster, status.group)
        incident = self.open.get(place)
        if status.status <= Status.OK:
            return self._closed(place, status) if incident is not None else []
        if incident is None:
            incident = self.open[place] = Incident(str(uuid.uuid4()), now_ms)
        found = []
        for rules in self._notifiers:
            if (
                status.status >= rules.threshold
                and rules.wants(status.group)
                and _due(rules, incident, now_ms)
            ):
                incident.told[rules.name] = now_ms
                found.append(_notice(rules, incident, status, opened=True))
        return found

    def gone(self, cluster: str, group: str) -> list[Notice]:
        """Take in that a group exists no more, which ends its incident."""
        place = (cluster, group)
        return self._closed(place, not_found(cluster, group)) if place in self.open else []

    def _closed(self, place: tuple[str, str], status: GroupStatus) -> list[Notice]:
        incident = self.open.pop(place)
        told = [r for r in self._notifiers if r.name in incident.told and r.send_close]
        incident.told = {r.name: incident.told[r.name] for r in told}
        if told:
            self._closing[place] = incident
        return [_notice(rules, incident, status, opened=False) for rules in told]


def _due(rules: NotifierRules, incident: Incident, now_ms: int) -> bool:
    told = incident.told.get(rules.name)
    return told is None or (rules.send_interval_ms > 0 and now_ms - told >= rules.send_interval_ms)


def _notice(rules: NotifierRules, incident: Incident, status: GroupStatus, *, opened: bool) -> Notice:
    return Notice(
        notifier=rules.name, incident=incident.id, opened=opened, began_ms=incident.began_ms, status=status
    )
