"""The agent's `GET /metrics`, served by a thread with a loop of its own: no scrape waits for a file, and no file for a scrape.

It reads the last status document, which the agent replaces as a whole about once a second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm_agent.config.metrics import MetricsSettings
from klamm_agent.figures import families
from klamm_base.errors import KlammError
from klamm_base.metrics_server import MetricsServer

_START_S: Final = 30.0


class Metrics:
    """The metrics server. It serves from construction until `close`. Raises KlammError when it cannot have the port."""

    def __init__(self, settings: MetricsSettings, status: Callable[[], Mapping[str, Any]]) -> None:
        self.settings = settings
        self.port = 0
        self._server = MetricsServer(lambda: families(status()))
        self._loop = asyncio.new_event_loop()
        self._failed: BaseException | None = None
        self._bound = threading.Event()
        self._thread = threading.Thread(target=self._run, name="klamm-agent-metrics", daemon=True)
        self._thread.start()
        if not self._bound.wait(_START_S):
            raise KlammError(f"[metrics] port = {settings.port}: not bound within {_START_S:.0f} s")
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failed is None:
            return
        self._thread.join()
        cause = self._failed.__cause__
        why = cause.strerror if isinstance(cause, OSError) and cause.strerror else self._failed
        raise KlammError(
            f"[metrics] port = {self.settings.port}: cannot listen on {self.settings.host}: {why}; give another port"
        )

    def _run(self) -> None:
        try:
            self.port = self._loop.run_until_complete(self._begin())
        except (KlammError, OSError) as e:
            self._failed = e
            self._loop.close()
            return
        finally:
            self._bound.set()
        self._loop.run_forever()
        self._server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    async def _begin(self) -> int:
        port = await self._server.bind(self.settings.host, self.settings.port)
        await self._server.serve()
        return port

    def close(self) -> None:
        """Frees the port."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
