"""Finds flows that would copy a topic in a circle, or twice to the same cluster: pure.

`DefaultReplicationPolicy` shows in a topic's name where it came from, so a flow leaves out what came from its target.
`IdentityReplicationPolicy` shows nothing; `klamm_mirror.provenance.tracker` keeps records from going round then. It cannot help
where a flow of the circle has it switched off, or renames topics: names would grow with each round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm_base.errors import ConfigError
from klamm_mirror.settings.keep_offsets import KEEP
from klamm_mirror.settings.patterns import STAR, Glob, Names, common_name
from klamm_mirror.settings.policy import policy_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A flow, as far as circles depend on it. `prefix` is the text that it puts before a topic's name."""

    source: str
    target: str
    topics: Sequence[str]
    exclude: Sequence[str]
    provenance: bool
    mapped: bool = False
    """The file gives names of topics at the target: nothing in a name shows where it came from."""
    prefix: str = ""
    separator: str = "."

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> Route:
        """Reads a source connector's parsed configuration."""
        policy, source = policy_from(parsed), parsed["source.cluster.alias"]
        return cls(
            source=source,
            target=parsed["target.cluster.alias"],
            topics=parsed["topics"],
            exclude=parsed["topics.exclude"],
            provenance=parsed["mirror.provenance"] or parsed[KEEP],  # a mirror topic says where it is from
            mapped=bool(policy.topic_map),
            prefix="" if policy.keeps_names else f"{source}{policy.separator}",
            separator=policy.separator,
        )

    @property
    def leaves_out(self) -> bool:
        """True for a flow that knows which records came from its target."""
        return self.provenance and (self.mapped or not self.prefix)

    @property
    def pattern(self) -> str:
        """A regular expression for the topics that the flow copies, to be followed by others."""
        include, exclude = ("|".join(f"(?:{i})" for i in items) for items in (self.topics, self.exclude))
        return f"(?=(?:{include})\\Z)" + (f"(?!(?:{exclude})\\Z)" if exclude else "")

    def names(self, prefix: str) -> Names:
        """Returns the names that the flow copies, without `prefix`, which earlier flows put before them."""
        found = Names.of(self.topics, self.exclude, prefix)
        if not self.prefix:
            return found
        came_back = tuple(f"{self.target}{self.separator}")
        anywhere = (STAR, *self.separator, *came_back, STAR)
        return Names(found.include, [*found.exclude, Glob((*came_back, STAR)), Glob(anywhere)], prefix)


def refuse_loops(routes: Sequence[Route]) -> None:
    """Raises ConfigError for the first circle of flows in which a topic would go round."""
    for route in routes:
        if route.mapped and not route.provenance and _leads_back(routes, route):
            raise ConfigError(
                f"{route} gives topics other names (topic.map), and flows lead from {route.target} back to {route.source}: "
                "nothing would show which records came from there. Set mirror.provenance=true",
                key="mirror.provenance",
            )
    for circle, name in _circles(routes):
        flows = " and ".join(map(str, circle))
        example = f", such as {name}" if name else ""
        patterns = ", ".join(f"{flow}.topics={','.join(flow.topics)}" for flow in circle)
        if any(route.prefix for route in circle):
            key, cure = "replication.policy.class", "Set the same replication.policy.class for all of them"
        else:
            off = next(route for route in circle if not route.provenance)
            key, cure = "mirror.provenance", f"Set mirror.provenance=true (it is false for {off})"
        raise ConfigError(
            f"{flows} would copy the same topics in a circle{example}: each record would come back as a new one, without "
            f"end. Their topics overlap ({patterns}), and nothing shows all of them where a record came from. {cure}, or "
            f"set topics or topics.exclude of each flow so that no topic goes round, or switch one flow off "
            f"({circle[-1]}.enabled=false)",
            key=key,
        )


def _leads_back(routes: Sequence[Route], route: Route) -> bool:
    reached: set[str] = set()
    ahead = {route.target}
    while ahead:
        reached |= ahead
        ahead = {r.target for r in routes if r.source in ahead} - reached
    return route.source in reached


def other_ways(routes: Sequence[Route]) -> dict[str, dict[str, list[str]]]:
    """Returns, by flow and by the origin's alias, the topics that come to the flow's target another way.

    Where several flows could bring an origin's records to a cluster, the one with the fewest clusters between does, the
    first of the file among equals.
    """
    same = [route for route in routes if not route.prefix]
    found: dict[str, dict[str, list[str]]] = {}
    for origin, target in sorted({(a.source, b.target) for a in same for b in same if a.source != b.target}):
        into = [way for route in same if route.target == target if (way := _way(same, origin, route))]
        into.sort(key=len)
        for i, way in enumerate(into):
            others = [other for other in into[:i] if _goes_through([*other, *way]) is not None]
            if others:
                topics = ["".join(route.pattern for route in other) + ".*" for other in others]
                found.setdefault(str(way[-1]), {})[origin] = topics
    return found


def _way(routes: Sequence[Route], origin: str, last: Route) -> list[Route] | None:
    """Returns the shortest way of a topic from its origin over the flow `last` to its target."""
    ways = [[last]]
    while ways:
        for way in ways:
            if way[0].source == origin:
                return way
        ways = [
            [route, *way]
            for way in ways
            for route in routes
            if route.target == way[0].source
            and route.source not in {last.target, *(r.source for r in way)}
            and _goes_through([route, *way]) is not None
        ]
    return None


def _circles(routes: Sequence[Route]) -> Iterator[tuple[list[Route], str]]:
    """Yields circles through which a topic goes more than once, each with such a topic."""
    if any(not route.prefix for route in routes):
        for first in routes:
            if not first.leaves_out:
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
