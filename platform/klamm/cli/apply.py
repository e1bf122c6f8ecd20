"""`klamm apply`: make topics, ACLs, quotas, users, schemas and connectors as YAML files want them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import EXIT_FAILED, counted, fail, reported
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.registry_client import OptionalWorker, Registry
from klamm_base.errors import ConfigError, KlammError
from klamm_base.interrupts import Interrupted, interruptible

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.desired.plan import Change
    from klamm.desired.state import State

EXIT_CHANGES: Final = 3

Files = Annotated[
    list[Path],
    typer.Option(
        "--file", "-f", help="YAML file, a folder of them, or - for standard input; may be repeated."
    ),
]


def apply(
    cluster: AdminCluster,
    registry: Registry,
    worker: OptionalWorker,
    files: Files,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only print the plan; exit code 3 when something would change.")
    ] = False,
    prune: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="Delete what the files' sections of these kinds leave out: topics, acls, quotas, users, schemas,"
            " connectors.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a cluster as YAML files want it.

    Prints the plan first. What the files do not speak of stays. On a terminal it asks before it changes anything;
    without one, deletions need --yes.
    """
    with reported():
        from klamm.desired.plan import Action, plan

        wanted = read_files(files)
        kinds = _kinds(prune, wanted)
        current = _current(cluster, registry, worker, wanted)
        changes = plan(current, wanted, prune=kinds)
        _print(changes, output)
        todo = [c for c in changes if c.action is not Action.UNCHANGED]
        if check:
            raise typer.Exit(EXIT_CHANGES if todo else 0)
        if dry_run or not todo:
            return
        _find_passwords(todo)
        _confirm(todo, yes=yes)
        _carry_out(cluster, registry, worker, todo)


def read_files(files: list[Path]) -> State:
    """Return what all files want together. Raises ConfigError."""
    from klamm.desired.document import merged, parse

    states = []
    for place in files:
        for source, text in _texts(place):
            states += [(source, parse(document, source)) for document in documents(text, source)]
    if not any(state.given for _, state in states):
        raise ConfigError(f"{', '.join(map(str, files))}: nothing is wanted there")
    return merged(states)


def _texts(place: Path) -> list[tuple[str, str]]:
    if str(place) == "-":
        return [("standard input", sys.stdin.read())]
    try:
        if not place.is_dir():
            return [(str(place), place.read_text(encoding="utf-8"))]
        found = sorted(p for p in place.iterdir() if p.suffix in {".yaml", ".yml"})
        if not found:
            raise ConfigError(f"{place}: no .yaml file")
        return [(str(p), p.read_text(encoding="utf-8")) for p in found]
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{place}: cannot be read: {getattr(e, 'strerror', None) or e}") from None


def documents(text: str, source: str) -> list[Any]:
    """Return the documents of a YAML text. Raises ConfigError; also for a key that is there twice."""
    import yaml  # type: ignore[import-untyped]

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for where, _ in node.value:
                key = self.construct_object(where, deep=True)
                if isinstance(key, str) and key in seen:
                    line = where.start_mark.line + 1
                    raise ConfigError(f"{source}: line {line}: {key!r} is there twice")
                seen |= {key} if isinstance(key, str) else set()
            return super().construct_mapping(node, deep)

    try:
        return list(yaml.load_all(text, Loader))
    except yaml.YAMLError as e:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(e).split())}") from None


def _kinds(prune: str | None, wanted: State) -> set[str]:
    from klamm.desired.state import KINDS

    kinds = {k.strip() for k in (prune or "").split(",") if k.strip()}
    for kind in sorted(kinds):
        if kind not in KINDS:
            raise ConfigError(f"--prune {kind}: use one of {', '.join(KINDS)}")
        if kind not in wanted.given:
            raise ConfigError(
                f"--prune {kind}: the files have no section {kind}; an empty one would delete all"
            )
    return kinds


def _current(cluster: AdminCluster, registry: Registry, worker: OptionalWorker, wanted: State) -> State:
    from klamm.desired import reading
    from klamm.desired.state import CLUSTER_KINDS, State

    given = wanted.given

    async def ask(admin: Admin) -> dict[str, Any]:
        return {
            "topics": await reading.read_topics(admin, wanted.topics, others=True)
            if "topics" in given
            else {},
            "acls": await reading.read_acls(admin, optional=not wanted.acls)
            if "acls" in given
            else frozenset(),
            "quotas": await reading.read_quotas(admin) if "quotas" in given else {},
            "users": await reading.read_users(admin) if "users" in given else {},
        }

    found = cluster.ask(ask) if given & set(CLUSTER_KINDS) else {}
    if "schemas" in given:
        found["schemas"] = reading.read_schemas(registry.api(), wanted.schemas)
    if "connectors" in given:
        found["connectors"] = reading.read_connectors(worker.api())
    return State(given=given, **found)


def _print(changes: list[Change], output: Format) -> None:
    rows = [
        {"action": c.action.value, "kind": c.kind, "name": c.title, "change": c.said or None} for c in changes
    ]
    print_rows(rows, ["action", "kind", "name", "change"], output)


def _find_passwords(todo: list[Change]) -> None:
    """Raises ConfigError for a user without a password before anything is changed."""
    from klamm.desired.carrying import password

    for change in todo:
        if change.kind == "users" and change.put:
            password(change.name, change.wanted)


def _confirm(todo: list[Change], *, yes: bool) -> None:
    """Ask on a terminal. Raises KlammError where nobody can be asked and something would be deleted."""
    from klamm.desired.plan import Action

    if yes:
        return
    gone = sum(c.action is Action.DELETE for c in todo)
    if sys.stdin.isatty():
        deleting = f", {counted(gone, 'deletion')} among them" if gone else ""
        if not typer.confirm(f"Carry out {counted(len(todo), 'change')}{deleting}?", err=True):
            raise KlammError("nothing was changed")
    elif gone:
        raise KlammError(f"{counted(gone, 'deletion')}: give --yes; nothing was changed")


def _carry_out(cluster: AdminCluster, registry: Registry, worker: OptionalWorker, todo: list[Change]) -> None:
    from klamm.desired import carrying
    from klamm.desired.state import CLUSTER_KINDS

    apis = {"schemas": registry.api, "connectors": worker.api}
    done = 0

    async def on_cluster(admin: Admin, changes: list[Change]) -> None:
        nonlocal done
        for change in changes:
            await carrying.carry_out(admin, change)
            done += 1

    try:
        with interruptible():
            for change in _grouped(todo, set(CLUSTER_KINDS)):
                if isinstance(change, list):
                    cluster.ask(lambda admin, mine=change: on_cluster(admin, mine))  # type: ignore[misc]
                else:
                    carrying.carry_out_by_rest(apis[change.kind](), change)
                    done += 1
    except KlammError as e:
        code, unknown = EXIT_FAILED, ""
        if isinstance(e, Interrupted):
            code, unknown = e.code, "; nobody knows whether this one is done"
        said = f"{done} of {counted(len(todo), 'change')} done; then "
        if done < len(todo):  # else connections were closed
            failed = todo[done]
            said += f"{failed.action} {failed.kind} {failed.title}: {e}{unknown}"
        else:
            said += str(e)
        fail(said, code)
    typer.echo(f"{counted(done, 'change')} done", err=True)


def _grouped(todo: list[Change], cluster_kinds: set[str]) -> list[list[Change] | Change]:
    """Return the changes in their order; those of the cluster that follow each other as one list."""
    result: list[list[Change] | Change] = []
    for change in todo:
        if change.kind not in cluster_kinds:
            result.append(change)
        elif result and isinstance(result[-1], list):
            result[-1].append(change)
        else:
            result.append([change])
    return result
