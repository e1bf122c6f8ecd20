"""Spark's events after each batch, as the JSON that its Java makes of them.

PySpark makes Python objects of an event, field by field, and looks a class up by its name in every jar to do so: 90 ms of CPU
for each batch of each query.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import JStreamingQueryListener


class _ProgressListener(JStreamingQueryListener):
    """The listener. A thread of Spark's calls it."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take = take

    def onQueryStarted(self, jevent: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        self._take(json.loads(jevent.progress().json()))

    def onQueryIdle(self, jevent: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, jevent: Any) -> None:  # noqa: N802
        pass


def listen(spark: SparkSession, take: Callable[[dict[str, Any]], None]) -> None:
    """Hands every StreamingQueryProgress of the session to `take`."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway, jvm = SparkContext._gateway, SparkContext._jvm  # noqa: SLF001
    assert gateway is not None
    assert jvm is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    listener = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_ProgressListener(take))
    spark.streams._jsqm.addListener(listener)  # noqa: SLF001
