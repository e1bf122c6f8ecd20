"""Compares a whole flow: topics, partitions, settings, records, checkpoints. Nothing is changed at either side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_kafka.client import ClientError, Cluster
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_mirror.copy.start_offset import KEY as START
from klamm_mirror.copy.start_offset import parse_start
from klamm_mirror.gaps.ledger import table_of
from klamm_mirror.loop import ask_cluster
from klamm_mirror.settings.common_config import client_settings
from klamm_mirror.settings.mm2_keys import changing_keys
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.source.config import config_def
from klamm_mirror.topics import topic_admin
from klamm_mirror.topics.config_policy import OVERWRITE, ConfigPolicy
from klamm_mirror.topics.formats import Checkpoint
from klamm_mirror.topics.target import Topics
from klamm_mirror.topics.topic_plan import ConfigChange, remote_names
from klamm_mirror.verify.groups import GroupOutcome, Verdict, judge, read_checkpoints
from klamm_mirror.verify.partition import Outcome, PartitionComparison, Work
from klamm_mirror.verify.reader import CannotCompareError
from klamm_mirror.verify.state import State
from klamm_mirror.verify.tally import Tally

COMPACT: Final = "compact"
Said = Callable[[str, float], None]
"""Called with what is compared and the share that is done."""


@dataclass(slots=True, kw_only=True)
class TopicOutcome:
    """The result for a topic. `target_partitions` 0: the target has no such topic."""

    topic: str
    remote: str
    source_partitions: int
    target_partitions: int
    configs: Sequence[ConfigChange] = ()
    partitions: dict[int, Outcome] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        small = self.target_partitions < self.source_partitions
        return small or bool(self.configs) or any(p.tally.differs for p in self.partitions.values())


@dataclass(slots=True, kw_only=True)
class FlowOutcome:
    """The result for a flow."""

    topics: list[TopicOutcome] = field(default_factory=list)
    groups: list[GroupOutcome] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        skips = any(group.verdict is Verdict.SKIPS for group in self.groups)
        return skips or any(topic.differs for topic in self.topics)


class FlowComparison:
    """Compares one flow. `props` are the source connector's, with secrets resolved; no `names`: all its topics."""

    def __init__(
        self, props: Mapping[str, str], names: Collection[str], state: State, *, patience_s: float, said: Said
    ) -> None:  # fmt: skip
        self._props = props
        self._parsed = config_def().parse(props)
        self._names = names
        self._state = state
        self._patience_s = patience_s
        self._said = said

    async def run(self) -> FlowOutcome:
        """Compares. Raises ConfigError (a topic that is not mirrored), CannotCompareError."""
        if changed := changing_keys(self._props):
            raise CannotCompareError(f"the flow has {' and '.join(changed)}: its records are meant to differ")
        try:
            async with AsyncExitStack() as stack:
                source = await stack.enter_async_context(ask_cluster(self._props, "source"))
                target = await stack.enter_async_context(ask_cluster(self._props, "target"))
                plugins = stack.enter_context(FlowPlugins(self._props, self._parsed))
                return await self._run(source, target, plugins)
        except ClientError as e:
            raise CannotCompareError(f"a cluster cannot be asked: {e}") from None

    async def _run(self, source: Cluster, target: Cluster, plugins: FlowPlugins) -> FlowOutcome:
        gaps = await table_of(target, plugins.policy, self._parsed)
        topics = Topics(self._parsed, plugins, source, target, gaps.remotes())
        outcomes = await self._topics(topics, target)
        own = plugins.policy.checkpoints_topic(self._parsed["source.cluster.alias"])
        checkpoints = await read_checkpoints(target, own)
        works = [
            replace(work, appended_at=gaps.appended_at(work.topic, work.partition))
            for work in await self._works(outcomes, checkpoints, source, target)
        ]
        for number, work in enumerate(works):
            outcome = await self._compare(work, source, target, (number, len(works)))
            next(t for t in outcomes if t.topic == work.topic).partitions[work.partition] = outcome
        return FlowOutcome(topics=outcomes, groups=_groups(outcomes, checkpoints))

    async def _topics(self, topics: Topics, target: Cluster) -> list[TopicOutcome]:
        found = await topics.find()
        unknown = sorted(set(self._names) - set(found))
        if unknown:
            raise ConfigError(f"{', '.join(unknown)}: no topic of this flow", key="topics")
        wanted = {t: n for t, n in sorted(found.items()) if not self._names or t in self._names}
        remotes = remote_names(wanted, topics.remote)
        there = {t.name: len(t.partitions) for t in (await target.refresh(None)).topics if not t.error_code}
        changes: Sequence[ConfigChange] = ()
        if self._parsed["sync.topic.configs.enabled"]:
            changes = (await topics.plan_configs(list(wanted), ConfigPolicy(OVERWRITE))).configure
        return [
            TopicOutcome(
                topic=topic, remote=remotes[topic], source_partitions=count,
                target_partitions=there.get(remotes[topic], 0),
                configs=[c for c in changes if c.topic == remotes[topic]],
            )
            for topic, count in wanted.items()
        ]  # fmt: skip

    async def _works(
        self, topics: Sequence[TopicOutcome], checkpoints: Sequence[Checkpoint], source: Cluster, target: Cluster
    ) -> list[Work]:  # fmt: skip
        compacted = await _compacted(source, [t.topic for t in topics])
        compacted |= await _compacted(target, [t.remote for t in topics if t.target_partitions])
        consumer = client_settings(self._props, "source", "consumer")
        reset = consumer.get("auto.offset.reset", "earliest")
        later = parse_start(self._parsed[START] or reset) != EARLIEST
        return [
            Work(
                topic=t.topic, partition=p, remote=t.remote, later=later,
                compacted=bool({t.topic, t.remote} & compacted),
                marks=tuple(c.upstream_offset for c in checkpoints if (c.topic, c.partition) == (t.remote, p)),
            )
            for t in topics for p in range(min(t.source_partitions, t.target_partitions))
        ]  # fmt: skip

    async def _compare(self, work: Work, source: Cluster, target: Cluster, at: tuple[int, int]) -> Outcome:
        """Compares a partition, or returns what the state knows of it. Stores the state meanwhile."""
        stored = self._state.partitions.get(str(work))
        if stored is not None and stored.get("done"):
            return _outcome_of(stored)
        number, count = at

        def said(share: float) -> None:
            self._said(str(work), (number + share) / count)
            if self._state.due:
                self._state.partitions[str(work)] = comparison.stored()
                self._state.save(now=True)

        comparison = PartitionComparison(work, source, target, patience_s=self._patience_s, said=said)
        outcome = await comparison.run(stored)
        self._state.partitions[str(work)] = {**comparison.stored(), "notes": outcome.notes, "done": True}
        self._state.save()
        self._said(str(work), (number + 1) / count)
        return outcome


def _outcome_of(stored: Mapping[str, Any]) -> Outcome:
    return Outcome(
        tally=Tally.of_json(stored["tally"]),
        places={int(mark): place for mark, place in stored["places"].items()},
        first_offset=stored["first"],
        notes=stored["notes"],
    )


async def _compacted(cluster: Cluster, topics: Sequence[str]) -> set[str]:
    """Returns the topics whose own cleanup.policy compacts."""
    found = await topic_admin.own_configs(cluster, topics, lambda name: name == "cleanup.policy")
    return {topic for topic, own in found.items() if COMPACT in (own.get("cleanup.policy") or "")}


def _groups(topics: Sequence[TopicOutcome], checkpoints: Sequence[Checkpoint]) -> list[GroupOutcome]:
    places: dict[tuple[str, int], dict[int, int]] = {}
    repeated: dict[tuple[str, int], int] = {}
    for topic in topics:
        for partition, outcome in topic.partitions.items():
            key = topic.remote, partition
            places[key] = {m: p for m, p in outcome.places.items() if m >= outcome.first_offset}
            repeated[key] = outcome.tally.repeated
    return judge(checkpoints, places, repeated)


def as_json(flow: str, outcome: FlowOutcome) -> dict[str, Any]:
    """Returns the result as JSON."""
    return {
        "flow": flow,
        "equal": not outcome.differs,
        "topics": [
            {
                "topic": t.topic,
                "target_topic": t.remote,
                "equal": not t.differs,
                "partitions": {"source": t.source_partitions, "target": t.target_partitions},
                "configs": [{"name": c.name, "source": c.new, "target": c.old} for c in t.configs],
                "compared": [
                    {"partition": p, "equal": not o.tally.differs, **asdict(o.tally), "notes": o.notes}
                    for p, o in sorted(t.partitions.items())
                ],
            }
            for t in outcome.topics
        ],
        "groups": [{**asdict(g), "verdict": str(g.verdict)} for g in outcome.groups],
    }
