"""`klamm schema`: the schemas of a registry, ours or Confluent's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import quote

import typer

from klamm.cli.common import EXIT_FAILED, Output, OutputOption, print_record, reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.rest_client import Worker
from klamm_base.errors import ConfigError, KlammError

app = Commands(help="Look at and change the schemas of a registry.", no_args_is_help=True)

DEFAULT_URL: Final = "http://127.0.0.1:8081"
_KINDS: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="A subject, such as orders-value.")]
ScopeArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SUBJECT]",
        help="A subject, or a context as :.NAME: (:.__GLOBAL: is all). Without one: the default context.",
        show_default=False,
    ),
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The schema's file; - is standard input.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--type", help="AVRO, JSON or PROTOBUF; by default by the file's name (.avsc, .json, .proto)."
    ),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME:SUBJECT:VERSION",
        help="A schema that this one refers to; may be given several times. The version may be latest.",
    ),
]
NormalizeOption = Annotated[
    bool, typer.Option("--normalize", help="Differences of form make no other schema.")
]


class _Rest(Worker):
    WHAT: ClassVar[str] = "schema registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A schema registry and the login for it."""

    url: Annotated[
        str, typer.Option("--url", envvar="KLAMM_REGISTRY_URL", help="Address of the schema registry.")
    ] = DEFAULT_URL
    user: Annotated[
        str | None,
        typer.Option(
            "--user", "-u", metavar="NAME[:PASSWORD]", envvar="KLAMM_REGISTRY_USER", help="Basic auth."
        ),
    ] = field(default=None, repr=False)
    token: Annotated[str | None, typer.Option("--token", help="A bearer token.")] = field(
        default=None, repr=False
    )
    cacert: Annotated[
        Path | None,
        typer.Option("--cacert", help="PEM certificates of the authority that signed an https registry's."),
    ] = None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return the decoded answer. Raises KlammError with the registry's own sentence."""
        rest = _Rest(url=self.url, user=self.user, token=self.token, cacert=self.cacert)
        return rest.call(method, path, body)


def _subject(name: str) -> str:
    return quote(name, safe="")


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise KlammError(f"{file}: cannot be read: {getattr(e, 'strerror', None) or e}") from None


def _body(file: str, kind: str | None, references: list[str] | None) -> dict[str, Any]:
    kind = (kind or _KINDS.get(Path(file).suffix.lower(), "AVRO")).upper()
    body: dict[str, Any] = {"schema": _read(file), "schemaType": kind}
    if references:
        body["references"] = [_reference(word) for word in references]
    return body


def _reference(word: str) -> dict[str, Any]:
    rest, _, version = word.rpartition(":")
    name, colon, subject = rest.partition(":")
    if not colon or not (version.isdecimal() or version == "latest"):
        raise ConfigError(f"--reference {word}: write NAME:SUBJECT:VERSION, a number or latest")
    return {"name": name, "subject": subject, "version": -1 if version == "latest" else int(version)}


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "AVRO", **{{"schemaType": "type"}.get(k, k): v for k, v in found.items()}}


@app.callback()
def _group() -> None:
    """Look at and change the schemas of a registry."""


@app.command("list")
def list_schemas(
    registry: Registry,
    prefix: Annotated[str, typer.Argument(help="Only subjects that begin so.", show_default=False)] = "",
    all_versions: Annotated[bool, typer.Option("--all", help="All versions, not only the newest.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Softly deleted ones, too.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the schemas of all subjects."""
    with reported():
        query = f"latestOnly={str(not all_versions).lower()}&deleted={str(deleted).lower()}"
        found = registry.call("GET", f"/schemas?subjectPrefix={_subject(prefix)}&{query}")
        print_rows(
            [_row(each) for each in found], ["subject", "version", "id", "type"], output, wide=["schema"]
        )


@app.command()
def show(
    registry: Registry,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT|ID", help="A subject, or the id of a schema.")],
    version: Annotated[str, typer.Option("--version", help="The number of a version, or latest.")] = "latest",
    text: Annotated[bool, typer.Option("--schema", help="Only the schema.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show a version of a subject, or the schema of an id."""
    with reported():
        if subject.isdecimal():
            found = {"id": int(subject), **registry.call("GET", f"/schemas/ids/{subject}")}
        else:
            found = registry.call("GET", f"/subjects/{_subject(subject)}/versions/{_subject(version)}")
        if text:
            typer.echo(found["schema"])
        else:
            columns = ["subject", "version", "id", "type", "schema"]
            print_rows([_row(found)], [c for c in columns if c in _row(found)], output)


@app.command()
def register(
    registry: Registry,
    subject: SubjectArgument,
    file: FileArgument,
    kind: KindOption = None,
    reference: ReferenceOption = None,
    normalize: NormalizeOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Register a schema.

    It becomes the next version of the subject; one that is there keeps its version.
    """
    with reported():
        body = _body(file, kind, reference)
        path = f"/subjects/{_subject(subject)}"
        query = f"?normalize={str(normalize).lower()}"
        registry.call("POST", f"{path}/versions{query}", body)
        found = registry.call("POST", f"{path}{query}", body)
        print_rows([_row(found)], ["subject", "version", "id", "type"], output)


@app.command()
def check(
    registry: Registry,
    subject: SubjectArgument,
    file: FileArgument,
    kind: KindOption = None,
    reference: ReferenceOption = None,
    version: Annotated[
        str | None,
        typer.Option("--version", help="Compare with this version alone; by default as the level says."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a schema fits a subject.

    And why not. Exit code 1: it does not.
    """
    with reported():
        path = f"/compatibility/subjects/{_subject(subject)}/versions"
        path += f"/{_subject(version)}" if version is not None else ""
        found = registry.call("POST", f"{path}?verbose=true", _body(file, kind, reference))
        fits, messages = found["is_compatible"], found.get("messages", [])
        if output.structured:
            print_record({"compatible": fits, "messages": messages}, output)
        else:
            typer.echo("compatible" if fits else "\n".join(["not compatible", *messages]))
        if not fits:
            raise typer.Exit(EXIT_FAILED)


@app.command()
def delete(
    registry: Registry,
    subject: SubjectArgument,
    version: Annotated[
        str | None, typer.Option("--version", help="Only this version (a number, or latest).")
    ] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="For good, after a soft deletion.")] = False,
) -> None:
    """Delete a subject or a version.

    Softly, so that ids go on meaning schemas, unless --permanent is given.
    """
    with reported():
        path = f"/subjects/{_subject(subject)}"
        path += f"/versions/{_subject(version)}" if version is not None else ""
        found = registry.call("DELETE", f"{path}?permanent={str(permanent).lower()}")
        numbers = found if isinstance(found, list) else [found]
        how = "deleted for good" if permanent else "deleted"
        typer.echo(f"{subject}: {how}: version {', '.join(map(str, numbers))}")


@app.command()
def compat(
    registry: Registry,
    subject: ScopeArgument = None,
    set_to: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="LEVEL",
            help="NONE, BACKWARD, FORWARD, FULL, each of the last three also with _TRANSITIVE.",
        ),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Take away its own level.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show or set the compatibility level.

    That of a subject, of a context, or of all contexts.
    """
    with reported():
        path = f"/config/{_subject(subject)}" if subject else "/config"
        if set_to is not None:
            registry.call("PUT", path, {"compatibility": set_to.upper()})
        elif reset:
            registry.call("DELETE", path)
        shown = registry.call("GET", f"{path}?defaultToGlobal=true")
        _print_setting("compatibility", shown["compatibilityLevel"], subject, output)


@app.command()
def mode(
    registry: Registry,
    subject: ScopeArgument = None,
    set_to: Annotated[
        str | None, typer.Option("--set", metavar="MODE", help="READWRITE, READONLY, IMPORT, …")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Import although there are schemas.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Take away its own mode.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show or set the mode of a subject, a context, or all contexts."""
    with reported():
        path = f"/mode/{_subject(subject)}" if subject else "/mode"
        if set_to is not None:
            registry.call("PUT", f"{path}?force={str(force).lower()}", {"mode": set_to.upper()})
        elif reset:
            registry.call("DELETE", path)
        _print_setting("mode", registry.call("GET", f"{path}?defaultToGlobal=true")["mode"], subject, output)


def _print_setting(name: str, value: str, subject: str | None, output: Output) -> None:
    if output.structured:
        print_record({"subject": subject, name: value}, output)
    else:
        typer.echo(value)
