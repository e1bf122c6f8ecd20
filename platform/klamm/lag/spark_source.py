"""The positions of Spark's queries, as a job tells them at its metrics.

Spark commits no offsets to Kafka. A query's checkpoint has its positions, and a job of `klamm spark run` serves them as
`klamm_spark_position`, with the time of the last progress. A query without input makes progress, too.
"""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Final

from klamm.admin.model import TopicPartition
from klamm.lag.sources import Position
from klamm_base.errors import KlammError

_ANSWER_S: Final = 5.0
_BYTES_MAX: Final = 16 << 20
_SAMPLE: Final = re.compile(
    r"(klamm_spark_position|klamm_spark_last_progress_timestamp_seconds)\{(.*)\} (\S+)"
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class SparkSource:
    """The queries of the job whose metrics are at `url`."""

    caught_up = True

    def __init__(self, url: str, cluster: str) -> None:
        self.name = url
        self._cluster = cluster

    def places(self) -> dict[TopicPartition, int]:
        return {}

    async def poll(self, now_ms: int) -> list[Position]:
        text = await asyncio.to_thread(self._asked)
        return list(positions(text, self._cluster))

    def _asked(self) -> str:
        try:
            with urllib.request.urlopen(self.name, timeout=_ANSWER_S) as answer:  # noqa: S310 - the operator's address
                return str(answer.read(_BYTES_MAX).decode())
        except (OSError, ValueError, urllib.error.URLError) as e:
            raise KlammError(f"the metrics of a Spark job at {self.name}: {e}") from None


def positions(text: str, cluster: str) -> Iterator[Position]:
    """Yields the positions in a text of metrics."""
    progress: dict[str, int] = {}
    places: list[tuple[str, TopicPartition, int]] = []
    for line in text.splitlines():
        if (found := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = dict(_LABEL.findall(found[2]))
        if found[1] == "klamm_spark_position":
            place = TopicPartition(labels["topic"], int(labels["partition"]))
            places.append((labels["query"], place, int(float(found[3]))))
        else:
            progress[labels["query"]] = int(float(found[3]) * 1000)
    for query, place, offset in places:
        at_ms = progress.get(query, 0)
        yield Position(cluster, f"spark-{query}", "spark", place, offset, at_ms, at_ms)
