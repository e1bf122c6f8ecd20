"""Attaches a key to errors that only Spark finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException

from klamm_base.errors import ConfigError
from klamm_spark.events import said_by_spark


@contextmanager
def reading(place: str, key: str) -> Iterator[None]:
    """Turns errors of Spark's parser or analyzer into a ConfigError that names `place`, while Spark reads a key's
    value.
    """
    try:
        yield
    except (ParseException, AnalysisException) as e:
        raise ConfigError(f"{place}: Spark says: {said_by_spark(e)}", key=key) from e
