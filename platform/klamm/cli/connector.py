"""`klamm connector`: a Connect worker's REST API (ours or Kafka's) from the command line."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli.common import (
    DEFAULT_REST,
    Output,
    OutputOption,
    RestOption,
    pairs,
    print_record,
    print_rows,
    reported,
)
from klamm_base.errors import ConfigError, KlammError

app = typer.Typer(help="Make, watch and delete connectors.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]
TIMES = "\N{MULTIPLICATION SIGN}"
TIMEOUT_S = 95.0  # a worker answers within 90 s or says that it cannot


def call(url: str, method: str, path: str, body: Any = None) -> Any:
    """One request; the decoded answer. Raises KlammError with the worker's own sentence."""
    import http.client
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: write http://HOST:PORT")
    data = None if body is None else json.dumps(body).encode()
    request = Request(url.rstrip("/") + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - the user gave the address
            text = answer.read()
    except HTTPError as e:
        raise KlammError(_message(e.read()) or f"{method} {path}: HTTP {e.code} {e.reason}") from None
    except (URLError, http.client.HTTPException, OSError) as e:
        raise KlammError(f"no answer from a Connect worker at {url}: {getattr(e, 'reason', e)}") from None
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise KlammError(f"{method} {url}{path}: the answer is not JSON; is that a Connect worker?") from None


def _message(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return None


def _path(name: str, rest: str = "") -> str:
    from urllib.parse import quote

    return f"/connectors/{quote(name, safe='')}{rest}"


@app.command("list")
def list_connectors(url: RestOption = DEFAULT_REST, output: OutputOption = Output.TABLE) -> None:
    """List connectors with their state and that of their tasks."""
    with reported():
        answer = call(url, "GET", "/connectors?expand=status&expand=info")
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
        if output is Output.TABLE:
            rows = [row | {"tasks": _counts(row["tasks"])} for row in rows]
        print_rows(rows, ["name", "type", "state", "tasks", "class"], output)


def _counts(states: list[str]) -> list[str]:
    """`RUNNING` for one task, the number before it for many."""
    return [state if n == 1 else f"{n}{TIMES}{state}" for state, n in Counter(states).most_common()]


@app.command()
def create(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name, when the file or --config does not hold it.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help='JSON: {"name": …, "config": {…}} or the config alone; - reads stdin.'
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="One setting.")
    ] = None,
    url: RestOption = DEFAULT_REST,
) -> None:
    """Make a connector from JSON written for Kafka Connect, or from -c settings."""
    with reported():
        found, settings = _read(file) if file else (None, {})
        settings |= pairs(config, "--config")
        name = _named(name, found or settings.get("name"))
        if not settings:
            raise typer.BadParameter("give --file or --config", param_hint="--file")
        call(url, "POST", "/connectors", {"name": name, "config": settings})
        typer.echo(f"created {name}")


def _named(given: str | None, held: str | None) -> str:
    name = given or held
    if not name:
        raise typer.BadParameter("give a NAME, or a file that holds one", param_hint="NAME")
    return name


def _read(file: Path) -> tuple[str | None, dict[str, Any]]:
    import sys

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as e:
        raise KlammError(f"{file}: cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise KlammError(f"{file}: not JSON: {e}") from None
    if not isinstance(data, dict):
        raise KlammError(f'{file}: a JSON object is needed: {{"name": …, "config": {{…}}}}')
    if isinstance(data.get("config"), dict):
        return data.get("name"), data["config"]
    return data.get("name"), data


@app.command()
def status(name: Name, url: RestOption = DEFAULT_REST, output: OutputOption = Output.TABLE) -> None:
    """Show a connector's state, its tasks', their progress, and what went wrong."""
    with reported():
        answer = call(url, "GET", _path(name, "/status"))
        if output is Output.JSON:
            print_record(answer, output)
            return
        connector = answer["connector"]
        typer.echo(
            f"{answer['name']}  {answer.get('type', '-')}  {connector['state']}  worker {connector['worker_id']}"
        )
        rows = [_task_row(task, time.time() * 1000) for task in answer["tasks"]]
        print_rows(rows, ["task", "state", "records", "lag", "last_ack", "waiting_for", "worker_id"], output)
        for task in answer["tasks"]:
            if details := task.get("progress", {}).get("details"):
                typer.echo(f"task {task['id']}: {_details(details)}")
        for part in [connector, *answer["tasks"]]:
            if part.get("trace"):
                typer.echo(
                    f"\n{'connector' if part is connector else 'task ' + str(part['id'])}:\n{part['trace']}"
                )


def _details(figures: dict[str, Any]) -> str:
    """A task's own figures on one line; what is no plain word or number as JSON."""
    return ", ".join(
        f"{name} {value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)}"
        for name, value in figures.items()
    )


def _task_row(task: dict[str, Any], now_ms: float) -> dict[str, Any]:
    """A task as a table shows it: its progress beside its state, and how long ago it last got on."""
    progress = task.get("progress") or {}  # Kafka's own workers have none
    row = {**progress, **task, "task": task["id"]}
    if progress.get("last_ack_ms") is not None:
        row["last_ack"] = f"{max(0.0, now_ms - progress['last_ack_ms']) / 1000:.0f} s ago"
    return row


@app.command()
def config(name: Name, url: RestOption = DEFAULT_REST) -> None:
    """Print a connector's configuration as JSON."""
    with reported():
        print_record(call(url, "GET", _path(name, "/config")), Output.JSON)


@app.command()
def delete(name: Name, url: RestOption = DEFAULT_REST) -> None:
    """Delete a connector; its offsets stay."""
    _do("DELETE", name, "", url, "deleted")


@app.command()
def pause(name: Name, url: RestOption = DEFAULT_REST) -> None:
    """Pause a connector: its tasks stay and do nothing."""
    _do("PUT", name, "/pause", url, "pausing")


@app.command()
def resume(name: Name, url: RestOption = DEFAULT_REST) -> None:
    """Resume a paused or stopped connector."""
    _do("PUT", name, "/resume", url, "resuming")


@app.command()
def stop(name: Name, url: RestOption = DEFAULT_REST) -> None:
    """Stop a connector: its tasks end, its configuration stays."""
    _do("PUT", name, "/stop", url, "stopping")


@app.command()
def restart(
    name: Name,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Only what is FAILED.")] = False,
    include_tasks: Annotated[bool, typer.Option("--include-tasks/--no-tasks", help="Its tasks too.")] = True,
    url: RestOption = DEFAULT_REST,
) -> None:
    """Restart a connector and its tasks."""
    query = f"/restart?includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
    _do("POST", name, query, url, "restarting")


def _do(method: str, name: str, path: str, url: str, said: str) -> None:
    with reported():
        call(url, method, _path(name, path))
        typer.echo(f"{said} {name}")


@app.command()
def plugins(url: RestOption = DEFAULT_REST, output: OutputOption = Output.TABLE) -> None:
    """List the connector plugins that the worker has."""
    with reported():
        print_rows(call(url, "GET", "/connector-plugins"), ["class", "type", "version"], output)


@app.command()
def validate(
    file: Annotated[Path, typer.Option("--file", "-f", help="JSON as for create; - reads stdin.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name, when the file does not hold it.")
    ] = None,
    url: RestOption = DEFAULT_REST,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a configuration without making a connector; exit code 1 when it has errors."""
    from urllib.parse import quote

    with reported():
        found, settings = _read(file)
        held = settings.setdefault("name", _named(name, found))
        if name and held != name:  # what create is told by the worker
            raise ConfigError(f"{file}: name is {held!r}, not {name!r}")
        plugin = settings.get("connector.class")
        if not plugin:
            raise KlammError(f"{file}: no connector.class")
        answer = call(url, "PUT", f"/connector-plugins/{quote(plugin, safe='')}/config/validate", settings)
        rows = [
            {"key": c["value"]["name"], "value": c["value"]["value"], "error": error}
            for c in answer["configs"]
            for error in c["value"]["errors"]
        ]
        if rows or output is Output.JSON:
            print_rows(rows, ["key", "value", "error"], output)
        if answer["error_count"]:
            raise typer.Exit(1)
        if output is Output.TABLE:
            typer.echo("no errors")
