"""The last commits of one partition of a group, in the order in which they were made. Pure.

A window has room for some commits. Commits that come too fast replace each other, so that a consumer that commits a
hundred times a second does not shrink its window to a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.lag.model import Commit


class Window:
    """A window with room for `size` commits, at least `distance_ms` apart."""

    __slots__ = ("_distance_ms", "_size", "commits")

    def __init__(self, size: int, distance_ms: int, commits: Iterable[Commit] = ()) -> None:
        self._size = size
        self._distance_ms = distance_ms
        self.commits: list[Commit] = list(commits)[-size:]
        """Oldest first."""

    @property
    def complete(self) -> float:
        """The filled part of the window."""
        return len(self.commits) / self._size

    def add(self, commit: Commit) -> bool:
        """Take in a commit, returns whether it is the newest. One that comes late goes to its place, or is left out where the
        window is full; its lag is not known.
        """
        commits = self.commits
        at = len(commits)
        while at and commits[at - 1].order >= commit.order:
            at -= 1
        if commits and commits[-1].order < 0 <= commit.order and commit.timestamp <= commits[-1].timestamp:
            return False  # read again from a log that was cut: it is in the window
        if at < len(commits):
            if commits[at].order != commit.order and len(commits) < self._size:
                commits.insert(at, commit._replace(lag=None))
            return False
        if commits and commit.timestamp - commits[-1].timestamp < self._distance_ms:
            # It keeps the older time: else a fast consumer's window would have one commit for ever.
            commits[-1] = commit._replace(timestamp=commits[-1].timestamp)
            return True
        commits.append(commit)
        del commits[: -self._size]
        return True

    def begin_anew(self) -> None:
        """Take in that orders begin anew: what is here came before all that follows."""
        self.commits = [c._replace(order=n - len(self.commits)) for n, c in enumerate(self.commits)]
