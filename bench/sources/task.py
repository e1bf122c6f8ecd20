"""One source task in a process of its own, whose CPU is counted by stage.

    python -m bench.sources.task SPEC

SPEC is JSON: `name`, `config` (a connector's), `bootstrap`, `offset` (the place where the task begins; null: at its begin). The process
writes a line when the task runs; a line on its standard input ends it. Then it writes its figures: CPU seconds of each stage.

- reader: the task's own threads;
- connector: `poll`;
- converter: the chain, keys, values and headers, and making of them what the producer takes;
- producer: sending and taking acknowledgements, and librdkafka's threads;
- loop: the rest of the main thread;
- start: everything until the task runs, imports too.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bench.sinks.task import spent, threads_cpu, timed
from support.runtime_fakes import RecordingControl

from klamm.connect.child import clients, source_host
from klamm.connect.child.plugins import connector_class
from klamm.connect.child.task_host import _GC_OBJECTS
from klamm.connect.model import Kind, TaskId, TaskSpec
from klamm_plugins.discovery import PluginManager


class TimedProducer:
    """A producer whose call for acknowledgements is counted. Callbacks of deliveries run in it."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.produce = producer.produce
        self.poll = timed("producer", producer.poll)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)


class Offsets(RecordingControl):
    """A worker that has one offset for all source partitions of the task."""

    def __init__(self, offset: dict[str, Any] | None) -> None:
        super().__init__()
        self._offset = offset

    def call(self, method: str, params: dict[str, Any]) -> Any:
        return [self._offset] * len(params["partitions"])


def chunked(chunks: Any) -> Any:
    """Counts the steps of a generator of chunks."""

    def run(records: Any) -> Iterator[Any]:
        step, end = timed("converter", next), object()
        made = chunks(records)
        while (chunk := step(made, end)) is not end:
            yield chunk

    return run


def ending(others: dict[str, float], end: Callable[..., None], *, failed: bool) -> None:
    """Notes what the connector's threads have spent, before they end."""
    others.update(threads_cpu())
    end(failed=failed)


def main() -> int:
    order = json.loads(sys.argv[1])
    gc.set_threshold(_GC_OBJECTS, 20, 20)
    spec = TaskSpec(
        id=TaskId(order["name"], 0),
        kind=Kind.SOURCE,
        connector_config=order["config"],
        task_config=order["config"],
        worker={
            "bootstrap.servers": order["bootstrap"],
            "offset.flush.interval.ms": "60000",
            "offset.flush.timeout.ms": "5000",
            "offset.storage.topic": "offsets",
            "group.id": "bench",
        },
        paused=False,
    )
    plugins = PluginManager.load()
    task = connector_class(plugins, spec.connector_config).task_class()()
    control = Offsets(order["offset"])
    made = clients.make_producer
    clients.make_producer = lambda config: TimedProducer(made(config))  # type: ignore[assignment,return-value]
    run = source_host.prepare(control, spec, task, plugins, [])
    runner: Any = run.__self__  # type: ignore[attr-defined]
    records, sender = vars(runner)["_records"], vars(runner)["_sender"]
    records.chunks = chunked(records.chunks)
    sender.send = timed("producer", sender.send)
    task.poll = timed("connector", task.poll)
    task.start(spec.task_config)
    print("running", flush=True)

    def stop() -> None:
        sys.stdin.readline()
        control.ask_to_stop(30)

    threading.Thread(target=stop, name="stop", daemon=True).start()
    start, main_before, others_before = time.process_time(), time.thread_time(), threads_cpu()
    others: dict[str, float] = {}
    vars(runner)["_end"] = partial(ending, others, getattr(runner, "_end"))  # noqa: B009
    run()
    whole, mine = time.process_time() - start, time.thread_time() - main_before
    task.stop()
    figures = {name: spent[name] for name in ("connector", "converter", "producer")}
    figures["loop"] = mine - sum(figures.values())
    figures["reader"] = sum(cpu - others_before.get(name, 0.0) for name, cpu in others.items())
    figures["producer"] += whole - mine - figures["reader"]
    print(json.dumps({**figures, "start": start}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
