"""The positions of Spark's queries, as a job or a Connect worker tells them at its metrics.

Spark commits no offsets to Kafka. A query's checkpoint has its positions, and a job of `klamm spark run` serves them as
`klamm_spark_position`, with the time of the last progress; so does the worker of a SparkSink. A query without input makes progress, too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Final

from klamm.admin import metrics_page
from klamm.admin.model import TopicPartition
from klamm.lag.sources import Position, WholeSource
from klamm_base.metrics_text import labels_of

_SAMPLE: Final = re.compile(
    r"(klamm_spark_position|klamm_spark_last_progress_timestamp_seconds)\{(.*)\} (\S+)"
)
_OF_CONNECTOR: Final = "output"


class SparkSource(WholeSource):
    """The queries of the job or the worker whose metrics are at `url`."""

    caught_up = True

    def __init__(self, url: str, cluster: str) -> None:
        self.name = url
        self._cluster = cluster

    def places(self) -> dict[TopicPartition, int]:
        return {}

    async def poll(self, now_ms: int) -> list[Position]:
        text = await asyncio.to_thread(metrics_page.fetch, self.name)
        return list(positions(text, self._cluster))


def positions(text: str, cluster: str) -> Iterator[Position]:
    """Yields the positions in a text of metrics."""
    progress: dict[str, int] = {}
    places: list[tuple[str, TopicPartition, int]] = []
    for line in text.splitlines():
        if (found := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = labels_of(found[2])
        if found[1] == "klamm_spark_position":
            place = TopicPartition(labels["topic"], int(labels["partition"]))
            places.append((_name(labels), place, int(float(found[3]))))
        else:
            progress[_name(labels)] = int(float(found[3]) * 1000)
    for name, place, offset in places:
        at_ms = progress.get(name, 0)
        yield Position(cluster, name, "spark", place, offset, at_ms, at_ms)


def _name(labels: Mapping[str, str]) -> str:
    """Returns the name of a query as a group: a job's by itself, a connector's by the connector, whose one query is `output`."""
    query, connector = labels["query"], labels.get("connector")
    if connector is None:
        return f"spark-{query}"
    return f"spark-{connector}" if query == _OF_CONNECTOR else f"spark-{connector}-{query}"
