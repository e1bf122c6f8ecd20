"""The lag server beside a broker: a real consumer that stalls, goes back and stops; what is told of it, and to whom."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.broker import wait_until
from support.klamm import Server, klamm
from support.mail import MailServer
from support.webhook import Webhook

from klamm.testing import EmbeddedBroker

SETTINGS = {
    "listeners": "http://127.0.0.1:0", "storage.intervals": "4", "storage.min-distance": "0",
    "evaluator.minimum-stop": "1", "cluster.local.offset-refresh": "0.2", "cluster.local.topic-refresh": "0.5",
}  # fmt: skip


@contextmanager
def lag_server(folder: Path, bootstrap: str, **more: str) -> Iterator[Server]:
    """Runs a server with its history in `folder`."""
    props = (
        SETTINGS | {"cluster.local.bootstrap.servers": bootstrap, "history.dir": str(folder / "lag")} | more
    )
    file = folder / "lag.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in props.items()))
    with Server("lag", "start", str(file)) as server:
        yield server


def get(server: Server, path: str) -> Any:
    """Returns the JSON of an answer, an error's too."""
    try:
        with urllib.request.urlopen(server.ready["lag"] + path, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        return json.load(e)


def status(server: Server, group: str) -> Any:
    return get(server, f"/v3/kafka/local/consumer/{group}/lag")["status"]


class Reader:
    """A consumer of one partition that commits what it is told."""

    def __init__(self, bootstrap: str, group: str, topic: str = "t") -> None:
        self._tp = (topic, 0)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 2}
        )

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(*self._tp, offset)], asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def fill(bootstrap: str, count: int, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for n in range(count):
        producer.produce(topic, str(n).encode(), partition=0)
    assert producer.flush(60) == 0


def becomes(server: Server, group: str, wanted: str, step: Any = lambda: None) -> Any:
    """Waits until the first partition of a group has a status, and returns the group's."""

    def is_so() -> bool:
        step()
        found = status(server, group)
        return bool(found["partitions"]) and found["partitions"][0]["status"] == wanted

    wait_until(is_so, f"{group} {wanted}")
    return status(server, group)


@pytest.mark.usefixtures("processes")
def test_a_consumer_stalls_goes_back_and_stops_and_each_is_told_once(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "b", config={"num.partitions": "1"}) as broker,
        Webhook() as hook,
        MailServer() as mail,
    ):
        fill(broker.bootstrap, 100)
        reader = Reader(broker.bootstrap, "g")
        notifiers = {
            "notifier.hook.class-name": "http", "notifier.hook.url-open": f"{hook.url}/open",
            "notifier.hook.url-close": f"{hook.url}/close", "notifier.hook.method-close": "DELETE",
            "notifier.hook.extras.team": "red", "notifier.hook.threshold": "3",
            "notifier.mail.class-name": "email", "notifier.mail.server": "127.0.0.1", "notifier.mail.threshold": "3",
            "notifier.mail.port": str(mail.port), "notifier.mail.from": "lag@example.org", "notifier.mail.to": "ops@example.org",
            "notifier.shell.class-name": "command", "notifier.shell.group-denylist": "^other",
            "notifier.shell.command-open": f"echo $KLAMM_LAG_EVENT $KLAMM_LAG_GROUP >> {tmp_path}/said", "notifier.shell.threshold": "3",
        }  # fmt: skip
        with lag_server(tmp_path, broker.bootstrap, **notifiers) as server:
            for offset in (10, 20, 30, 40):
                reader.commit(offset)
            moving = becomes(server, "g", "OK")
            assert moving["status"] == "OK"
            assert hook.got == []
            stalled = becomes(server, "g", "STALL", lambda: reader.commit(60))
            assert (stalled["status"], stalled["totallag"], stalled["complete"]) == ("ERR", 40, 1.0)
            assert stalled["maxlag"]["current_lag"] == 40
            assert 0 < stalled["time_lag_ms"] < 120_000
            wait_until(
                lambda: mail.letters and hook.got and (tmp_path / "said").exists(), "the beginning to be told"
            )
            reader.commit(20)
            becomes(server, "g", "REWIND")
            becomes(server, "g", "STOP")
            ended = becomes(server, "g", "OK", lambda: reader.commit(100))
            assert ended["totallag"] == 0
            wait_until(
                lambda: (
                    len(mail.letters) == 2
                    and len(hook.got) == 2
                    and (tmp_path / "said").read_text().count("\n") == 2
                ),
                "the end to be told",
            )
            module = get(server, "/v3/config/notifier/hook")["module"]
            assert (module["url-open"], module["extra-ca"]) == (f"{hook.url}/…", ""), (
                "its path may be a secret"
            )
            module = get(server, "/v3/config/notifier/shell")["module"]
            assert (module["command-open"], module["command-close"]) == ("echo …", ""), "so may its words"
            assert get(server, "/v3/config/cluster/local")["module"]["servers"] == [broker.bootstrap]
            assert get(server, "/v3/kafka/none/consumer")["message"] == "cluster not found"
            assert get(server, "/openapi.json")["paths"]["/v3/kafka/{cluster}/consumer/{consumer}/lag"]["get"]
            forgotten = f"{server.ready['lag']}/v3/kafka/local/consumer/g"
            urllib.request.urlopen(urllib.request.Request(forgotten, method="DELETE"), timeout=30).close()
            assert get(server, "/v3/kafka/local/consumer/g")["error"]
        reader.close()
    (begun, ended) = hook.got
    assert begun[:2] == ("POST", "/open")
    assert ended[:2] == ("DELETE", "/close")
    assert (begun[2]["event"], ended[2]["event"], begun[2]["id"]) == ("open", "close", ended[2]["id"])
    assert begun[2]["result"]["partitions"][0]["status"] == "STALL"
    assert begun[2]["extras"] == {"team": "red"}
    assert [letter["Subject"] for letter in mail.letters] == [
        "[ERR] lag of g (local)",
        "[OK again] lag of g (local)",
    ]
    assert "t-0  STALL  lag 40" in mail.letters[0].get_payload()
    assert (tmp_path / "said").read_text() == "open g\nclose g\n"


@pytest.mark.usefixtures("processes")
def test_a_killed_server_goes_on_with_its_windows_and_tells_nothing_twice(tmp_path):
    with EmbeddedBroker(tmp_path / "b", config={"num.partitions": "1"}) as broker, Webhook() as hook:
        fill(broker.bootstrap, 100)
        reader = Reader(broker.bootstrap, "g")
        more = {"notifier.hook.class-name": "http", "notifier.hook.url-open": hook.url}
        hook.status = 503
        with lag_server(tmp_path, broker.bootstrap, **more) as server:
            for _ in range(4):
                reader.commit(50)
            becomes(server, "g", "STALL")
            wait_until(lambda: hook.tried, "an attempt")
            server.process.send_signal(signal.SIGKILL)
        assert hook.got == []
        hook.status = 200
        hook.pause_s = 1  # the stop comes before the answer
        with lag_server(tmp_path, broker.bootstrap, **more) as server:
            wait_until(lambda: hook.got, "what the killed server could not tell")
            assert server.stop() == 0
        with lag_server(tmp_path, broker.bootstrap, **more) as server:
            known = becomes(server, "g", "STOP")
            assert known["complete"] == 1.0
            assert known["partitions"][0]["start"]["offset"] == 50
            becomes(server, "g", "OK", lambda: reader.commit(100))
            wait_until(lambda: len(hook.got) == 2, "the end")
            shown = klamm("lag", "history", "g", "--url", server.ready["lag"], "-o", "json")
            rows = json.loads(shown.stdout)
            assert "ERR" in {row["status"] for row in rows}, shown.stderr
            unknown = klamm("lag", "history", "nosuch", "--url", server.ready["lag"])
            assert (unknown.returncode, "nothing of group 'nosuch' in the last 24 h" in unknown.stderr) == (
                1,
                True,
            )
        reader.close()
    assert [body["event"] for body in hook.of("g")] == ["open", "close"]


@pytest.mark.usefixtures("processes")
def test_sighup_takes_other_notifiers_and_they_send_what_waits(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "b", config={"num.partitions": "1"}) as broker,
        Webhook() as old, Webhook() as gone, Webhook() as new, Webhook() as later,
    ):  # fmt: skip
        fill(broker.bootstrap, 100)
        reader = Reader(broker.bootstrap, "g")
        old.status = 503
        first = {
            name: {"class-name": "http", "url-open": hook.url} for name, hook in (("a", old), ("b", gone))
        }
        other = {
            name: {"class-name": "http", "url-open": hook.url} for name, hook in (("a", new), ("c", later))
        }

        def words(notifiers: dict[str, dict[str, str]]) -> dict[str, str]:
            return {
                f"notifier.{n}.{key}": value for n, keys in notifiers.items() for key, value in keys.items()
            }

        with lag_server(tmp_path, broker.bootstrap, **words(first)) as server:

            def reload(**more: str) -> None:
                lines = (tmp_path / "lag.properties").read_text().splitlines(keepends=True)
                kept = [line for line in lines if not line.startswith("notifier.")]
                kept += [f"{key}={value}\n" for key, value in more.items()]
                (tmp_path / "lag.properties").write_text("".join(kept))
                server.process.send_signal(signal.SIGHUP)

            for _ in range(4):
                reader.commit(50)
            becomes(server, "g", "STALL")
            wait_until(lambda: old.tried and gone.got, "attempts")
            reload(**words({"a": {"class-name": "http"}}))
            wait_until(lambda: "notifiers stay as they were" in "".join(server.errors), "the mistake")
            reload(**words(other), **{"notifier.c.treshold": "2"})
            said = "notifier.c.treshold has no effect here"
            wait_until(lambda: said in "".join(server.errors), "a word of the key that nobody knows")
            wait_until(lambda: new.got and later.got, "what waited, and what goes on")
            assert get(server, "/v3/config/notifier/a")["module"]["url-open"] == f"{new.url}/…"
            assert get(server, "/v3/config/notifier/b")["error"]
            becomes(server, "g", "OK", lambda: reader.commit(100))
            wait_until(lambda: len(new.got) == len(later.got) == 2, "the end")
        reader.close()
    assert ([body["event"] for body in new.of("g")], old.got, len(gone.got)) == (["open", "close"], [], 1)


@pytest.mark.usefixtures("processes")
def test_a_marker_of_a_transaction_is_no_lag(tmp_path):
    """librdkafka's consumer commits the place of the marker that ends the transaction it has read."""
    with EmbeddedBroker(tmp_path / "b", config={"num.partitions": "1"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 2})
        producer.init_transactions(30)

        def write() -> None:
            producer.begin_transaction()
            producer.produce("t", b"x", partition=0)
            producer.commit_transaction(30)

        write()
        reader = Reader(broker.bootstrap, "g")
        with lag_server(tmp_path, broker.bootstrap) as server:
            for end in (1, 3, 5):
                reader.commit(end)
                write()
                time.sleep(0.5)
            reader.commit(7)
            time.sleep(2.5)
            found = becomes(server, "g", "OK")
            assert (found["status"], found["totallag"], found["time_lag_ms"]) == ("OK", 0, 0)
            write()
            wait_until(lambda: status(server, "g")["totallag"] == 2, "a record that is to be read")
        shown = klamm("lag", "status", "g", "-b", broker.bootstrap, "-o", "json")
        assert json.loads(shown.stdout)[0]["lag"] == 2
        reader.close()


@pytest.mark.usefixtures("processes")
def test_one_look_without_a_server(tmp_path):
    with EmbeddedBroker(tmp_path / "b", config={"num.partitions": "1"}) as broker:
        fill(broker.bootstrap, 100)
        for group, offset in (("behind", 40), ("done", 100)):
            reader = Reader(broker.bootstrap, group)
            reader.commit(offset)
            reader.close()
        shown = klamm("lag", "status", "-b", broker.bootstrap, "-o", "json")
        rows = {row["group"]: row for row in json.loads(shown.stdout)}
        assert (rows["behind"]["lag"], rows["done"]["lag"], rows["done"]["status"]) == (60, 0, "OK")
        assert rows["behind"]["time_lag_s"] < 120
        of_group = klamm("lag", "status", "behind", "-b", broker.bootstrap)
        assert of_group.stdout.split("\n")[1].split()[:2] == ["t", "0"]
        nobody = klamm("lag", "status", "nobody", "-b", broker.bootstrap)
        assert (nobody.returncode, nobody.stderr) == (1, "klamm: group 'nobody' has committed nothing\n")
