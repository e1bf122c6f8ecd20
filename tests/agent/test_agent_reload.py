"""A running agent is told to reload; its metrics, its status."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from agent.harness import KLAMM, AgentProcess, Writer, arrived
from prometheus_client.parser import text_string_to_metric_families
from support.broker import new_topic, wait_until
from support.terminal import in_terminal
from typer.testing import CliRunner

from klamm.cli.agent import app


@pytest.fixture
def agent(broker, tmp_path):
    process = AgentProcess(tmp_path, broker.bootstrap, new_topic(broker))
    process.config.write_text(process.config.read_text() + "[metrics]\nport = 0\n")
    (tmp_path / "logs").mkdir()
    yield process
    process.close()


def write(agent: AgentProcess, name: str, first: int, count: int) -> None:
    with (agent.folder / "logs" / name).open("a") as file:
        file.writelines(f"{i} line\n" for i in range(first, first + count))


def reload(agent: AgentProcess, *, fails: bool = False) -> dict:
    before = agent.status().get("reloads", 0)
    agent.process.send_signal(signal.SIGHUP)

    def done() -> dict | None:
        status = agent.status()
        good = bool(status.get("reload_error")) if fails else status.get("reloads", 0) > before
        return status if good and status.get("state") == "running" else None

    return wait_until(done, f"a reload: {agent.log[-500:]}")


def test_a_reload_keeps_positions_and_a_bad_configuration_changes_nothing(broker, agent):
    other = new_topic(broker)
    write(agent, "a.log", 0, 100)
    agent.start()
    agent.caught_up()
    good = agent.config.read_text()
    agent.config.write_text(good.replace("scan_interval_ms", "scan_intervall_ms"))
    status = reload(agent, fails=True)
    assert "scan_intervall_ms is not a setting; did you mean scan_interval_ms?" in status["reload_error"]
    write(agent, "a.log", 100, 100)
    agent.caught_up()
    agent.config.write_text(
        good.replace("[metrics]", f'[[inputs]]\npaths = ["logs/*.txt"]\ntopic = "{other}"\n[metrics]')
    )
    write(agent, "b.txt", 0, 50)
    pid = agent.process.pid
    assert reload(agent)["reload_error"] == ""
    write(agent, "a.log", 200, 100)
    agent.caught_up()
    assert agent.status()["pid"] == pid
    assert agent.stop() == 0
    topic = good.split('topic = "')[1].split('"')[0]
    assert arrived(broker.bootstrap, topic) == {str(i): 1 for i in range(300)}
    assert arrived(broker.bootstrap, other) == {str(i): 1 for i in range(50)}


def test_another_state_directory_and_a_taken_port_are_no_reload(agent):
    agent.start()
    good = agent.config.read_text()
    agent.config.write_text(good.replace('"state"', '"elsewhere"'))
    assert "state_dir cannot be changed by a reload" in reload(agent, fails=True)["reload_error"]
    agent.config.write_text(good.replace("port = 0", "port = 1\nhost = '192.0.2.1'"))
    agent.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: "cannot listen on 192.0.2.1" in agent.status()["reload_error"], "the port to be refused"
    )
    wait_until(lambda: agent.status()["state"] == "running", "the old configuration")
    assert scrape(agent)["klamm_agent_reload_failed"] == {(): 1.0}
    assert agent.stop() == 0


def scrape(agent: AgentProcess) -> dict[str, dict[tuple, float]]:
    """Returns values by sample name and labels, read by Prometheus' own parser."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{agent.status()['metrics_port']}/metrics", timeout=30
    ) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_metrics_and_status(agent):
    text = agent.config.read_text().replace("paths =", 'id = "app"\nexclude_lines = ["7"]\npaths =')
    agent.config.write_text(text.replace('"1500ms"', '"10m"'))  # the file stays open while it is asked
    write(agent, "a.log", 0, 10)
    agent.start()
    agent.caught_up()
    found = scrape(agent)
    label = (("input", "app"),)
    assert found["klamm_agent_lines_total"] == {label: 10.0}
    assert found["klamm_agent_bytes_total"] == {label: 70.0}
    assert found["klamm_agent_acked_lines_total"] == {(): 9.0}
    assert found["klamm_agent_dropped_lines_total"] == {(("reason", "exclude_lines"),): 1.0}
    assert found["klamm_agent_lag_bytes"] == {(): 0.0}
    assert found["klamm_agent_waiting"][("for", "broker"),] == 0.0
    assert found["klamm_agent_files"] == found["klamm_agent_open_files"] == {(): 1.0}
    for name in (
        "klamm_agent_gaps_total", "klamm_agent_parse_failures_total", "klamm_agent_spool_bytes",
        "klamm_agent_in_flight_bytes", "klamm_agent_last_ack_timestamp_seconds", "process_resident_memory_bytes",
        "process_cpu_seconds_total", "process_start_time_seconds", "klamm_build_info",
    ):  # fmt: skip
        assert name in found
    shown = status(agent, 0)
    assert shown["state"] == "running"
    assert shown["inputs"][0]["dropped"] == {"exclude_lines": 1}
    assert shown["tracked"][0] | {"inode": 0} == {
        "path": str(agent.folder / "logs" / "a.log"),
        "offset": 70,
        "size": 70,
        "lag_bytes": 0,
        "inode": 0,
    }
    assert shown["policy"][0]["lines"] == 1
    agent.config.write_text(agent.config.read_text().replace("[agent]", "[agent]\nidd = 1"))
    found = CliRunner().invoke(app, ["status", str(agent.config)])
    assert found.exit_code == 0
    assert "idd is not a setting" in found.stderr
    assert "running" in found.stdout
    assert agent.stop() == 0
    assert status(agent, 1)["state"] == "stopped"
    assert "Traceback" not in agent.log


def status(agent: AgentProcess, code: int) -> dict:
    found = CliRunner().invoke(app, ["status", "--state-dir", str(agent.state), "-o", "json"])
    assert found.exit_code == code, found.output
    return json.loads(found.stdout)


def test_the_agent_is_as_nice_as_it_is_told(agent):
    now = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = min(19, now + 3)
    agent.config.write_text(agent.config.read_text().replace("[agent]", f"[agent]\nnice = {wanted}"))
    agent.start()
    assert os.getpriority(os.PRIO_PROCESS, agent.process.pid) == wanted
    assert agent.stop() == 0


def test_an_agent_ends_with_the_terminal_that_it_was_started_in(agent):
    agent.process, leader = in_terminal([KLAMM, "agent", "start", str(agent.config)])
    assert agent.process.stdout.readline().startswith(b"ready agent")
    os.close(leader)  # the kernel hangs up
    assert agent._ended() == 0
    assert agent.status()["state"] == "stopped"


def test_reloads_while_files_grow_and_rotate_repeat_and_lose_nothing(broker, agent):
    writer = Writer(agent.folder / "logs" / "w.log", "w", rate=2000)
    agent.start()
    writer.start()
    good = agent.config.read_text()
    for i in range(3):
        wait_until(lambda: writer.rotations > i, "a rotation")
        agent.config.write_text(good.replace("[agent]", f"[agent]\nid = 'a{i}'"))
        reload(agent)
    writer.finish()
    agent.caught_up()
    assert agent.status()["reloads"] == 3
    assert agent.stop() == 0
    topic = good.split('topic = "')[1].split('"')[0]
    assert arrived(broker.bootstrap, topic) == dict.fromkeys(writer.ids(), 1)
    assert not (agent.state / "gaps.jsonl").exists()


def test_senders_of_syslog_stay_connected_over_a_reload(broker, agent):
    topic = new_topic(broker)
    agent.config.write_text(
        agent.config.read_text()
        + f'[[inputs]]\ntype = "syslog"\nlisten = ["tcp://127.0.0.1:0", "udp://127.0.0.1:0"]\ntopic = "{topic}"\n'
    )
    agent.start()
    sent = set()
    streams = wait_until(lambda: agent.status().get("streams"), "a status")
    by_tcp, by_udp = (("127.0.0.1", int(shown.rpartition(":")[2])) for shown in streams[0]["listen"])
    with socket.create_connection(by_tcp) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:

        def send(name: str) -> None:
            tcp.sendall(f"t-{name} over tcp\n".encode())
            udp.sendto(f"u-{name} over udp".encode(), by_udp)
            sent.update((f"t-{name}", f"u-{name}"))

        for round_ in range(3):
            before = agent.status().get("reloads", 0)
            agent.config.write_text(agent.config.read_text().replace("[agent]", f"[agent]\n# {round_}"))
            agent.process.send_signal(signal.SIGHUP)
            for i in range(1000):
                send(f"{round_}-{i}")
                if agent.status().get("reloads", 0) > before:
                    break
                time.sleep(0.005)
        wait_until(lambda: agent.status().get("acked") == agent.status().get("lines"), "acknowledgements")
        send("last")
        wait_until(lambda: arrived(broker.bootstrap, topic).keys() == sent, "all messages")
    assert agent.status()["reloads"] >= 1
    assert agent.stop() == 0
    assert arrived(broker.bootstrap, topic) == dict.fromkeys(sent, 1)


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGTERM])
def test_what_a_file_holds_that_nobody_finds_again_is_read_at_the_end(broker, agent, how):
    """The file was renamed out of the patterns, and then the agent was told to reload or to end."""
    write(agent, "a.log", 0, 100)
    agent.start()
    agent.caught_up()
    agent.process.send_signal(signal.SIGSTOP)
    write(agent, "a.log", 100, 20_000)
    (agent.folder / "logs/a.log").rename(agent.folder / "a.log.1")
    write(agent, "a.log", 20_100, 100)
    agent.process.send_signal(how)
    agent.process.send_signal(signal.SIGCONT)
    if how == signal.SIGTERM:
        assert agent._ended() == 0
        agent.start()
    agent.caught_up()
    assert agent.stop() == 0
    topic = agent.config.read_text().split('topic = "')[1].split('"')[0]
    assert arrived(broker.bootstrap, topic) == {str(i): 1 for i in range(20_200)}


NOHUP = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def test_under_nohup_a_hangup_reloads(agent):
    with (agent.folder / "agent.err").open("ab") as errors:
        agent.process = subprocess.Popen(
            [sys.executable, "-c", NOHUP, KLAMM, "agent", "start", str(agent.config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    wait_until(lambda: agent.status().get("state") == "running", "the agent")
    assert reload(agent)["reloads"] == 1
    assert agent.stop() == 0


def test_a_file_that_cannot_be_read_is_named(agent):
    write(agent, "a.log", 0, 1)
    (agent.folder / "logs/loop.log").symlink_to("loop.log")
    agent.start()
    trouble = wait_until(lambda: agent.status().get("unreadable"), f"the trouble: {agent.log}")
    assert trouble == {str(agent.folder / "logs/loop.log"): "Too many levels of symbolic links"}
    found = CliRunner().invoke(app, ["status", str(agent.config)])
    assert "Too many levels of symbolic links" in found.stdout
    assert agent.stop() == 0
