"""One sink task in a process of its own, whose CPU is counted by stage.

    python -m bench.sinks.task SPEC

SPEC is JSON: `name`, `config` (a connector's), `bootstrap`. The process writes a line when the task runs; a line on its
standard input ends it. Then it writes its figures: CPU seconds of each stage.

- consumer: the calls that fetch, and librdkafka's threads;
- converter: keys, values and headers, and making of them what the task takes;
- transform: the chain;
- connector: the task's own calls, and its threads;
- loop: the rest of the main thread;
- start: everything until the task runs, imports too.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.runtime_fakes import RecordingControl

from klamm.connect.child import clients, sink_host
from klamm.connect.child.plugins import connector_class
from klamm.connect.child.task_host import _GC_OBJECTS
from klamm.connect.model import Kind, TaskId, TaskSpec
from klamm_plugins.discovery import PluginManager

spent: defaultdict[str, float] = defaultdict(float)


def timed(stage: str, call: Callable[..., Any], *, inside: str = "") -> Callable[..., Any]:
    """Counts the thread's CPU in `call` for `stage`, and takes it from the stage `inside` which it is in."""

    def run(*args: Any, **more: Any) -> Any:
        begin = time.thread_time()
        try:
            return call(*args, **more)
        finally:
            used = time.thread_time() - begin
            spent[stage] += used
            if inside:
                spent[inside] -= used

    return run


class TimedConsumer:
    """A consumer whose fetching calls are counted. Callbacks of rebalances run in them."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.poll = timed("consumer", consumer.poll)
        self.consume = timed("consumer", consumer.consume)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def threads_cpu() -> dict[str, float]:
    """Returns the CPU seconds of Python's other threads: those of the connector."""
    others = [
        t for t in threading.enumerate() if t not in (threading.main_thread(), threading.current_thread())
    ]
    clocks = {t.name: time.pthread_getcpuclockid(t.ident) for t in others if t.ident and t.name != "stop"}
    return {name: time.clock_gettime(clock) for name, clock in clocks.items()}


def main() -> int:
    order = json.loads(sys.argv[1])
    gc.set_threshold(_GC_OBJECTS, 20, 20)
    worker = {
        "bootstrap.servers": order["bootstrap"],
        "offset.flush.interval.ms": "60000",
        "group.id": "bench",
    }
    spec = TaskSpec(
        id=TaskId(order["name"], 0),
        kind=Kind.SINK,
        connector_config=order["config"],
        task_config=order["config"],
        worker=worker,
        paused=False,
    )
    plugins = PluginManager.load()
    task = connector_class(plugins, spec.connector_config).task_class()()
    control = RecordingControl()
    made = clients.make_consumer
    clients.make_consumer = lambda config: TimedConsumer(made(config))  # type: ignore[assignment,return-value]
    run = sink_host.prepare(control, spec, task, plugins, [])
    runner = run.__self__  # type: ignore[attr-defined]
    records, chain = vars(runner)["_records"], vars(runner)["_chain"]
    records.convert = timed("converter", records.convert)
    for name in ("apply", "apply_batches"):
        if hasattr(chain, name):
            setattr(chain, name, timed("transform", getattr(chain, name), inside="converter"))
    for name in ("put", "put_batches", "pre_commit"):
        if hasattr(task, name):
            setattr(task, name, timed("connector", getattr(task, name)))
    if hasattr(type(task), "put_batches") and "put_batches" not in vars(type(task)):
        del task.put_batches  # it calls `put`, which is counted
    task.start(spec.task_config)
    print("running", flush=True)

    def stop() -> None:
        sys.stdin.readline()
        control.ask_to_stop(30)

    threading.Thread(target=stop, name="stop", daemon=True).start()
    start, main_before, others_before = time.process_time(), time.thread_time(), threads_cpu()
    close, ended = task.close, {}

    def closing(partitions: Any) -> None:
        ended.update(main=time.thread_time(), whole=time.process_time(), others=threads_cpu())
        close(partitions)

    task.close = closing
    run()
    task.stop()
    mine = ended["main"] - main_before
    others = sum(ended["others"].values()) - sum(others_before.values())
    fetching = ended["whole"] - start - mine - others
    figures = {name: spent[name] for name in ("consumer", "converter", "transform", "connector")}
    figures["loop"] = mine - sum(figures.values())
    figures["consumer"] += fetching
    figures["connector"] += others
    print(json.dumps({**figures, "start": start}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
