"""Errors that only Spark finds, told with the key whose value it read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException

from klamm_base.errors import ConfigError
from klamm_spark.events import said_by_spark


@contextmanager
def reading(place: str, key: str) -> Iterator[None]:
    """While Spark reads the value of a key: what its parser or analyzer refuses is a ConfigError that names `place`."""
    try:
        yield
    except (ParseException, AnalysisException) as e:
        raise ConfigError(f"{place}: Spark says: {said_by_spark(e)}", key=key) from e
