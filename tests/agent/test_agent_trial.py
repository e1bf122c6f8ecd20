"""`klamm agent check`, `test` and `status` as they are typed; what the agent says of its host."""

from __future__ import annotations

import gzip
import ipaddress
import json
import platform
import socket

import pytest
from typer.testing import CliRunner

from klamm.cli.agent import app
from klamm_agent.config.agent import AgentConfig
from klamm_agent.host import host_fields
from klamm_agent.lanes.lane import Lane
from klamm_agent.trial import Trial, TrialError

CONFIG = """
bootstrap_servers = "h:1"
state_dir = "state"
[[inputs]]
id = "app"
paths = ["logs/*.log", "logs/*.gz"]
exclude = ["logs/debug*"]
topic = "docs"
format = "json"
dead_letter_topic = "dead"
exclude_lines = ["healthz"]
multiline = "python"
[[inputs.mask]]
preset = "email"
[[inputs.parse]]
type = "grok"
pattern = "^%{TIMESTAMP_ISO8601:timestamp} %{LOGLEVEL:log.level} %{GREEDYMULTILINE:message}"
on_error = "dead_letter"
[[inputs]]
paths = ["logs/**/*"]
topic = "rest"
"""
LOG = """2026-01-02 10:11:12.500+00:00 ERROR of me@example.org
Traceback (most recent call last):
  File "x.py", line 1, in <module>
ValueError: no
2026-01-02 10:11:13.000+00:00 INFO GET /healthz
unknown
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "agent.toml").write_text(CONFIG)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_text(LOG)
    return tmp_path


def invoke(*words, code=0, stdin=None):
    found = CliRunner().invoke(app, [str(w) for w in words], input=stdin)
    assert found.exit_code == code, found.output
    return found.output


def test_what_would_be_done_with_a_file(folder):
    found = json.loads(invoke("test", folder / "agent.toml", folder / "logs/a.log", "-o", "json"))
    record, dropped, dead = found
    assert record["input"] == "app"
    assert (record["outcome"], record["topic"], record["lines"], record["offset"]) == ("record", "docs", 4, 0)
    assert record["value"]["@timestamp"] == "2026-01-02T10:11:12.500Z"
    assert record["value"]["message"].startswith("of ***\nTraceback")
    assert [s["stage"] for s in record["stages"]] == ["lines", "mask", "parse grok", "ecs"]
    assert (dropped["outcome"], dropped["reason"]) == ("dropped", "exclude_lines")
    assert dropped["stages"] == [{"stage": "lines", "result": None}]
    assert (dead["outcome"], dead["topic"]) == ("dead_letter", "dead")
    assert dead["value"]["message"] == "unknown"


def test_what_is_shown_is_what_is_sent(folder):
    """The same block through a lane, all at once."""
    config = AgentConfig.load(folder / "agent.toml")
    path = folder / "logs/a.log"
    sent = Lane(config.inputs[0], host=host_fields(full=False), agent_id=config.agent_id).block(
        path.read_bytes(), 0, str(path), 0.0
    )
    tried = list(Trial(config, path).run(path.read_bytes(), 100))
    assert [t.value.encode() for t in tried if t.outcome == "record"] == sent.values
    times = [json.loads(v) | {"@timestamp": ""} for v in sent.dead]
    assert [json.loads(t.value) | {"@timestamp": ""} for t in tried if t.outcome == "dead_letter"] == times


def test_as_text_and_of_standard_input_and_archives(folder):
    config = folder / "agent.toml"
    shown = invoke("test", config, "-", "--input", "app", "-n", 1, stdin=LOG)
    assert "input app → topic docs, format json" in shown
    assert "event 1 at byte 0, 4 lines" in shown
    assert "  lines: unchanged" in shown
    assert '  → docs: {"@timestamp":"2026-01-02T10:11:12.500Z"' in shown
    assert "event 2" not in shown
    with gzip.open(folder / "logs/b.gz", "wt") as file:
        file.write(LOG)
    assert "  → dead (dead letter): " in invoke("test", config, folder / "logs/b.gz")
    assert "  → rest: unknown" in invoke("test", config, folder / "logs/a.log", "--input", "1", "-n", 9)


def test_messages_of_syslog_are_tried_by_line(folder):
    more = '[[inputs]]\ntype = "syslog"\nid = "net"\nlisten = ["udp://127.0.0.1:5514"]\ntopic = "sys"\nformat = "json"\n'
    (folder / "agent.toml").write_text(CONFIG + more)
    line = "<34>1 2003-10-11T22:14:15.003Z web su - ID47 - 'su root' failed\n"
    (found,) = json.loads(
        invoke("test", folder / "agent.toml", "-", "--input", "net", "-o", "json", stdin=line)
    )
    assert (found["offset"], found["topic"]) == (None, "sys")
    assert found["value"]["@timestamp"] == "2003-10-11T22:14:15.003Z"
    assert found["value"]["host"]["name"] == "web"
    assert found["value"]["message"] == "'su root' failed"


def test_who_takes_a_file(folder):
    config = AgentConfig.load(folder / "agent.toml")
    assert Trial(config, folder / "logs/a.log").name == "app"
    assert Trial(config, folder / "logs/debug.log").name == str(folder / "logs/**/*")
    with pytest.raises(TrialError, match="no input's paths name it"):
        Trial(config, folder / "other.log")
    with pytest.raises(TrialError, match="which input"):
        Trial(config, None)
    with pytest.raises(TrialError, match="no input 'x'; there are 0: app, 1: "):
        Trial(config, None, "x")
    shown = invoke("test", folder / "agent.toml", folder / "none.log", "--input", "app", code=1)
    assert "cannot be read: No such file" in shown


def test_check(folder):
    rows = json.loads(invoke("check", folder / "agent.toml", "-o", "json").split("]\n")[0] + "]")
    assert rows[0] == {
        "input": "app",
        "type": "file",
        "topic": "docs",
        "format": "json",
        "stages": ["lines", "mask", "parse grok", "ecs"],
        "files": 1,
    }
    assert rows[1]["files"] == 0
    (folder / "agent.toml").write_text(CONFIG.replace('"grok"', '"grog"'))
    assert "agent.toml:16: [inputs[0].parse[0]] type = 'grog'" in invoke(
        "check", folder / "agent.toml", code=2
    )


def test_status_of_nothing(folder):
    assert "no agent has run with it" in invoke("status", folder / "agent.toml", code=1)
    invoke("status", code=2)


def test_status_as_text(folder):
    state = folder / "state"
    state.mkdir()
    inode = (folder / "logs/a.log").stat()
    file = {"path": str(folder / "logs/a.log"), "dev": inode.st_dev, "inode": inode.st_ino, "offset": 10}
    policy = [{"path": "p", "dev": 1, "inode": 2, "from": 0, "to": 9, "reason": "exclude_lines", "lines": 3}]
    (state / "registry.json").write_text(json.dumps({"version": 1, "files": [file], "policy": policy}))
    streams = [
        {
            "input": "syslog udp:514",
            "topic": "t",
            "listen": ["udp://:514"],
            "messages": 0,
            "datagrams_dropped": 7,
        }
    ]
    (state / "status.json").write_text(
        json.dumps({"state": "running", "pid": 1, "at": 0.0, "lines": 5, "streams": streams})
    )
    (state / "gaps.jsonl").write_text('{"from": 5, "to": 9, "reason": "truncated"}\nbroken\n')
    shown = invoke("status", "--state-dir", state, code=1)
    assert "killed" in shown
    assert f"{len(LOG)}" in shown
    assert f"{len(LOG) - 10}" in shown
    assert "listen=udp://:514  datagrams_dropped=7" in shown
    assert "exclude_lines" in shown
    assert "truncated" in shown
    assert "a damaged line of the ledger" in shown


def test_the_host(folder):
    assert host_fields(full=False) == {"name": socket.gethostname()}
    full = host_fields(full=True)
    assert full["name"] == full["hostname"] == socket.gethostname()
    assert full["os"]["type"] == platform.system().lower()
    assert full["os"]["kernel"]
    for ip in full.get("ip", []):
        assert not ipaddress.ip_address(ip).is_loopback
    (folder / "agent.toml").write_text(CONFIG + "[agent]\nhost_metadata = true\n")
    (first, *_) = Trial(AgentConfig.load(folder / "agent.toml"), folder / "logs/a.log").run(LOG.encode(), 1)
    assert json.loads(first.value)["host"] == full
