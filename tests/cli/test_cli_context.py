"""Options that commands share are declared once, as fields of a dataclass."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from klamm.cli import rest_client
from klamm.cli.cluster import AdminCluster, Cluster
from klamm.cli.context import with_contexts
from klamm.cli.main import app
from klamm.cli.reference import walk
from klamm.cli.rest_client import Login, Worker


@dataclass(frozen=True, kw_only=True)
class Place:
    host: Annotated[str, typer.Option("--host", envvar="A_HOST")] = "here"
    secret: Annotated[str | None, typer.Option("--secret")] = field(default=None, repr=False)


def test_a_context_is_built_from_its_options():
    tool = typer.Typer()

    @tool.command()
    @with_contexts
    def show(place: Place, name: Annotated[str, typer.Argument()], count: int = 1) -> None:
        print(place, name, count)

    def said(*words: str, **env: str) -> str:
        return CliRunner().invoke(tool, words, env=env).stdout

    assert said("x") == "Place(host='here') x 1\n"
    assert said("x", "--host", "there", "--count", "2") == "Place(host='there') x 2\n"
    assert said("x", A_HOST="env") == "Place(host='env') x 1\n"
    page = said("--help")
    assert page.index("--count") < page.index("--host") < page.index("--secret")


@pytest.mark.parametrize("shown", [Login(user="a:b", token="c"), Worker(user="a:b", token="c")])
def test_no_secret_is_shown(shown):
    assert "a:b" not in repr(shown)
    assert "'c'" not in repr(shown)


def test_every_command_with_an_address_takes_the_whole_context():
    """No command takes `--url` without credentials, or a broker's address without client settings."""
    kinds = {
        "url": {"user", "token", "cacert"},
        "bootstrap": {"command_config"},
    }
    lacking = {
        (" ".join(path), option)
        for path, command in walk(typer.main.get_command(app), ("klamm",))
        for first, others in kinds.items()
        if first in (names := {p.name for p in command.params})
        for option in others - names
    }
    assert lacking == set()
    assert {"bootstrap", "command_config", "timeout"} == set(AdminCluster.__dataclass_fields__)
    assert {"bootstrap", "command_config"} == set(Cluster.__dataclass_fields__)


@pytest.mark.parametrize(
    ("url", "why", "hint"),
    [
        ("http://h:1", http.client.RemoteDisconnected("closed"), "; does it want https://?"),
        ("https://h:1", ConnectionResetError(104, "reset"), ""),
        ("https://h:1", ssl.SSLCertVerificationError(1, "self-signed"), "; --cacert names the authority that signed its certificate"),
    ],
)  # fmt: skip
def test_what_may_be_wrong_about_an_address_is_said(url, why, hint):
    assert rest_client._hint(url, why) == hint
