"""The suites that any connector joins with one fixture. Tests import them from here (docs/testing-plugins.md).

They need the fixtures of `klamm.testing.fixtures`. They include the tests of `klamm_plugins.testing`, which need neither broker
nor worker.
"""

from klamm.testing.cases import SinkCase, SourceCase
from klamm.testing.sink_suite import SinkSuite
from klamm.testing.source_suite import SourceSuite

__all__ = ["SinkCase", "SinkSuite", "SourceCase", "SourceSuite"]
