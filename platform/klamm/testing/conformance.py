"""Suites that any connector joins with one fixture; tests import them from here (docs/testing-plugins.md).

They need the fixtures of `klamm.testing.fixtures`. What needs neither broker nor worker is in `klamm_plugins.testing`, and
part of these suites.
"""

from klamm.testing.cases import SinkCase, SourceCase
from klamm.testing.sink_suite import SinkSuite
from klamm.testing.source_suite import SourceSuite

__all__ = ["SinkCase", "SinkSuite", "SourceCase", "SourceSuite"]
