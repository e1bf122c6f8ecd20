"""Finds flows that would copy a topic in a circle: pure.

`DefaultReplicationPolicy` shows in a topic's name where it came from, so a flow leaves out what came from its target.
Under `IdentityReplicationPolicy` names show nothing: flows there and back multiply every record without end. One flow
of a circle that renames does not help, because the names of the others grow instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm_base.errors import ConfigError
from klamm_mirror.patterns import STAR, Glob, Names, common_name
from klamm_mirror.policy import IdentityReplicationPolicy, policy_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A flow, as far as circles depend on it. `prefix` is the text that it puts before a topic's name."""

    source: str
    target: str
    topics: Sequence[str]
    exclude: Sequence[str]
    prefix: str = ""
    separator: str = "."

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> Route:
        """Reads a source connector's parsed configuration."""
        policy, source = policy_from(parsed), parsed["source.cluster.alias"]
        same = isinstance(policy, IdentityReplicationPolicy)
        return cls(
            source=source,
            target=parsed["target.cluster.alias"],
            topics=parsed["topics"],
            exclude=parsed["topics.exclude"],
            prefix="" if same else f"{source}{policy.separator}",
            separator=policy.separator,
        )

    def names(self, prefix: str) -> Names:
        """Returns the names that the flow copies, without `prefix`, which earlier flows put before them."""
        found = Names.of(self.topics, self.exclude, prefix)
        if not self.prefix:
            return found
        came_back = tuple(f"{self.target}{self.separator}")
        anywhere = (STAR, *self.separator, *came_back, STAR)
        return Names(found.include, [*found.exclude, Glob((*came_back, STAR)), Glob(anywhere)], prefix)


def refuse_loops(routes: Sequence[Route]) -> None:
    """Raises ConfigError for the first circle of flows whose topics overlap."""
    for circle, name in _circles(routes):
        flows = " and ".join(map(str, circle))
        example = f", such as {name}" if name else ""
        patterns = ", ".join(f"{flow}.topics={','.join(flow.topics)}" for flow in circle)
        raise ConfigError(
            f"{flows} would copy the same topics in a circle{example}: each record would come back as a new one, without "
            f"end. Their topics overlap ({patterns}), and IdentityReplicationPolicy shows no origin in their names. Set "
            f"replication.policy.class=DefaultReplicationPolicy for all of them, or set topics or topics.exclude of each "
            f"flow so that no topic goes round, or switch one flow off ({circle[-1]}.enabled=false)",
            key="replication.policy.class",
        )


def _circles(routes: Sequence[Route]) -> Iterator[tuple[list[Route], str]]:
    """Yields circles through which a topic goes more than once, each with such a topic."""
    if any(not route.prefix for route in routes):
        for first in routes:
            yield from _walk(routes, [first])


def _walk(routes: Sequence[Route], path: list[Route]) -> Iterator[tuple[list[Route], str]]:
    name = _goes_through(path)
    if name is None:
        return
    start, here = path[0].source, path[-1].target
    if here == start:
        # A name that grows must be copied with what the first round put before it, too.
        name = _goes_through(path * 2) if any(route.prefix for route in path) else name
        if name is not None:
            yield path, name
        return
    visited = {route.source for route in path}
    for route in routes:
        if route.source == here and (route.target == start or route.target not in visited):
            yield from _walk(routes, [*path, route])


def _goes_through(path: Sequence[Route]) -> str | None:
    """Returns a topic at the first flow's source that every flow in turn copies."""
    prefix, lists = "", list[Names]()
    for route in path:
        lists.append(route.names(prefix))
        prefix = route.prefix + prefix
    return common_name(lists)
