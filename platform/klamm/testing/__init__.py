"""The test kit of Klamm, for plugin authors and users: public API, kept stable.

`klamm.testing.fixtures` has pytest fixtures, `klamm.testing.conformance` the suites that any connector joins with one
fixture; both need pytest. docs/testing-plugins.md describes all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.testing.broker import BrokerFailed, EmbeddedBroker
from klamm.testing.clock import FakeClock, FakeEvent

if TYPE_CHECKING:
    from klamm.testing.worker import Answer, EmbeddedWorker, WorkerFailed

__all__ = [
    "Answer",
    "BrokerFailed",
    "EmbeddedBroker",
    "EmbeddedWorker",
    "FakeClock",
    "FakeEvent",
    "WorkerFailed",
]


def __getattr__(name: str) -> Any:
    """Loads the worker's parts on first use: they load what plugins need, and a test that wants only a broker does without."""
    if name in {"Answer", "EmbeddedWorker", "WorkerFailed"}:
        from klamm.testing import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
