"""`klamm connector`: connectors of a Connect worker (ours or Kafka's): their states, and starting and stopping them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli import connector_config, connector_offsets, connector_signal
from klamm.cli.common import (
    Output,
    OutputOption,
    print_document,
    print_record,
    print_rows,
    print_streamed,
    reported,
)
from klamm.cli.connector_files import read_connector, read_data
from klamm.cli.connector_names import Name, path_of
from klamm.cli.context import Commands
from klamm.cli.rest_client import Worker
from klamm.cli.rest_words import shortened
from klamm.cli.states import styled

app = Commands(help="Make, watch and delete connectors.", no_args_is_help=True)

TIMES = "\N{MULTIPLICATION SIGN}"


@app.command("list")
def list_connectors(worker: Worker, output: OutputOption = Output.TABLE) -> None:
    """List connectors with their state and that of their tasks."""
    with reported():
        answer = worker.call("GET", "/connectors?expand=status&expand=info")
        rows = [
            {
                "name": name,
                "type": item["info"]["type"],
                "state": item["status"]["connector"]["state"],
                "tasks": [t["state"] for t in item["status"]["tasks"]],
                "class": item["info"]["config"].get("connector.class"),
            }
            for name, item in sorted(answer.items())
        ]
        if not output.structured:
            rows = [row | {"tasks": _counts(row["tasks"])} for row in rows]
        print_rows(rows, ["name", "type", "state", "tasks", "class"], output)


def _counts(states: list[str]) -> list[str]:
    """Return `RUNNING` for one task; the number stands before the state of several."""
    return [state if n == 1 else f"{n}{TIMES}{state}" for state, n in Counter(states).most_common()]


@app.command()
def status(worker: Worker, name: Name, output: OutputOption = Output.TABLE) -> None:
    """Show a connector's state, its tasks, and what went wrong."""
    with reported():
        answer = worker.call("GET", path_of(name, "/status"))
        rows = [_task_row(task, time.time() * 1000) for task in answer["tasks"]]
        columns = ["task", "state", "records", "lag", "last_ack", "waiting_for", "worker_id"]
        if output is Output.CSV:
            print_rows(rows, columns, output)
            return
        if output.structured:
            print_record(answer, output)
            return
        connector = answer["connector"]
        typer.echo(
            f"{answer['name']}  {answer.get('type', '-')}  {styled(connector['state'])}  worker {connector['worker_id']}"
        )
        if "note" in answer:
            typer.echo(answer["note"])
        print_rows(rows, columns, output)
        for task in answer["tasks"]:
            if details := _details(task.get("progress", {}).get("details") or {}):
                typer.echo(f"task {task['id']}: {details}")
        for label, text in _retries(answer["tasks"], time.time() * 1000):
            typer.echo(f"{label}: {text}")
        parts = {"connector": connector} | {f"task {task['id']}": task for task in answer["tasks"]}
        for label, part in parts.items():
            if note := part.get("restart"):
                typer.echo(f"{label}: {_restart_text(note, time.time() * 1000)}")
        for label, part in parts.items():
            if part.get("trace"):
                typer.echo(f"\n{label}:\n{shortened(part['trace'])}")


def _retries(tasks: list[dict[str, Any]], now_ms: float) -> Iterator[tuple[str, str]]:
    """Yield the operations that tasks are retrying now, with their last error."""
    for task in tasks:
        retrying = (task.get("progress") or {}).get("details", {}).get("retrying") or {}
        for stage, each in retrying.items():
            since_s = max(0.0, now_ms - each["since_ms"]) / 1000
            tries = f"{each['attempts']} failed attempts" if each["attempts"] != 1 else "1 failed attempt"
            yield (
                f"task {task['id']}",
                f"{stage} has been retried for {since_s:.0f} s, {tries}: {each['error']}",
            )


def _details(figures: dict[str, Any]) -> str:
    """Return a task's own figures on one line; a value that is no plain word or number is JSON.

    Leaves Kafka's metrics to `-o json`, except counts of errors that are not zero.
    """
    errors = {k: v for k, v in (figures.get("errors") or {}).items() if v and not k.startswith("last-")}
    shown = {k: v for k, v in figures.items() if k not in ("figures", "errors", "retrying")} | errors
    return ", ".join(
        f"{name} {value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)}"
        for name, value in shown.items()
    )


def _restart_text(note: dict[str, Any], now_ms: float) -> str:
    """Return a sentence about the restart policy's answer to the last failure."""
    ago = f"failed {max(0.0, now_ms - note['failed_ms']) / 1000:.0f} s ago ({shortened(note['error'])})"
    if "next_try_ms" not in note:
        return f"{ago}, not restarted: {note.get('why', 'no reason given')}"
    wait_s = (note["next_try_ms"] - now_ms) / 1000
    when = f"in {wait_s:.0f} s" if wait_s > 0 else f"{-wait_s:.0f} s ago"
    left = f"{note['left']} of {note['budget']} left within {note['window_ms'] / 1000:g} s"
    return f"{ago}, restart {note['attempt']} {when}, {left}"


def _state(state: str, progress: dict[str, Any]) -> str:
    """Return DEGRADED for a running task that says so, as Connect has no state for it."""
    return "DEGRADED" if state == "RUNNING" and (progress.get("details") or {}).get("degraded") else state


def _task_row(task: dict[str, Any], now_ms: float) -> dict[str, Any]:
    """Return a task's row: its progress beside its state, and the time since its last acknowledgement."""
    progress = task.get("progress") or {}  # Kafka's own workers have none
    row = {**progress, **task, "task": task["id"], "state": _state(task["state"], progress)}
    if progress.get("last_ack_ms") is not None:
        row["last_ack"] = f"{max(0.0, now_ms - progress['last_ack_ms']) / 1000:.0f} s ago"
    return row


@app.command()
def progress(
    worker: Worker,
    name: Name,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", "-w", metavar="SECONDS", min=0.1, help="Again after so many seconds, with rates."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far a connector is.

    Shows records, bytes, lag, the last acknowledgement, and what each task waits for.
    """
    with reported():
        before: dict[str, Any] | None = None
        while True:
            answer = worker.call("GET", path_of(name, "/progress"))
            if output.structured and output is not Output.CSV:
                print_streamed(answer, output) if watch else print_document(answer, output)
            else:
                print_rows(
                    [_progress_row(t, before, answer["at_ms"]) for t in answer["tasks"]], _PROGRESS, output
                )
            if watch is None:
                return
            before = {"at_ms": answer["at_ms"], **{t["id"]: t["records"] for t in answer["tasks"]}}
            time.sleep(watch)


_PROGRESS = ["task", "state", "records", "per_s", "bytes", "lag", "last_ack", "waiting_for", "worker_id"]


def _progress_row(task: dict[str, Any], before: dict[str, Any] | None, at_ms: int) -> dict[str, Any]:
    """Return a task's row; `per_s` is the rate since the answer before."""
    row = {**task, "task": task["id"], "per_s": None, "state": _state(task["state"], task)}
    if task["idle_ms"] is not None:
        row["last_ack"] = f"{task['idle_ms'] / 1000:.0f} s ago"
    earlier = (before or {}).get(task["id"])
    if before and earlier is not None and task["records"] is not None and task["records"] >= earlier:
        row["per_s"] = round((task["records"] - earlier) / max(0.001, (at_ms - before["at_ms"]) / 1000))
    return row


@app.command("events")
def show_events(
    worker: Worker,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only these kinds: task.state, …")] = None,
    connector: Annotated[
        list[str] | None, typer.Option("--connector", help="Only of connectors that match: orders-*")
    ] = None,
    after: Annotated[int | None, typer.Option("--after", help="Begin after the event of this id.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow what happens on a worker.

    Prints states, configurations and rebalances. Ends with Ctrl-C or the worker.
    """
    from urllib.parse import urlencode

    with reported():
        query = urlencode([("kind", k) for k in kind or ()] + [("connector", c) for c in connector or ()])
        for event in worker.events(f"/events?{query}", after):
            if output.structured:
                print_streamed(event, output)
            else:
                typer.echo(styled(_event_line(event)))


def _event_line(event: dict[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(event.pop("at_ms", 0) / 1000))
    number, kind = event.pop("id", ""), event.pop("kind", "")
    text = " ".join(f"{k}={v}" for k, v in event.items() if k != "trace")
    trace = f"\n{event['trace']}" if event.get("trace") else ""
    return f"{at}  {number}  {kind}  {text}{trace}"


@app.command("dry-run")
def dry_run(
    worker: Worker,
    name: Name,
    records: Annotated[
        Path, typer.Option("--records", "-r", help='JSON: a list of {"value": …, "key": …}; - reads stdin.')
    ],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Try this configuration (as for create) instead.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send sample records through converters and transforms.

    Shows each step; exit code 1 when a record fails.
    """
    with reported():
        body: dict[str, Any] = {"records": read_data(records)}
        if file is not None:
            body["config"] = read_connector(file).config
        answer = worker.call("POST", path_of(name, "/dry-run"), body)
        if output.structured:
            print_record(answer, output)
        else:
            for index, result in enumerate(answer["results"]):
                typer.echo(f"record {index}: {result['outcome']}")
                for step in result["steps"]:
                    typer.echo(f"  {step['step']} ({step['plugin'].rpartition('.')[2]}): {_step_words(step)}")
        if any(result["outcome"] == "failed" for result in answer["results"]):
            raise typer.Exit(1)


def _step_words(step: dict[str, Any]) -> str:
    if step["error"] is not None:
        return step["error"]  # type: ignore[no-any-return]
    if step["record"] is None:
        return "dropped"
    if not step["applied"]:
        return "not applied (its predicate)"
    if not step["changed"]:
        return "unchanged"
    record = step["record"]
    shown = {k: record[k] for k in ("topic", "key", "value", "headers") if record[k] not in (None, [])}
    return json.dumps(shown, ensure_ascii=False)


@app.command()
def delete(worker: Worker, name: Name) -> None:
    """Delete a connector; its offsets stay."""
    _do(worker, "DELETE", name, "", "deleted")


@app.command()
def pause(worker: Worker, name: Name) -> None:
    """Pause a connector: its tasks stay and do nothing."""
    _do(worker, "PUT", name, "/pause", "pausing")


@app.command()
def resume(worker: Worker, name: Name) -> None:
    """Resume a paused or stopped connector."""
    _do(worker, "PUT", name, "/resume", "resuming")


@app.command()
def stop(worker: Worker, name: Name) -> None:
    """Stop a connector: its tasks end, its configuration stays."""
    _do(worker, "PUT", name, "/stop", "stopping")


@app.command()
def restart(
    worker: Worker,
    name: Name,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Only what is FAILED.")] = False,
    include_tasks: Annotated[bool, typer.Option("--include-tasks/--no-tasks", help="Its tasks too.")] = True,
) -> None:
    """Restart a connector and its tasks."""
    query = f"/restart?includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
    _do(worker, "POST", name, query, "restarting")


def _do(worker: Worker, method: str, name: str, path: str, said: str) -> None:
    with reported():
        worker.call(method, path_of(name, path))
        typer.echo(f"{said} {name}")


@app.command()
def plugins(
    worker: Worker,
    every: Annotated[
        bool, typer.Option("--all", help="Converters, transforms and all other kinds, too.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the connector plugins that the worker has."""
    path = f"/connector-plugins?connectorsOnly={str(not every).lower()}"
    with reported():
        print_rows(worker.call("GET", path), ["class", "type", "version", "package"], output)


connector_config.register(app)
connector_signal.register(app)
app.add_typer(connector_offsets.app, name="offsets")
