"""`klamm schema` against a registry of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import new_name
from support.registry_process import RegistryProcess
from typer.testing import CliRunner

from klamm.cli.schema import app
from klamm.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def registry(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with RegistryProcess(broker.bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


def test_the_life_of_a_schema(registry: RegistryProcess, tmp_path: Path) -> None:
    subject = new_name("orders/value")
    one, two = tmp_path / "one.avsc", tmp_path / "two.avsc"
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    one.write_text(json.dumps(record))
    record["fields"] = [{"name": "a", "type": "string"}]
    two.write_text(json.dumps(record))

    def run(*words: str, code: int = 0, stdin: str = "") -> str:
        found = CliRunner().invoke(app, [*words, "--url", registry.url], input=stdin)
        assert found.exit_code == code, found.output
        return found.output

    registered = json.loads(run("register", subject, str(one), "-o", "json"))[0]
    assert (registered["subject"], registered["version"]) == (subject, 1)
    assert run("check", subject, str(one)) == "compatible\n"
    assert "TYPE_MISMATCH" in run("check", subject, str(two), code=1)
    assert "incompatible with an earlier schema" in run("register", subject, str(two), code=1)
    assert run("compat", subject) == "BACKWARD\n"
    assert run("compat", subject, "--set", "none") == "NONE\n"
    assert json.loads(run("register", subject, "-", "-o", "json", stdin=two.read_text()))[0]["version"] == 2
    assert '"string"' in run("show", subject, "--schema")
    assert '"int"' in run("show", str(registered["id"]), "--schema")
    listed = json.loads(run("list", subject, "--all", "-o", "json"))
    assert [each["version"] for each in listed] == [1, 2]
    assert run("mode", subject, "--set", "readonly") == "READONLY\n"
    assert "read-only" in run("delete", subject, code=1)
    assert run("mode", subject, "--reset") == "READWRITE\n"
    assert run("delete", subject, "--version", "2") == f"{subject}: deleted: version 2\n"
    assert run("delete", subject) == f"{subject}: deleted: version 1\n"
    assert run("delete", subject, "--permanent") == f"{subject}: deleted for good: version 1, 2\n"
    assert "not found" in run("show", subject, code=1)
    assert (
        "no answer from a schema registry"
        in CliRunner().invoke(app, ["list", "--url", "http://127.0.0.1:1"]).output
    )
