"""The task of SparkSink: runs the job, and commits what it has written to the group of the connector.

The job keeps its place in its checkpoint. The task also commits what was written to the group
`connect-NAME`. Other tools can see it there. The task itself uses it when there is no checkpoint, for
example on another machine: it then begins at the group's offsets instead of reading everything again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_connectors.spark import common_config
from klamm_connectors.spark.driver_task import SparkTask
from klamm_connectors.spark.sink import config
from klamm_plugins.errors import ConnectError
from klamm_spark.model import Job


class SparkSinkTask(SparkTask):
    """The task that brings topics to any target that Spark can write."""

    kafka_name = "klamm.SparkSinkTask"

    def __init__(self) -> None:
        super().__init__()
        self._offsets: dict[str, dict[str, int]] = {}
        self._committed: dict[str, dict[str, int]] = {}

    def describe(self, props: Mapping[str, str]) -> Job:
        client = self.context.client_properties("consumer")
        partitions, cluster_id = self._topics(props)
        starting = self._committed_before(partitions)
        if starting is None:
            starting = "latest" if client.get("auto.offset.reset") == "latest" else "earliest"
        checkpoint = common_config.default_checkpoint(props.get("name", "spark-sink"), cluster_id)
        return config.parse(props, client, checkpoint, starting)

    def _topics(self, props: Mapping[str, str]) -> tuple[dict[str, list[int]], str]:
        """Returns the configured topics with their partitions, and the cluster's id."""
        found = self.metadata("consumer")
        names = list(common_config.names(props, "topics"))
        if regex := props.get("topics.regex"):
            pattern = re.compile(regex)
            names = [t for t in found.topics if pattern.fullmatch(t) and t not in INTERNAL_TOPICS]
        if absent := [t for t in names if t not in found.topics]:
            raise ConnectError(f"there is no topic {absent[0]}")
        return {t: sorted(found.topics[t].partitions) for t in names}, found.cluster_id or "cluster"

    def _committed_before(self, partitions: Mapping[str, list[int]]) -> str | None:
        """Returns the group's offsets as startingOffsets; None when nothing was committed yet."""
        places = [
            {"kafka_topic": t, "kafka_partition": p} for t, numbers in partitions.items() for p in numbers
        ]
        found = self.context.offsets(places)
        if not any(found):
            return None
        answer: dict[str, dict[str, int]] = {}
        for place, offset in zip(places, found, strict=True):
            value = -2 if offset is None else int(offset["kafka_offset"])
            answer.setdefault(str(place["kafka_topic"]), {})[str(place["kafka_partition"])] = value
        return json.dumps(answer)

    def moved(self, event: Mapping[str, Any]) -> None:
        if event["offsets"]:
            self._offsets = event["offsets"]
            self.context.use_topics(event["offsets"])

    def commit(self) -> None:
        if self._offsets == self._committed:
            return
        changed = [
            ({"kafka_topic": t, "kafka_partition": int(p)}, {"kafka_offset": o})
            for t, partitions in self._offsets.items()
            for p, o in partitions.items()
            if self._committed.get(t, {}).get(p) != o
        ]
        self.context.commit(changed)
        self._committed = self._offsets
