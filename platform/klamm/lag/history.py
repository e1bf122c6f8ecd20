"""Keeps in one SQLite file what a restart needs and what people ask about later: windows, places in topics, incidents, and the
course of each group. Used by one thread at a time.

A course has a row where something has changed, and otherwise one every ten minutes, so that idle groups cost nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from klamm.admin.model import TopicPartition
from klamm.lag.incidents import Incident
from klamm.lag.model import Commit, GroupStatus
from klamm.lag.state import ClusterState
from klamm_base.errors import KlammError
from klamm_base.files import make_private_folder

FILE: Final = "lag.sqlite"
SILENT_MS: Final = 600_000
"""An unchanged course has a row as often as this."""
_LOCKED_S: Final = 0.2
"""The wait for somebody who holds the file, for a backup of it perhaps: nothing else happens meanwhile."""
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE windows (cluster TEXT, grp TEXT, kind TEXT, topic TEXT, part INTEGER, commits TEXT, PRIMARY KEY (cluster, grp, topic, part));
CREATE TABLE ends (cluster TEXT, topic TEXT, part INTEGER, points TEXT, PRIMARY KEY (cluster, topic, part));
CREATE TABLE places (cluster TEXT, source TEXT, topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (cluster, source, topic, part));
CREATE TABLE incidents (cluster TEXT, grp TEXT, kept TEXT, PRIMARY KEY (cluster, grp));
CREATE TABLE course (at INTEGER, cluster TEXT, grp TEXT, status TEXT, lag INTEGER, maxlag INTEGER, time_lag INTEGER, complete REAL);
CREATE INDEX course_of ON course (cluster, grp, at);
CREATE INDEX course_at ON course (at);
"""

Places = Mapping[str, Mapping[TopicPartition, int]]
"""Places in topics by source."""


class History:
    """The file in `folder`, made where it is not. Raises KlammError for one that cannot be used."""

    def __init__(self, folder: Path, *, retention_ms: int, rows_max: int) -> None:
        self._retention_ms = retention_ms
        self._rows_max = rows_max
        self._last: dict[tuple[str, str], tuple[tuple[Any, ...], int]] = {}
        path = self._path = folder / FILE
        try:
            make_private_folder(folder)
            self._db = sqlite3.connect(path, timeout=_LOCKED_S)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={_VERSION}; COMMIT;")
        except (sqlite3.Error, OSError) as e:
            raise KlammError(f"history.dir: {path} cannot be used: {e}") from None
        if version not in {0, _VERSION}:
            raise KlammError(
                f"history.dir: {path} is of version {version}, this program knows {_VERSION}: give another folder"
            )

    def close(self) -> None:
        self._db.close()

    # ---- a restart

    def restore(self, state: ClusterState) -> dict[str, dict[TopicPartition, int]]:
        """Gives a cluster's state its windows and ends; returns the places in its topics by source. Raises KlammError."""
        try:
            return self._restored(state)
        except (sqlite3.Error, ValueError, TypeError) as e:
            raise KlammError(
                f"history.dir: {self._path} cannot be read: {e}; move it away to begin anew"
            ) from None

    def _restored(self, state: ClusterState) -> dict[str, dict[TopicPartition, int]]:
        name = (state.name,)
        of_windows = "SELECT grp, kind, topic, part, commits FROM windows WHERE cluster=?"
        for group, kind, topic, part, commits in self._db.execute(of_windows, name):
            state.restore(group, kind, TopicPartition(topic, part), [Commit(*c) for c in json.loads(commits)])
        for topic, part, points in self._db.execute(
            "SELECT topic, part, points FROM ends WHERE cluster=?", name
        ):
            state.restore_ends(TopicPartition(topic, part), json.loads(points))
        places: dict[str, dict[TopicPartition, int]] = {}
        of_places = "SELECT source, topic, part, next FROM places WHERE cluster=?"
        for source, topic, part, following in self._db.execute(of_places, name):
            places.setdefault(source, {})[TopicPartition(topic, part)] = following
        return places

    def incidents(self) -> dict[tuple[str, str], Incident]:
        """Returns the incidents that went on."""
        rows = self._db.execute("SELECT cluster, grp, kept FROM incidents")
        return {(cluster, group): Incident.of(json.loads(kept)) for cluster, group, kept in rows}

    # ---- what is kept

    def save(
        self,
        states: Iterable[tuple[ClusterState, Places]],
        course: Iterable[GroupStatus],
        now_ms: int,
    ) -> None:
        """Keep what has changed, all of it or nothing. Raises KlammError; what was not kept is kept at the next time."""
        states = list(states)
        rows = self._rows(course, now_ms)
        try:
            with self._db:
                for state, places in states:
                    self._save_windows(state)
                    self._save_places(state.name, places)
                self._db.executemany("INSERT INTO course VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                self._prune(now_ms)
        except sqlite3.Error as e:
            raise KlammError(f"the history cannot be written: {e}") from None
        for state, _ in states:
            state.changed.clear()
        self._last |= {(row[1], row[2]): (row[3:6], now_ms) for row in rows}

    def save_incidents(self, incidents: Mapping[tuple[str, str], Incident]) -> None:
        """Keep the incidents that a restart needs to know. Raises KlammError."""
        try:
            with self._db:
                self._db.execute("DELETE FROM incidents")
                self._db.executemany(
                    "INSERT INTO incidents VALUES (?, ?, ?)",
                    [(*place, json.dumps(incident.kept())) for place, incident in incidents.items()],
                )
        except sqlite3.Error as e:
            raise KlammError(f"the history cannot be written: {e}") from None

    def _save_windows(self, state: ClusterState) -> None:
        for group, tp in state.changed:
            commits = state.window(group, tp)
            row = (state.name, group, tp.topic, tp.partition)
            if commits:
                kept = json.dumps([list(c) for c in commits])
                self._db.execute(
                    "REPLACE INTO windows (cluster, grp, topic, part, kind, commits) VALUES (?, ?, ?, ?, ?, ?)",
                    (*row, state.kind(group), kept),
                )
            else:
                self._db.execute("DELETE FROM windows WHERE cluster=? AND grp=? AND topic=? AND part=?", row)
        self._db.execute("DELETE FROM ends WHERE cluster=?", (state.name,))
        self._db.executemany(
            "INSERT INTO ends VALUES (?, ?, ?, ?)",
            [(state.name, *tp, json.dumps(history.points)) for tp, history in state.ends.items()],
        )

    def _save_places(self, cluster: str, places: Places) -> None:
        self._db.execute("DELETE FROM places WHERE cluster=?", (cluster,))
        rows = [(cluster, source, *tp, at) for source, found in places.items() for tp, at in found.items()]
        self._db.executemany("INSERT INTO places VALUES (?, ?, ?, ?, ?)", rows)

    def _rows(self, course: Iterable[GroupStatus], now_ms: int) -> list[tuple[Any, ...]]:
        rows = []
        for status in course:
            place, worst = (status.cluster, status.group), status.max_lag
            figures = (status.status.name, status.total_lag, worst.lag if worst is not None else 0)
            before, at_ms = self._last.get(place, ((), 0))
            if figures != before or now_ms - at_ms >= SILENT_MS:
                rows.append((now_ms, *place, *figures, status.time_lag_ms, round(status.complete, 5)))
        return rows

    def _prune(self, now_ms: int) -> None:
        self._db.execute("DELETE FROM course WHERE at < ?", (now_ms - self._retention_ms,))
        (rows,) = self._db.execute("SELECT COUNT(*) FROM course").fetchone()
        if rows > self._rows_max:
            self._db.execute(
                "DELETE FROM course WHERE rowid IN (SELECT rowid FROM course ORDER BY at LIMIT ?)",
                (rows - self._rows_max,),
            )

    # ---- what people ask

    def course(self, cluster: str, group: str | None, since_ms: int, limit: int) -> list[dict[str, Any]]:
        """Returns the last rows of a group's course, or of all groups of a cluster, oldest first."""
        asked = (
            "SELECT at, grp, status, lag, maxlag, time_lag, complete FROM course "
            "WHERE cluster=? AND at>=? AND (? IS NULL OR grp=?) ORDER BY at DESC, grp LIMIT ?"
        )
        values = (cluster, since_ms, group, group, limit)
        names = ("at", "group", "status", "totallag", "maxlag", "time_lag_ms", "complete")
        rows = [dict(zip(names, row, strict=True)) for row in self._db.execute(asked, values)]
        return rows[::-1]
