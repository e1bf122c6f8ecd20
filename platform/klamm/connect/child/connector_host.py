"""Hosts a connector in its child: starts it, answers for its task configs, stops it while it is paused.

Only the main thread calls the plugin; the control thread hands it the worker's requests. The plugin may call
`request_task_reconfiguration` and `raise_error` from any of its threads.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Mapping, Sequence
from functools import partial

from klamm.connect.child.control import Control
from klamm.connect.child.failure import answer_safely
from klamm.connect.child.plugins import check_keys, connector_class
from klamm.connect.child.setup import keep_secret, secret_values, stop_plugin
from klamm.connect.child.warm import plugins_of
from klamm.connect.children.channel import Message
from klamm.connect.model import ConnectorSpec
from klamm.connect.settings.limits import Limits
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.discovery import kafka_name, python_name

log = logging.getLogger(__name__)


class HostContext:
    """The connector's ConnectorContext."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.error: Exception | None = None
        self.present_task_configs: Sequence[Mapping[str, str]] = ()

    def request_task_reconfiguration(self) -> None:
        self._control.notify("reconfigure")

    def raise_error(self, error: Exception) -> None:
        self.error = error
        self._control.changed.set()


def run_connector(control: Control, order: Message, secrets: list[str]) -> None:
    """Runs a connector's process from its order to its end."""
    spec = ConnectorSpec.from_json(order["spec"])
    secrets += secret_values(None, spec.config, spec.worker)
    control.expect_silence(Limits.of(spec.worker, spec.config).heartbeat_ms)
    cls = connector_class(plugins_of(order["entry_points"]), spec.config)
    secrets += secret_values(cls, spec.config)
    keep_secret(control, secrets)
    control.notify("version", version=cls.version())
    _Host(control, spec, cls, secrets).run()


class _Host:
    def __init__(
        self,
        control: Control,
        spec: ConnectorSpec,
        cls: type[SourceConnector] | type[SinkConnector],
        secrets: list[str],
    ) -> None:
        self._secrets = secrets
        self._control = control
        self._spec = spec
        self._cls = cls
        self._context = HostContext(control)
        self._connector: SourceConnector | SinkConnector | None = None

    def run(self) -> None:
        try:
            # Also a paused connector starts once, to say what its tasks would be.
            self._start()
            while not self._control.stopping.is_set():
                self._follow_pause()
                self._answer_requests()
                if self._context.error is not None:
                    raise self._context.error
                self._control.vitals.enter("paused" if self._control.paused else "input")
                self._control.wait_for_order(self._control.quiet_s)
        finally:
            self._stop()

    def _start(self) -> None:
        check_keys(self._cls, self._spec.config)
        self._connector = self._cls()
        self._connector.initialize(self._context)
        self._connector.start(self._spec.config)
        self._control.notify("state", state="PAUSED" if self._control.paused else "RUNNING")
        self._shown_paused = self._control.paused

    def _follow_pause(self) -> None:
        """Stops a connector that has been paused, and makes a new one when it resumes, as Kafka does."""
        if self._control.paused == self._shown_paused:
            return
        if self._control.paused:
            self._stop()
            self._control.notify("state", state="PAUSED")
            self._shown_paused = True
        else:
            self._stop()
            self._start()

    def _stop(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            stop_plugin(connector.stop)

    def _answer_requests(self) -> None:
        while True:
            try:
                request = self._control.requests.get_nowait()
            except queue.Empty:
                return
            answer_safely(self._control, request, partial(self._task_configs, request), self._secrets)

    def _task_configs(self, request: Message) -> list[dict[str, str]]:
        if request["method"] != "task_configs":
            raise ValueError(f"a connector does not answer {request['method']!r}")
        if self._connector is None:
            self._start()
        assert self._connector is not None
        self._context.present_task_configs = request["params"]["present"]
        added = self._added_to_tasks()
        return [
            {**config, **added} for config in self._connector.task_configs(request["params"]["max_tasks"])
        ]

    def _added_to_tasks(self) -> dict[str, str]:
        """Returns what Kafka's worker adds to each task's configuration; it cannot take over a task without
        these keys.
        """
        task, config = self._cls.task_class(), self._spec.config
        topics: dict[str, str] = {key: config[key] for key in ("topics", "topics.regex") if key in config}
        return {"task.class": kafka_name(task) or python_name(task), **topics}
