"""Incidents and their notices; the memory of a restart."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mail import MailServer

from klamm.admin.model import TopicPartition
from klamm.lag import sending
from klamm.lag.history import SILENT_MS, History
from klamm.lag.incidents import Incidents, Notice, NotifierRules
from klamm.lag.model import Commit, GroupStatus, Owner, PartitionStatus, Status
from klamm.lag.settings import parse
from klamm.lag.state import ClusterState, Judging
from klamm.lag.texts import filled, json_body, letter, values_of
from klamm_base.errors import KlammError
from klamm_base.properties import Properties

TP = TopicPartition('t"x', 0)


def group(status: Status, lag: int = 5, name: str = "g") -> GroupStatus:
    partition = PartitionStatus(
        partition=TP, owner=Owner("h", "c"), status=status, start=None, end=None, lag=lag, complete=1.0, time_lag_ms=7
    )  # fmt: skip
    return GroupStatus(
        cluster="c", group=name, kind="consumer", status=min(status, Status.ERR), complete=1.0,
        partitions=(partition,), total_lag=lag,
    )  # fmt: skip


def rules(name: str = "n", **more: object) -> NotifierRules:
    settings = {"threshold": 2, "send_interval_ms": 0, "send_close": True, "wants": lambda _: True} | more
    return NotifierRules(name=name, **settings)


STEPS = st.lists(st.sampled_from([Status.OK, Status.WARN, Status.ERR]), max_size=30)


@given(STEPS, st.integers(2, 3), st.sampled_from([0, 2]))
def test_every_beginning_that_is_told_has_one_end(steps, threshold, interval):
    incidents = Incidents([rules(threshold=threshold, send_interval_ms=interval)])
    told = []
    for now, status in enumerate([*steps, Status.OK]):
        told += [(n.incident, n.opened) for n in incidents.seen(group(status), now)]
    ids = list(dict.fromkeys(i for i, _ in told))
    for each in ids:
        events = [opened for i, opened in told if i == each]
        assert events[0]
        assert events.count(False) == 1
        assert not events[-1]
        if interval == 0:
            assert events == [True, False]
    assert not incidents.open


def test_repeats_thresholds_and_lists():
    incidents = Incidents(
        [
            rules("often", send_interval_ms=10), rules("once"), rules("errors", threshold=3, send_close=False),
            rules("others", wants=lambda name: name != "g"),
        ]
    )  # fmt: skip
    said = [[n.notifier for n in incidents.seen(group(s), now)] for now, s in ((0, Status.WARN), (5, Status.WARN), (10, Status.WARN), (15, Status.STOP))]  # fmt: skip
    assert said == [["often", "once"], [], ["often"], ["errors"]]
    assert sorted(n.notifier for n in incidents.gone("c", "g")) == ["often", "once"]


def test_other_notifiers_hear_of_what_is_open_and_those_that_are_gone_keep_nothing_open():
    incidents = Incidents([rules("a"), rules("b")])
    for notice in incidents.seen(group(Status.ERR), 0):
        incidents.sent(notice)
    for notice in incidents.seen(group(Status.ERR, name="h"), 0):
        incidents.sent(notice)
    assert [n.notifier for n in incidents.seen(group(Status.OK, name="h"), 1)] == ["a", "b"]
    incidents.change([rules("c"), rules("b")])
    assert [n.notifier for n in incidents.seen(group(Status.ERR), 2)] == ["c"]
    closed = incidents.seen(group(Status.OK), 3)
    assert [n.notifier for n in closed] == ["c", "b"]
    incidents.change([])
    assert not incidents.kept


def test_a_restart_knows_what_was_sent_and_what_was_not(tmp_path):
    incidents = Incidents([rules("a"), rules("b")])
    a, _b = incidents.seen(group(Status.ERR), 0)
    incidents.sent(a)
    history = History(tmp_path, retention_ms=1000, rows_max=1000)
    history.save_incidents(incidents.kept)
    again = Incidents([rules("a"), rules("b")])
    again.open = history.incidents()
    assert [n.notifier for n in again.seen(group(Status.ERR), 5)] == ["b"]
    ended = again.seen(group(Status.OK), 6)
    assert {n.incident for n in ended} == {a.incident}
    again.sent(ended[0])
    history.save_incidents(again.kept)
    third = Incidents([rules("a"), rules("b")])
    third.open = history.incidents()
    assert [n.notifier for n in third.seen(group(Status.OK), 7)] == [], "b has never sent the beginning"
    history.close()


class Slow:
    """A sender that fails as long as it is told to."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []
        self.failing = True

    async def send(self, notice: Notice) -> None:
        await asyncio.sleep(0)
        if self.failing:
            raise sending.NotSent("nobody is there")
        self.sent.append(notice)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("ended_first", [False, True])
async def test_what_cannot_be_sent_waits(monkeypatch, ended_first):
    monkeypatch.setattr(sending, "FIRST_S", 0.001)
    monkeypatch.setattr(sending, "LONGEST_S", 0.002)
    settings = parse(
        Properties({"notifier.n.class-name": "command", "notifier.n.command-open": "x"})
    ).notifiers[0]
    done: list[Notice] = []
    notifier = sending.Notifier(settings, done.append)
    notifier._sender = slow = Slow()
    incidents = Incidents([settings.rules])
    running = asyncio.create_task(notifier.run())
    (begun,) = incidents.seen(group(Status.ERR), 0)
    notifier.put(begun)
    await settle()
    assert notifier.counts["open", "failed"] >= 1
    if ended_first:
        notifier.put(*incidents.seen(group(Status.OK), 1))
        await settle()
        slow.failing = False
        await settle()
        assert slow.sent == [], "what never began has no end"
    else:
        slow.failing = False
        await settle()
        notifier.put(*incidents.seen(group(Status.OK), 1))
        await settle()
        assert [n.opened for n in slow.sent] == [True, False]
    assert [n.opened for n in done][-1:] == [False]
    running.cancel()


@pytest.mark.parametrize("answer", ["taken", "refused", "none"])
async def test_a_notice_that_is_on_its_way_at_a_stop_is_waited_for(monkeypatch, answer):
    """Its receiver may have it already: without its answer it would be told again after a restart."""
    monkeypatch.setattr(sending, "END_S", 0.2 if answer == "none" else 20)
    settings = parse(
        Properties({"notifier.n.class-name": "command", "notifier.n.command-open": "x"})
    ).notifiers[0]
    asked, answered = asyncio.Event(), asyncio.Event()

    class Waiting:
        async def send(self, notice: Notice) -> None:
            asked.set()
            await answered.wait()
            if answer == "refused":
                raise sending.NotSent("503")

    done: list[Notice] = []
    notifier = sending.Notifier(settings, done.append)
    notifier._sender = Waiting()
    running = asyncio.create_task(notifier.run())
    (begun,) = Incidents([settings.rules]).seen(group(Status.ERR), 0)
    notifier.put(begun)
    await asked.wait()
    running.cancel()
    await settle()
    if answer != "none":
        answered.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert done == ([begun] if answer == "taken" else [])
    assert notifier.counts["open", "sent"] == len(done)


async def test_a_notice_that_is_never_taken_keeps_no_other_waiting(monkeypatch):
    monkeypatch.setattr(sending, "FIRST_S", 0.001)
    monkeypatch.setattr(sending, "LONGEST_S", 0.002)
    settings = parse(
        Properties({"notifier.n.class-name": "command", "notifier.n.command-open": "x"})
    ).notifiers[0]
    taken: list[str] = []

    class Picky:
        async def send(self, notice: Notice) -> None:
            await asyncio.sleep(0)
            if notice.status.group == "bad":
                raise sending.NotSent("400")
            taken.append(notice.status.group)

    notifier = sending.Notifier(settings, lambda _: None)
    notifier._sender = Picky()
    incidents = Incidents([settings.rules])
    running = asyncio.create_task(notifier.run())
    for name in ("bad", "a", "b"):
        notifier.put(*incidents.seen(group(Status.ERR, name=name), 0))
    await settle()
    assert taken == ["a", "b"]
    assert notifier.counts["open", "failed"] > 1, "it is tried again"
    running.cancel()


@pytest.mark.usefixtures("processes")
async def test_a_groups_name_may_be_anything(tmp_path):
    said = tmp_path / "said"
    with MailServer() as mail:
        props = {
            "notifier.m.class-name": "email", "notifier.m.server": "127.0.0.1", "notifier.m.port": str(mail.port),
            "notifier.m.from": "lag@example.org", "notifier.m.to": "ops@example.org", "notifier.s.class-name": "command",
            "notifier.s.command-open": f'printf %s "$KLAMM_LAG_GROUP" > {said}',
        }  # fmt: skip
        for settings in parse(Properties(props)).notifiers:
            incidents = Incidents([settings.rules])
            (notice,) = incidents.seen(group(Status.ERR, name="a\nBcc: x@example.org\0"), 0)
            await sending._sender(settings).send(notice)
    assert mail.letters[0]["Subject"] == "[ERR] lag of a Bcc: x@example.org  (c)"
    assert mail.letters[0]["Bcc"] is None
    assert said.read_text() == "a\nBcc: x@example.org "


def test_what_could_not_be_kept_is_kept_later(tmp_path):
    history = History(tmp_path, retention_ms=1000, rows_max=1000)
    state = ClusterState("c", Judging())
    state.look(TP, 10, 0)
    state.commit("g", TP, 7, at_ms=0, order=0, now_ms=0)
    with closing(sqlite3.connect(tmp_path / "lag.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(KlammError, match="locked"):
            history.save([(state, {})], [group(Status.OK)], 5)
    history.save([(state, {})], [group(Status.OK)], 6)
    again = ClusterState("c", Judging())
    history.restore(again)
    assert [c.offset for c in again.window("g", TP)] == [7]
    assert [row["at"] for row in history.course("c", "g", 0, 9)] == [6]
    history._db.execute("UPDATE windows SET commits='[['")
    with pytest.raises(KlammError, match=r"lag\.sqlite cannot be read.*move it away"):
        history.restore(again)
    history.close()


async def test_errors_name_no_secret_of_a_webhook():
    url = "http://user:word@127.0.0.1:1/services/T0/secret"
    props = {
        "notifier.n.class-name": "http",
        "notifier.n.url-open": url,
        "notifier.n.authorization": "Bearer b",
    }
    settings = parse(Properties(props)).notifiers[0]
    (notice,) = Incidents([settings.rules]).seen(group(Status.ERR), 0)
    with pytest.raises(sending.NotSent, match=r"^POST http://127\.0\.0\.1:1/…: ") as failed:
        await sending._sender(settings).send(notice)
    assert not {"word", "secret", "Bearer"} & set(re.split(r"\W", str(failed.value)))


@pytest.mark.usefixtures("processes")
async def test_errors_name_no_secret_of_a_command():
    props = {"notifier.n.class-name": "command", "notifier.n.command-open": "false --token secret"}
    settings = parse(Properties(props)).notifiers[0]
    (notice,) = Incidents([settings.rules]).seen(group(Status.ERR), 0)
    with pytest.raises(sending.NotSent, match=r"^the command ended with 1: false …: $"):
        await sending._sender(settings).send(notice)


def test_texts():
    (notice,) = Incidents([rules()]).seen(group(Status.STOP, name='a"b'), 1_795_537_117_089)
    body = json.loads(json_body(notice, {"k": "v"}))
    assert (body["event"], body["group"], body["start"], body["extras"]) == (
        "open",
        'a"b',
        "2026-11-24T16:18:37Z",
        {"k": "v"},
    )
    assert body["result"]["maxlag"]["owner"] == "h"
    values = values_of(notice, {"the-key": "x\ny"})
    text = '{"g": "${group}", "k": "${extras_the_key}", "r": ${result}, "d": "$$"}'
    assert json.loads(filled(text, values, as_json=True)) == {
        "g": 'a"b', "k": "x\ny", "r": notice.status.shown(every=False), "d": "$",
    }  # fmt: skip
    assert filled("${group}", values, as_json=False) == 'a"b'
    subject, said = letter(notice)
    assert subject == '[ERR] lag of a"b (c)'
    assert 't"x-0  STOP  lag 5' in said


def test_history_is_bounded_and_says_only_what_changed(tmp_path):
    history = History(tmp_path, retention_ms=10 * SILENT_MS, rows_max=1000)
    state = ClusterState("c", Judging(intervals=3))
    place = TopicPartition("t", 1)
    state.restore("g", "connect", place, [Commit(5, 1000, 1001, None, 1), Commit(6, 2000, 2001, 4, 2)])
    state.look(place, 10, 3000)
    state.changed.add(("g", place))
    for now in (0, 1, SILENT_MS):
        history.save([(state, {"src": {place: 7}})], [group(Status.OK)], now)
    history.save([], [group(Status.ERR, 9)], SILENT_MS + 1)
    rows = history.course("c", "g", 0, 10)
    assert [(r["at"], r["status"], r["totallag"]) for r in rows] == [
        (0, "OK", 5), (SILENT_MS, "OK", 5), (SILENT_MS + 1, "ERR", 9),
    ]  # fmt: skip
    assert history.course("c", None, 1, 1) == rows[-1:]
    again = ClusterState("c", Judging(intervals=3))
    assert history.restore(again) == {"src": {place: 7}}
    assert (again.kind("g"), again.window("g", place)) == ("connect", state.window("g", place))
    assert again.ends[place].points == [(3000, 10)]
    state.forget("g")
    history.save([(state, {})], [], 20 * SILENT_MS)
    assert history.course("c", None, 0, 10) == []
    last = ClusterState("c", Judging())
    assert history.restore(last) == {}
    assert last.groups() == []
    history.close()
    (tmp_path / "no").write_text("")
    with pytest.raises(KlammError, match=r"history\.dir"):
        History(tmp_path / "no", retention_ms=1, rows_max=1)
