"""One source task in a process of its own, whose CPU is counted by stage.

    python -m bench.mysql.task SPEC

SPEC is JSON: `name`, `config` (a connector's), `bootstrap`, `offset` (where the task begins; null: at its begin). The process
writes a line when the task runs; a line on its standard input ends it. Then it writes its figures: CPU seconds of each stage.

- reader: the connector's own threads;
- connector: `poll`;
- converter: keys and values;
- producer: the calls that send, and librdkafka's threads;
- loop: the rest of the main thread;
- start: everything until the task runs, imports too.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.sinks.task import _spent, threads_cpu, timed
from support.runtime_fakes import RecordingControl

from klamm.connect.child import clients, source_host
from klamm.connect.child.plugins import connector_class
from klamm.connect.child.source_loop import SourceContext
from klamm.connect.child.task_host import _GC_OBJECTS
from klamm.connect.model import Kind, TaskId, TaskSpec
from klamm_plugins.discovery import PluginManager


class TimedProducer:
    """A producer whose calls are counted. Callbacks of deliveries run in them."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        for name in ("poll", "produce", "produce_batch"):
            setattr(self, name, timed("producer", getattr(producer, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)


def wrap(thing: Any, method: str, stage: str) -> None:
    """Counts what a method spends for a stage."""
    setattr(thing, method, timed(stage, getattr(thing, method)))


def ending(others: dict[str, float], end: Callable[..., None], *, failed: bool) -> None:
    """Notes what the connector's threads have spent, before they end."""
    others.update(threads_cpu())
    end(failed=failed)


def main() -> int:
    order = json.loads(sys.argv[1])
    gc.set_threshold(_GC_OBJECTS, 20, 20)
    worker = {
        "bootstrap.servers": order["bootstrap"],
        "offset.flush.interval.ms": "60000",
        "offset.storage.topic": "offsets",
        "group.id": "bench",
    }
    spec = TaskSpec(
        id=TaskId(order["name"], 0),
        kind=Kind.SOURCE,
        connector_config=order["config"],
        task_config=order["config"],
        worker=worker,
        paused=False,
    )
    plugins = PluginManager.load()
    task: Any = connector_class(plugins, spec.connector_config).task_class()()
    control = RecordingControl()
    made = clients.make_producer
    clients.make_producer = lambda config: TimedProducer(made(config))  # type: ignore[assignment,return-value]
    run = source_host.prepare(control, spec, task, plugins, [])
    runner: Any = run.__self__  # type: ignore[attr-defined]
    converters = vars(vars(runner)["_records"])["_converters"]
    for converter in (converters.key, converters.value):
        wrap(converter, "from_connect_data_many", "converter")
    task.initialize(SourceContext(control, spec.task_config, lambda asked: [order["offset"]] * len(asked)))
    wrap(task, "poll", "connector")
    task.start(spec.task_config)
    print("running", flush=True)

    def stop() -> None:
        sys.stdin.readline()
        control.ask_to_stop(30)

    threading.Thread(target=stop, name="stop", daemon=True).start()
    start, main_before = time.process_time(), time.thread_time()
    others: dict[str, float] = {}
    vars(runner)["_end"] = partial(ending, others, getattr(runner, "_end"))  # noqa: B009
    run()
    whole, mine = time.process_time() - start, time.thread_time() - main_before
    task.stop()
    figures = {name: _spent[name] for name in ("connector", "converter", "producer")}
    figures["loop"] = mine - sum(figures.values())
    figures["reader"] = sum(others.values())
    figures["producer"] += whole - mine - figures["reader"]
    print(json.dumps({**figures, "start": start}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
