"""`klamm backup`: backups of a cluster's topics, offsets, ACLs and quotas in a folder or at a URL, and their way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from klamm.cli.cluster import TIMEOUT_S, AdminCluster, CommandConfigOption, TimeoutOption
from klamm.cli.common import EXIT_FAILED, counted, ended_saying, fail, pairs, reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.rest_client import Login
from klamm_base.errors import ConfigError

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.backup.against import Comparison
    from klamm.backup.connectors import Call
    from klamm.backup.folder import BackupFolder
    from klamm.backup.model import Connector, State
    from klamm.backup.restore import Outcome
    from klamm.backup.verify import Verdict
    from klamm_kafka.client import Cluster

T = TypeVar("T")
app = Commands(help="Back up clusters and restore them.", no_args_is_help=True)

_COLUMNS: Final = ("backup", "taken", "topics", "partitions", "records", "size", "added")
Place = Annotated[str, typer.Argument(metavar="DIR", help="A folder, or a URL that fsspec knows.")]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="PATTERN", help="Topics: a glob, or /a regex/; may be repeated. Without: all."),
]  # fmt: skip
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Topics to leave out; may be repeated."),
]
KeyFileOption = Annotated[
    Path | None, typer.Option("--key-file", help="A key of 32 bytes that encrypts the backups.")
]
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="A file with a passphrase; else KLAMM_BACKUP_PASSPHRASE."),
]
RenameOption = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="A topic's new name; may be repeated.")
]
PrefixOption = Annotated[str, typer.Option("--prefix", help="Put before the names of all other topics.")]
RestOption = Annotated[
    str | None,
    typer.Option("--rest", metavar="URL", help="A Connect worker whose connectors go along, with offsets."),
]
PlainOption = Annotated[
    bool, typer.Option("--allow-plain", help="Take a backup that is not encrypted from a folder that is.")
]
BackupOption = Annotated[
    str | None, typer.Option("--backup", metavar="ID", help="A backup of `list`; without: the last one.")
]


def _folder(
    place: str, key_file: Path | None, passphrase_file: Path | None, *, make: bool = False
) -> BackupFolder:
    from klamm.backup.folder import BackupFolder
    from klamm.backup.keys import read_secret
    from klamm.backup.store import open_store

    secret = read_secret(key_file, passphrase_file)
    store = open_store(place)
    return BackupFolder.make(store, secret) if make else BackupFolder.open(store, secret)


def _ask(cluster: AdminCluster, work: Callable[[Admin, Cluster], Awaitable[T]]) -> T:
    """Run work against the cluster, with a client for questions and another for records."""
    from klamm.admin.settings import client_settings
    from klamm_kafka.client import Cluster

    settings = client_settings(cluster.bootstrap, cluster.command_config, timeout_s=cluster.timeout)

    async def both(admin: Admin) -> T:
        async with Cluster(
            settings.bootstrap,
            client_id=settings.client_id,
            timeout_s=cluster.timeout,
            security=settings.security,
        ) as data:
            return await work(admin, data)

    return cluster.ask(both)


@app.command()
def create(
    place: Place,
    cluster: AdminCluster,
    login: Login,
    topic: TopicOption = None,
    exclude: ExcludeOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read everything, whatever former backups have.")
    ] = False,
    compression: Annotated[
        str,
        typer.Option("--compression", help="Of chunks whose batches are not compressed: zstd, lz4 or none."),
    ] = "zstd",
    rest: RestOption = None,
    key_file: KeyFileOption = None,
    passphrase_file: PassphraseOption = None,
) -> None:
    """Back up topics, groups' offsets, ACLs and quotas. A second backup into DIR reads only what is new."""
    with reported():
        from klamm.backup import create as making
        from klamm.backup.chunks import CODECS
        from klamm.backup.connectors import read_connectors
        from klamm.backup.selection import Selection
        from klamm.backup.store import open_store
        from klamm.cli.backup_progress import shown_progress

        if place.startswith("memory://"):
            raise ConfigError(f"{place}: what this process keeps in memory is gone when it ends")
        if compression not in CODECS:
            raise ConfigError(f"--compression {compression}: use one of {', '.join(CODECS)}")
        again = (
            "the same command begins anew, and `klamm backup prune` removes afterwards what this one wrote"
        )
        with (
            ended_saying(f"former backups stay as they were: {again}"),
            open_store(place).lock(),
            shown_progress() as progress,
        ):
            folder = _folder(place, key_file, passphrase_file, make=True)
            wanted = making.Wanted(
                selection=Selection(include=topic or [], exclude=exclude or []),
                codec=compression,
                full=full,
                connectors=() if rest is None else read_connectors(login.at(rest).call, progress.say),
            )
            made = _ask(cluster, lambda a, c: making.create(a, c, folder, wanted, progress))
        head = made.header
        typer.echo(
            f"backup {head.id}: {counted(head.topics, 'topic')}, {counted(head.records, 'record')}, "
            f"{_bytes(head.size)}, of which {_bytes(head.added)} are new"
        )


@app.command("list")
def list_backups(
    place: Place,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the backups in a folder, the oldest first. Needs no key."""
    with reported():
        from klamm.backup.errors import DamagedError
        from klamm.backup.folder import BackupFolder
        from klamm.backup.store import open_store

        folder = BackupFolder.without_key(open_store(place))
        rows: list[dict[str, Any]] = []
        damage: list[str] = []
        for name in folder.ids():
            try:
                rows.append(_row(folder, name))
            except DamagedError as e:
                damage.append(str(e))
        print_rows(rows, list(_COLUMNS), output, wide=["cluster", "key_id"])
        if damage:
            fail("; ".join(damage))


def _row(folder: BackupFolder, name: str) -> dict[str, Any]:
    head = folder.manifest(name).header
    return {
        "backup": name,
        "taken": datetime.fromtimestamp(head.taken_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "topics": head.topics,
        "partitions": head.partitions,
        "records": head.records,
        "size": head.size,
        "added": head.added,
        "cluster": head.cluster_id,
        "key_id": head.key_id or None,
    }


@app.command()
def verify(
    place: Place,
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup", metavar="ID", help="Only this backup; without: all, or the last with --against."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="HOST:PORT", help="Compare with a cluster instead, record by record."
        ),
    ] = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    topic: TopicOption = None,
    exclude: ExcludeOption = None,
    rename: RenameOption = None,
    prefix: PrefixOption = "",
    output: FormatOption = Format.TABLE,
    key_file: KeyFileOption = None,
    passphrase_file: PassphraseOption = None,
) -> None:
    """Read backups back and check every byte.

    Exit code 1 where something is damaged, or differs from the cluster.
    """
    with reported():
        from klamm.backup.selection import Names, Selection
        from klamm.backup.verify import verify as check
        from klamm.cli.backup_progress import shown_progress

        folder = _folder(place, key_file, passphrase_file)
        with shown_progress() as progress:
            if against is not None:
                cluster = AdminCluster(bootstrap=against, command_config=command_config, timeout=timeout)
                from klamm.backup.against import compare

                state = folder.chosen(backup).state(folder.key)
                selection = Selection(include=topic or [], exclude=exclude or [])
                names = Names(renames=pairs(rename, "--rename"), prefix=prefix)
                found = _ask(
                    cluster,
                    lambda a, c: compare(
                        a, c, folder, state, selection=selection, names=names, progress=progress
                    ),
                )
                _print_comparison(found, output)
                return
            verdict = asyncio.run(check(folder, progress, only=backup))
        _print_verdict(verdict, output)


def _print_row(row: dict[str, object], output: Format, *, bad: bool) -> None:
    """Print one row of figures; ends with code 1 where they are bad."""
    print_rows([row], list(row), output)
    if bad:
        raise typer.Exit(EXIT_FAILED)


def _print_comparison(found: Comparison, output: Format) -> None:
    if output is not Format.TABLE:
        row = {
            "topics": found.topics, "records": found.equal, "compacted": found.compacted, "deleted": found.deleted,
            "offsets": found.offsets, "differences": found.differences,
        }  # fmt: skip
        _print_row(row, output, bad=bool(found.differences))
        return
    for line in found.differences:
        typer.echo(f"different: {line}")
    more = [
        f"{number} {what}"
        for number, what in (
            (found.compacted, "compacted since"),
            (found.deleted, "deleted by retention since"),
        )
        if number
    ]
    typer.echo(
        f"{'different' if found.differences else 'equal'}: {counted(found.topics, 'topic')}, {counted(found.equal, 'record')}, "
        + ", ".join([*more, f"{counted(found.offsets, 'offset')} of groups"])
    )
    if found.differences:
        raise typer.Exit(EXIT_FAILED)


def _print_verdict(verdict: Verdict, output: Format) -> None:
    if output is not Format.TABLE:
        row = {
            "backups": verdict.backups, "chunks": verdict.chunks, "records": verdict.records, "size": verdict.size,
            "unreferenced": verdict.unreferenced, "damage": verdict.damage,
        }  # fmt: skip
        _print_row(row, output, bad=bool(verdict.damage))
        return
    for line in verdict.damage:
        typer.echo(f"damaged: {line}")
    if verdict.unreferenced:
        typer.echo(
            f"{counted(verdict.unreferenced, 'file')} of killed commands or removed backups; `prune` removes them"
        )
    if verdict.damage:
        fail(f"{counted(len(verdict.damage), 'place')} damaged")
    typer.echo(
        f"good: {counted(verdict.backups, 'backup')}, {counted(verdict.chunks, 'chunk')}, "
        f"{counted(verdict.records, 'record')}, {_bytes(verdict.size)}"
    )


@app.command()
def restore(
    place: Place,
    cluster: AdminCluster,
    login: Login,
    topic: TopicOption = None,
    exclude: ExcludeOption = None,
    backup: BackupOption = None,
    rest: RestOption = None,
    rename: RenameOption = None,
    prefix: PrefixOption = "",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only what was written before: ISO 8601, or ms since 1970."),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option("--parts", help="By commas: topics, groups, acls, quotas. Without: all, or topics and groups with --topic."),
    ] = None,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Let partitions begin at the offsets where they began.")
    ] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Put records behind those that topics hold already.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a restore that was killed.")] = False,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="Of the topics that are made.")
    ] = None,
    key_file: KeyFileOption = None,
    passphrase_file: PassphraseOption = None,
    allow_plain: PlainOption = False,
) -> None:  # fmt: skip
    """Restore a backup to a cluster.

    Topics must not be there, or be empty.
    """
    with reported():
        from klamm.backup import restore as restoring
        from klamm.backup.selection import Names, Selection
        from klamm.cli.backup_progress import shown_progress

        given = {
            "--append": append, "--resume": resume, "--keep-offsets": keep_offsets,
            "--replication-factor": replication_factor,
        }  # fmt: skip
        chosen = _parts(parts, given, partial=bool(topic or exclude))
        folder = _folder(place, key_file, passphrase_file)
        state = _state(folder, backup, allow_plain=allow_plain)
        wanted = restoring.Wanted(
            selection=Selection(include=topic or [], exclude=exclude or []),
            names=Names(renames=pairs(rename, "--rename"), prefix=prefix),
            parts=chosen,
            until_ms=None if until is None else _time(until),
            resume=resume,
            append=append,
            keep_offsets=keep_offsets,
            replicas=replication_factor,
            connectors=rest is not None,
        )
        again = "by the same command with --resume" if restoring.TOPICS in chosen else "by the same command"
        with ended_saying(f"what is restored stays: go on {again}"):
            with shown_progress() as progress:
                outcome = _ask(
                    cluster,
                    lambda a, c: restoring.restore(a, c, folder, state, wanted=wanted, progress=progress),
                )
            if rest is not None:
                _restore_connectors(login.at(rest).call, state.connectors, outcome, resume=resume)
        _print_outcome(outcome)


def _state(folder: BackupFolder, name: str | None, *, allow_plain: bool) -> State:
    manifest = folder.chosen(name)
    return manifest.state(None if allow_plain and not manifest.header.key_id else folder.key)


def _restore_connectors(
    call: Call, connectors: Sequence[Connector], outcome: Outcome, *, resume: bool
) -> None:
    from klamm.backup.connectors import restore_connectors

    outcome.connectors, refused = restore_connectors(
        call, connectors, outcome.names, outcome.places, lambda text: typer.echo(f"klamm: {text}", err=True), resume=resume
    )  # fmt: skip
    outcome.refused += refused


def _parts(text: str | None, about_topics: Mapping[str, object], *, partial: bool) -> frozenset[str]:
    """Return what to restore. Raises ConfigError for it, or for options about topics that do not go with it."""
    from klamm.backup.restore import GROUPS, PARTS, TOPICS

    if about_topics["--append"] and about_topics["--keep-offsets"]:
        raise ConfigError("--append: --keep-offsets cannot be given with it")
    if text is None:
        return frozenset((TOPICS, GROUPS) if partial else PARTS)
    found = frozenset(word.strip() for word in text.split(","))
    if unknown := sorted(found - set(PARTS)):
        raise ConfigError(f"--parts {unknown[0]}: use {', '.join(PARTS)}")
    if TOPICS not in found and (idle := [name for name, value in about_topics.items() if value]):
        raise ConfigError(f"{idle[0]} is about topics, which --parts {text} leaves out")
    return found


def _time(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--until {text}: no time of ISO 8601 (2026-11-24T15:00:00Z), and no milliseconds"
        ) from None
    return round((found if found.tzinfo else found.astimezone()).timestamp() * 1000)


def _print_outcome(outcome: Outcome) -> None:
    for old, new in sorted(outcome.names.items()):
        if old != new and outcome.topics:
            typer.echo(f"{old} -> {new}")
    typer.echo(
        f"restored: {counted(outcome.topics, 'topic')}, {counted(outcome.records, 'record')}"
        + (f" (and {outcome.had} that were there)" if outcome.had else "")
        + f", {counted(outcome.offsets, 'offset')} of {counted(outcome.groups, 'group')}, "
        f"{counted(outcome.acls, 'ACL')}, {counted(outcome.quotas, 'quota')}, {counted(outcome.connectors, 'connector')}"
    )
    if outcome.moved:
        typer.echo(
            f"{counted(outcome.moved, 'partition')} of {len(outcome.places)} with other offsets than before "
            "(offsets of groups are translated)"
        )
    for line in outcome.refused:
        typer.echo(f"klamm: not restored: {line}", err=True)
    if outcome.refused:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def prune(
    place: Place,
    keep_last: Annotated[int | None, typer.Option("--keep-last", min=1, help="Keep so many backups.")] = None,
    keep_days: Annotated[float | None, typer.Option("--keep-days", min=0, help="Keep backups that are younger.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    output: FormatOption = Format.TABLE,
    key_file: KeyFileOption = None,
    passphrase_file: PassphraseOption = None,
) -> None:  # fmt: skip
    """Remove old backups, and files that no backup needs. With both options, what either keeps stays."""
    with reported():
        from klamm.backup.prune import prune as remove

        folder = _folder(place, key_file, passphrase_file)
        with folder.store.lock():
            gone = remove(
                folder, now_ms=time.time_ns() // 1_000_000, last=keep_last, days=keep_days, dry_run=dry_run
            )
        if output is not Format.TABLE:
            row = {"backups": list(gone.backups), "files": list(gone.files), "dry_run": dry_run}
            print_rows([row], list(row), output)
            return
        verb = "would remove" if dry_run else "removed"
        for name in gone.backups:
            typer.echo(f"{verb} backup {name}")
        typer.echo(f"{verb} {counted(len(gone.backups), 'backup')} and {counted(len(gone.files), 'file')}")


def _bytes(size: int) -> str:
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
