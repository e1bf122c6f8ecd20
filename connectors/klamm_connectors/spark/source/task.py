"""The task of SparkSource: runs the job, and keeps its place as a source offset of Connect.

A stream keeps its place in its checkpoint; its offset in Connect's topic only says which batch is done.
Batch reads keep their place, the highest value that was read, in Connect's topic alone, where REST can
change it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from klamm_connectors.spark import common_config
from klamm_connectors.spark.driver_task import SparkTask
from klamm_connectors.spark.source import config
from klamm_spark.model import Job


class SparkSourceTask(SparkTask):
    """The task that brings any source that Spark can read to a topic."""

    kafka_name = "klamm.SparkSourceTask"

    def __init__(self) -> None:
        super().__init__()
        self._partition: dict[str, Any] = {}
        self._offset: dict[str, Any] | None = None
        self._committed: dict[str, Any] | None = None

    def describe(self, props: Mapping[str, str]) -> Job:
        name = props.get("name", "spark-source")
        self._partition = {"spark": name}
        cluster_id = self.metadata("producer").cluster_id or "cluster"
        position = None
        if props.get("source.read") == "batch":
            position = json.dumps(self.context.offset(self._partition) or {})
        checkpoint = common_config.default_checkpoint(name, cluster_id)
        return config.parse(props, self.context.client_properties("producer"), checkpoint, position)

    def moved(self, event: Mapping[str, Any]) -> None:
        if event["rows"]:
            self.context.use_topics([self.context.configs["topic"]])
        if self.context.configs.get("source.read") == "batch":
            if "position" in event:
                self._offset = dict(event["position"])
        elif event["rows"]:
            self._offset = {"batch": event["batch"]}

    def commit(self) -> None:
        if self._offset is not None and self._offset != self._committed:
            self.context.commit([(self._partition, self._offset)])
            self._committed = self._offset
