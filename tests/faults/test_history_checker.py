"""The history checker judged: a history without a fault passes, and each mutation of it is caught by its rule."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.history import (
    RULES,
    Commit,
    CommittedRead,
    Delivery,
    Flow,
    History,
    Log,
    LogRecord,
    Outcome,
    Scan,
    TopicChange,
    Transaction,
    Write,
    check,
)

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
IN, OUT, TXN, KEYED = ("in", 0), ("out", 0), ("txn", 0), ("keyed", 0)


def origin(value: bytes) -> bytes:
    return value.partition(b"|")[0]


def written(place, offset, value, *, session="p", outcome=OK, **more) -> Write:
    return Write(
        session=session, number=more.pop("number", offset), topic=place[0], partition=place[1],
        value=value, outcome=outcome, offset=offset if outcome is OK else -1, **more,
    )  # fmt: skip


def log(place, records, **more) -> Log:
    end = more.pop("end", records[-1].offset + 1 if records else 0)
    stable = more.pop("stable", end)
    return Log(topic=place[0], partition=place[1], start=more.pop("start", 0), end=end, stable=stable, records=tuple(records), **more)  # fmt: skip


def transactional(offset, value, pid=7, epoch=0, sequence=0) -> LogRecord:
    return LogRecord(offset, value, None, pid, epoch, sequence, transactional=True)


def marker(offset, kind, pid=7, epoch=0) -> LogRecord:
    return LogRecord(offset, None, None, pid, epoch, -1, transactional=True, control=kind)


def scan(place, records, *, committed=True, start=0, end=None) -> Scan:
    end = end if end is not None else records[-1][0] + 1 if records else start
    return Scan(reader="r", committed=committed, topic=place[0], partition=place[1], start=start, end=end, records=tuple(records))  # fmt: skip


def commit(offset, at, outcome=OK, group="g") -> Commit:
    return Commit(group=group, topic="in", partition=0, offset=offset, outcome=outcome, invoked=at, completed=at + 1)  # fmt: skip


def committed(offset, at, group="g") -> CommittedRead:
    return CommittedRead(group=group, topic="in", partition=0, offset=offset, invoked=at, completed=at + 1)


def good() -> History:
    """Returns a good history: five records in, consumed by a group and by a flow; transactions of every outcome; a compacted topic."""
    h = History()
    h.topics = {"in": 1, "out": 1, "txn": 1, "keyed": 1, "kept": 3}
    h.topic_changes = [
        TopicChange(topic="kept", partitions=3, created=True, outcome=OK),
        TopicChange(topic="dropped", partitions=2, created=True, outcome=OK),
        TopicChange(topic="dropped", partitions=2, created=False, outcome=OK),
        TopicChange(topic="perhaps", partitions=2, created=True, outcome=UNKNOWN),
    ]
    h.writes = [written(IN, i, b"v%d" % i, outcome=UNKNOWN if i == 3 else OK, number=i) for i in range(5)]
    h.writes.append(written(("dropped", 0), 0, b"d", session="d"))
    h.logs[IN] = log(IN, [LogRecord(i, b"v%d" % i, None, 1, 0, i) for i in range(5)])
    h.deliveries = [
        Delivery(group="g", topic="in", partition=0, offset=i, value=b"v%d" % i) for i in (0, 1, 2, 1, 2, 3)
    ]
    h.commits = [commit(2, 10), commit(3, 20, UNKNOWN), commit(4, 30)]
    h.committed_reads = [committed(2, 15), committed(2, 25), committed(4, 35), committed(5, 90, "flow")]
    # The flow: v0, v1 committed, an aborted attempt at v2, then v2 to v4.
    results = [(0, b"v0|1"), (1, b"v1|2"), (3, b"v2|3"), (5, b"v2|4"), (6, b"v3|5"), (7, b"v4|6")]
    names = {0: "t1", 1: "t1", 3: "t2", 5: "t3", 6: "t3", 7: "t3"}
    h.writes += [written(OUT, o, v, session="f", transaction=names[o], number=o) for o, v in results]
    places = {("flow", "in", 0): 2}, {("flow", "in", 0): 3}, {("flow", "in", 0): 5}
    h.transactions = [
        Transaction(name="t1", outcome=OK, invoked=50, completed=51, offsets=places[0]),
        Transaction(name="t2", outcome=FAILED, invoked=60, completed=61, offsets=places[1]),
        Transaction(name="t3", outcome=OK, invoked=70, completed=71, offsets=places[2]),
    ]
    rows = [transactional(o, v, epoch=int(names[o][1]), sequence=s) for (o, v), s in zip(results, (0, 1, 0, 0, 1, 2), strict=True)]  # fmt: skip
    rows += [marker(2, "commit", epoch=1), marker(4, "abort", epoch=2), marker(8, "commit", epoch=3)]
    h.logs[OUT] = log(OUT, sorted(rows))
    h.flows = [Flow(group="flow", source="in", sink="out", origin=origin)]
    h.scans = [
        scan(OUT, [(o, v) for o, v in results if o != 3]),
        scan(OUT, results, committed=False),
        scan(IN, [(i, b"v%d" % i) for i in range(5)]),
    ]
    # Another producer's transactions: one that may have been committed and was, one that was not.
    h.writes += [
        written(TXN, o, b"x%d" % o, session="x", transaction=t, number=o)
        for o, t in ((0, "x1"), (1, "x1"), (3, "x2"))
    ]
    h.transactions += [
        Transaction(name=n, outcome=UNKNOWN, invoked=80, completed=81) for n in ("x1", "x2", "x3")
    ]
    h.logs[TXN] = log(
        TXN,
        [transactional(0, b"x0"), transactional(1, b"x1", sequence=1), marker(2, "commit"),
         transactional(3, b"x3", sequence=2), marker(4, "abort")],
    )  # fmt: skip
    h.scans.append(scan(TXN, [(0, b"x0"), (1, b"x1")], end=5))
    # Keys a and b, compacted: a's first two values are gone, b was deleted, the tombstone too.
    keyed = [(0, b"a", b"a0"), (1, b"b", b"b0"), (2, b"a", b"a1"), (3, b"b", None), (4, b"a", b"a2")]
    h.writes += [written(KEYED, o, v, key=k, session="k", number=o) for o, k, v in keyed]
    h.logs[KEYED] = log(KEYED, [LogRecord(4, b"a2", b"a", 3, 0, 4)], compacted=True)
    return h


def test_a_history_without_a_fault_passes():
    verdict = check(good())
    assert not verdict.violations, str(verdict)
    assert verdict.examined["writes"] == 20
    assert str(verdict).startswith("no violation")


def test_an_empty_history_passes():
    assert not check(History()).violations


def swap(history: History, place, at, **changes) -> None:
    """Change a record of a log."""
    old = history.logs[place]
    records = tuple(r._replace(**changes) if r.offset == at else r for r in old.records)
    history.logs[place] = replace(old, records=records)


def cut(history: History, place, end) -> None:
    """Cuts the tail of a log."""
    old = history.logs[place]
    kept = tuple(r for r in old.records if r.offset < end)
    history.logs[place] = replace(old, records=kept, end=end, stable=end)


def drop(history: History, place, offset) -> None:
    old = history.logs[place]
    history.logs[place] = replace(old, records=tuple(r for r in old.records if r.offset != offset))


def extend(history: History, place, *records) -> None:
    old = history.logs[place]
    end = records[-1].offset + 1
    history.logs[place] = replace(old, records=old.records + records, end=end, stable=end)


def change(items: list, condition: Callable, **changes) -> None:
    for i, item in enumerate(items):
        if condition(item):
            items[i] = replace(item, **changes)


def shown(history: History, place, records, *, committed=True) -> None:
    """Replaces what the readers of a place were shown."""
    history.scans = [s for s in history.scans if s.place != place or s.committed is not committed]
    history.scans.append(scan(place, records, committed=committed, end=9))


def exchange(h: History) -> None:
    swap(h, IN, 1, value=b"v2")
    swap(h, IN, 2, value=b"v1")


def keep_uncommitted_only(h: History) -> None:
    """t3's last result is in another log, which was told abort."""
    other = ("out", 1)
    row = h.logs[OUT].records[7]
    swap(h, OUT, 7, transactional=False, producer_id=-1, sequence=-1, value=b"v9|0")
    h.logs[other] = log(other, [row._replace(offset=0), marker(1, "abort", epoch=3)])
    change(h.writes, lambda w: w.value == b"v4|6", partition=1, offset=0)


OUT_VISIBLE = [(0, b"v0|1"), (1, b"v1|2"), (5, b"v2|4"), (6, b"v3|5"), (7, b"v4|6")]
MUTATIONS: dict[str, list[tuple[str, Callable[[History], object]]]] = {
    "lost write": [
        ("the tail is gone", lambda h: cut(h, IN, 4)),
        ("another value is there", lambda h: swap(h, IN, 2, value=b"?")),
        ("the log is gone", lambda h: h.logs.pop(IN)),
        (
            "not said where, and nowhere",
            lambda h: (change(h.writes, lambda w: w.value == b"v4", offset=-1), cut(h, IN, 4)),
        ),
        (
            "a committed transaction's record whose own answer did not come",
            lambda h: (
                change(h.writes, lambda w: w.value == b"v4|6", offset=-1, outcome=UNKNOWN),
                swap(h, OUT, 7, value=b"v9|0"),
            ),
        ),
    ],
    "compacted away": [
        ("the last value of a key", lambda h: drop(h, KEYED, 4)),
        ("an older value has come back", lambda h: swap(h, KEYED, 4, offset=2, value=b"a1")),
        ("another value under its offset", lambda h: swap(h, KEYED, 4, value=b"a1")),
    ],
    "duplicate": [("written again", lambda h: extend(h, IN, LogRecord(5, b"v4", None, 1, 0, 5)))],
    "reordered": [("two have changed places", exchange)],
    "invented record": [
        ("nobody wrote it", lambda h: extend(h, IN, LogRecord(5, b"ghost", None, 1, 0, 5))),
        ("its producer was told no", lambda h: change(h.writes, lambda w: w.value == b"v3", outcome=FAILED)),
    ],
    "offset reused": [
        (
            "for another record than was read",
            lambda h: shown(h, IN, [(0, b"v0"), (1, b"was here"), (2, b"v2")]),
        ),
        ("for another than was delivered", lambda h: change(h.deliveries, lambda d: d.offset == 2, value=b"?")),
        (
            "two producers were told the same place",
            lambda h: h.writes.append(written(IN, 1, b"y", session="q")),
        ),
        ("for a marker", lambda h: shown(h, OUT, [(2, b"was here")], committed=False)),
    ],
    "sequence": [
        ("one is left out", lambda h: swap(h, IN, 4, sequence=5)),
        ("one comes again", lambda h: swap(h, IN, 4, sequence=3)),
        ("it does not begin at 0", lambda h: swap(h, OUT, 0, sequence=1)),
    ],
    "hole": [
        ("in the middle", lambda h: drop(h, IN, 3)),
        ("at the end", lambda h: h.logs.update({IN: replace(h.logs[IN], end=6, stable=6)})),
    ],
    "dirty read": [
        ("an aborted record", lambda h: shown(h, OUT, sorted([*OUT_VISIBLE, (3, b"v2|3")]))),
        (
            "an open one",
            lambda h: (
                extend(h, TXN, transactional(5, b"x5", sequence=3)),
                shown(h, TXN, [(0, b"x0"), (1, b"x1"), (5, b"x5")]),
            ),
        ),
        (
            "one that was told aborted, where the log has gone",
            lambda h: (h.logs.pop(OUT), shown(h, OUT, [(3, b"v2|3")])),
        ),
    ],
    "hidden record": [
        ("from read_committed", lambda h: shown(h, OUT, OUT_VISIBLE[:-1])),
        ("from read_uncommitted", lambda h: shown(h, OUT, [(0, b"v0|1")], committed=False)),
        ("a plain one", lambda h: shown(h, IN, [(0, b"v0"), (2, b"v2")])),
    ],
    "read backwards": [
        ("the same again", lambda h: shown(h, IN, [(0, b"v0"), (1, b"v1"), (1, b"v1"), (2, b"v2")])),
        ("another order", lambda h: shown(h, IN, [(1, b"v1"), (0, b"v0"), (2, b"v2")])),
    ],
    "partial transaction": [
        (
            "of an unknown one a record is missing",
            lambda h: h.writes.append(
                written(TXN, 9, b"x9", session="x", transaction="x1", outcome=UNKNOWN, number=9)
            ),
        ),
        ("one partition committed, the other aborted", keep_uncommitted_only),
    ],
    "contradicted transaction": [
        ("told committed, is aborted", lambda h: swap(h, OUT, 8, control="abort")),
        ("told aborted, is committed", lambda h: swap(h, OUT, 4, control="commit")),
        ("told committed, is open", lambda h: cut(h, OUT, 8)),
    ],
    "hanging transaction": [
        ("the last stable offset says so", lambda h: h.logs.update({TXN: replace(h.logs[TXN], stable=3)})),
        ("a marker is missing", lambda h: cut(h, TXN, 4)),
    ],
    "offset went back": [
        ("behind an acknowledged commit", lambda h: h.committed_reads.append(committed(2, 40))),
        ("behind what was read", lambda h: h.committed_reads.append(committed(3, 40))),
        ("to nothing", lambda h: h.committed_reads.append(committed(-1, 40))),
        ("behind a transaction's", lambda h: h.committed_reads.append(committed(2, 95, "flow"))),
    ],
    "offset made up": [
        ("nobody's", lambda h: h.committed_reads.append(committed(5, 40))),
        ("one of the future", lambda h: h.committed_reads.append(committed(4, 26))),
        ("of an aborted transaction", lambda h: h.committed_reads.append(committed(3, 65, "flow"))),
    ],
    "skipped record": [
        (
            "never given, but committed",
            lambda h: h.deliveries.pop(),
        ),
    ],
    "not exactly once": [
        ("twice", lambda h: swap(h, OUT, 4, control="commit")),
        ("not at all", lambda h: swap(h, OUT, 7, value=b"v3|9")),
        ("ahead of the group's offset", lambda h: change(h.committed_reads, lambda r: r.group == "flow", offset=3)),
        ("of nothing", lambda h: extend(h, OUT, LogRecord(9, b"ghost|1"))),
    ],
    "topic forgotten": [
        ("a created one", lambda h: h.topics.pop("kept")),
        ("a part of one", lambda h: h.topics.update(kept=2)),
        ("a part of one that may have been created", lambda h: h.topics.update(perhaps=1)),
        ("a deleted one is back", lambda h: h.topics.update(dropped=2)),
    ],
}  # fmt: skip
CASES = [(rule, what, mutate) for rule, cases in MUTATIONS.items() for what, mutate in cases]


def test_every_rule_has_a_mutation():
    assert MUTATIONS.keys() == RULES.keys()


@pytest.mark.parametrize(("rule", "what", "mutate"), CASES, ids=[f"{r}: {w}" for r, w, _ in CASES])
def test_a_broken_guarantee_is_caught_by_its_rule(rule, what, mutate):
    history = good()
    mutate(history)
    verdict = check(history)
    assert rule in {violation.rule for violation in verdict.violations}, str(verdict)
    assert rule in str(verdict)


ALLOWED: dict[str, Callable[[History], object]] = {
    "an unknown record is missing": lambda h: h.writes.append(written(IN, 9, b"v9", outcome=UNKNOWN)),
    "a producer without idempotence wrote twice": lambda h: (
        change(h.writes, lambda w: w.value == b"v4", idempotent=False),
        extend(h, IN, LogRecord(5, b"v4", None, -1, -1, -1)),
        shown(h, IN, [(i, b"v%d" % min(i, 4)) for i in range(6)]),
        h.committed_reads.__setitem__(3, committed(6, 90, "flow")),
        h.flows.clear(),
        h.committed_reads.pop(),
    ),
    "retention moved the start": lambda h: (
        h.logs.update({IN: replace(h.logs[IN], start=2, records=h.logs[IN].records[2:])}),
        h.flows.clear(),
    ),
    "a topic that may be deleted is there": lambda h: (
        h.topic_changes.append(TopicChange(topic="kept", partitions=3, created=False, outcome=UNKNOWN))
    ),
    "a topic that may be deleted is gone": lambda h: (
        h.topic_changes.append(TopicChange(topic="kept", partitions=3, created=False, outcome=UNKNOWN)),
        h.topics.pop("kept"),
    ),
    "an unknown commit was written": lambda h: h.committed_reads.insert(1, committed(3, 25)),
    "a read that overlaps a commit sees the old value": lambda h: h.committed_reads.append(
        CommittedRead(group="g", topic="in", partition=0, offset=2, invoked=21, completed=40)
    ),
    "a reader stopped early": lambda h: shown_until(h, 6),
    "a compacted log still has everything": lambda h: h.logs.update(
        {KEYED: log(KEYED, [LogRecord(0, b"a0", b"a", 3, 0, 0), LogRecord(4, b"a2", b"a", 3, 0, 4)], compacted=True)}
    ),
}  # fmt: skip


def shown_until(h: History, end: int) -> None:
    h.scans = [scan(OUT, [(o, v) for o, v in OUT_VISIBLE if o < end], end=end)]


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_allowed_passes(what):
    history = good()
    ALLOWED[what](history)
    verdict = check(history)
    assert not verdict.violations, str(verdict)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_model_broker_passes_and_losing_any_acknowledged_record_does_not(data):
    """Histories drawn at random from a model that is right by construction."""
    history, acknowledged = simulated(data)
    assert not check(history).violations, str(check(history))
    if acknowledged:
        place, offset = data.draw(st.sampled_from(acknowledged))
        broken = deepcopy(history)
        drop(broken, place, offset)
        assert {v.rule for v in check(broken).violations} & {"lost write", "hole"}


def simulated(data) -> tuple[History, list[tuple[tuple[str, int], int]]]:
    """Sessions that write to two partitions, inside and outside of transactions, each with any outcome."""
    history, rows = History(), {("t", 0): [], ("t", 1): []}
    acknowledged, open_by, numbers, tick = [], {}, {}, 0
    following: dict[tuple, int] = {}

    def end(session: str, kind: str) -> None:
        name, places = open_by.pop(session)
        for place in places:
            rows[place].append(marker(len(rows[place]), kind, pid=int(session)))
        sure = data.draw(st.booleans())
        outcome = (OK if kind == "commit" else FAILED) if sure else UNKNOWN
        history.transactions.append(Transaction(name=name, outcome=outcome, invoked=tick, completed=tick))

    for tick in range(data.draw(st.integers(0, 40))):
        session = data.draw(st.sampled_from("123"))
        act = data.draw(st.sampled_from(("write", "write", "write", "begin", "commit", "abort")))
        if act == "begin" and session not in open_by:
            open_by[session] = f"{session}-{tick}", set()
        elif act in ("commit", "abort") and session in open_by:
            end(session, act)
        elif act == "write":
            place = ("t", data.draw(st.integers(0, 1)))
            number = numbers[session] = numbers.get(session, -1) + 1
            known = data.draw(st.booleans())
            stored = known or data.draw(st.booleans()) or session in open_by
            name = open_by[session][0] if session in open_by else None
            value = f"{session}:{number}".encode()
            offset = len(rows[place])
            history.writes.append(
                written(
                    place,
                    offset,
                    value,
                    session=session,
                    number=number,
                    outcome=OK if known else UNKNOWN,
                    transaction=name,
                )
            )
            if stored:
                sequence = following.get((session, place), 0)
                following[session, place] = sequence + 1
                record = LogRecord(
                    offset, value, None, int(session), 0, sequence, transactional=name is not None
                )
                rows[place].append(record)
                if name is not None:
                    open_by[session][1].add(place)
                if known:
                    acknowledged.append((place, offset))
    for session in list(open_by):
        end(session, "abort")
    history.logs = {place: log(place, records) for place, records in rows.items()}
    return history, acknowledged
