"""Commands of the mirror that are called with a wrong flow or pattern: pure, no cluster is asked."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from klamm.cli.mirror import app
from klamm.mirror import supervisor
from klamm_base.errors import KlammError

FILE = (
    "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\nA->B.enabled=true\n"
    "emit.heartbeats.enabled=false\n"
)


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "mm2.properties"
    found.write_text(FILE)
    return found


@pytest.mark.parametrize(
    "command",
    [
        "pause {file} A->X orders", "resume {file} A->X orders", "resolve {file} A->X", "resolve {file} A->X orders --skip",
        "verify {file} A->X", "offsets list {file} A->X", "offsets set {file} A->X --to-earliest",
        "offsets reset {file} A->X", "plan {file} --flow A->X", "promote {file} A->X orders", "cutover {file} A->X --dry-run",
        "failover {file} A->X --dry-run", "failback {file} A->X --dry-run", "flow run {file} A->X", "flow remove {file} A->X",
    ],
)  # fmt: skip
def test_a_flow_that_is_not_there_is_named(path, command):
    result = CliRunner().invoke(app, [word.format(file=path) for word in command.split()])
    assert result.exit_code == 2, (result.output, result.exception)
    assert "flow A->X" in result.output
    assert path.read_text() == FILE


@pytest.mark.parametrize(
    "command",
    ["pause {file} A->B ([", "offsets list {file} A->B --topic ([", "verify {file} A->B (["],
)
def test_a_pattern_that_is_none_is_named(path, command):
    result = CliRunner().invoke(app, [word.format(file=path) for word in command.split()])
    assert result.exit_code in {2, 3}, (result.output, result.exception)
    assert "([" in result.output or result.exit_code == 3
    assert path.read_text() == FILE


def test_a_setting_that_does_nothing_is_told_when_it_is_added(path):
    result = CliRunner().invoke(app, ["flow", "add", str(path), "A->B", "--set", "topcs=a"])
    assert result.exit_code == 0
    assert f"{path}:6: A->B.topcs" in result.output
    assert "topics" in result.output


class Taken:
    """A server whose port another process has for the first tries."""

    name = "metrics"

    def __init__(self, tries: int) -> None:
        self.tries = tries

    async def start(self) -> str:
        self.tries -= 1
        if self.tries >= 0:
            raise KlammError("cannot listen")
        return "http://here"

    async def stop(self) -> None: ...


async def test_a_second_start_waits_for_the_ports_of_the_first(monkeypatch, caplog):
    monkeypatch.setattr(supervisor, "LOOK_S", 0.0)
    monkeypatch.setattr(supervisor, "HANDOVER_S", 60.0)
    owners = iter([17, 17, None, None])  # its flows end before its servers
    assert await supervisor._serving(Taken(4), lambda: next(owners)) == "http://here"
    assert caplog.text.count("Process 17 runs this mirror already") == 1
    with pytest.raises(KlammError, match="cannot listen"):
        await supervisor._serving(Taken(1), lambda: None)
