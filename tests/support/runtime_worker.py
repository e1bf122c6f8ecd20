"""A worker process for lease tests: a supervisor with tasks, run as a script.

Prints one JSON line `{"event": ..., "pids": ...}` per state event, so that a test sees restarts.
Arguments: behaviours of the tasks, one each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from support.runtime import Watched, task_spec, wait_for

from klamm.connect.model import State, TaskId


async def main(behaviours: list[str]) -> None:
    async with Watched() as w:
        tasks = []
        for n, behaviour in enumerate(behaviours):
            config = {"idle": "1", "behaviour": behaviour, "where": "poll"}
            await w.supervisor.start_task(task_spec("c", config, number=n))
            tasks.append(TaskId("c", n))
        seen = 0
        while True:
            await wait_for(lambda: len(w.events) > seen, lambda: "nothing happened", 600)
            seen = len(w.events)
            running = all(w.states(t)[-1:] == [State.RUNNING] for t in tasks)
            restarts = sum(e.state is State.RESTARTING for e in w.events)
            pids = [w.supervisor.pid(t) for t in tasks]
            line = {
                "server": w.supervisor.fork_server_pid,
                "running": running,
                "pids": pids,
                "restarts": restarts,
            }
            print(json.dumps(line | {"worker": os.getpid()}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
