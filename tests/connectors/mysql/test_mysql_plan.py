"""Signals and the state of snapshots on request. Pure."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.mysql import signals
from klamm_connectors.mysql.plan import Plan, Reading, statement_of
from klamm_plugins.errors import DataError

KEYS = st.none() | st.lists(
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False, allow_infinity=False),
    min_size=1,
    max_size=3,
)
READINGS = st.builds(
    Reading,
    table=st.sampled_from(["d.a", "d.b", "e.a"]),
    condition=st.none() | st.just("id > 3"),
    key=st.none() | st.just("k"),
    last=KEYS,
    up_to=KEYS,
    blocking=st.booleans(),
)


@given(st.lists(READINGS, min_size=1, max_size=4), st.booleans(), st.integers(0, 2**63 - 1))
def test_a_plan_survives_its_offset(readings, paused, taken):
    for plan in (Plan(tuple(readings), paused, taken), Plan(taken=taken)):
        assert Plan.from_text(plan.to_text()) == plan
    assert Plan().to_text() == Plan(paused=True).to_text() == ""


def test_tables_are_read_one_after_another_once_each():
    plan = (
        Plan().with_readings([Reading("d.a"), Reading("d.b")]).with_readings([Reading("d.a"), Reading("d.c")])
    )
    assert [r.table for r in plan.readings] == ["d.a", "d.b", "d.c"]
    plan, first = plan.limited(plan.next, [9])
    again = plan.with_readings([Reading("d.a")])
    assert [r.table for r in again.readings] == ["d.a", "d.b", "d.c", "d.a"], "it is under way: once more"
    plan = plan.advanced(first, [4])
    assert (plan.next.last, plan.next.up_to) == ([4], [9])
    plan = plan.advanced(plan.next, None)
    assert plan.next.table == "d.b"
    assert [r.table for r in plan.stopped({"d.b"}).readings] == ["d.c"]
    assert plan.stopped(None).readings == ()
    assert Plan(plan.readings, paused=True).next is None


def test_a_table_that_waits_is_read_for_each_condition():
    wishes = [
        Reading("d.a", "id = 1"),
        Reading("d.a", "id = 2"),
        Reading("d.a", "id = 2", "seen"),
        Reading("d.a", "id = 1"),
    ]
    plan = Plan()
    for wish in wishes:
        plan = plan.with_readings([wish])
    assert list(plan.readings) == wishes[:3]
    plan = plan.with_readings(
        [Reading(r.table, r.condition, blocking=True) for r in (*wishes, Reading("d.b"))]
    )
    rounds = []
    while plan.blocking:
        rounds.append([(r.table, r.condition) for r in plan.blocking])
        plan = plan.without_blocking()
    assert rounds == [[("d.a", "id = 1"), ("d.b", None)], [("d.a", "id = 2")]]
    assert list(plan.readings) == wishes[:3]


def test_signals_as_debezium_writes_them():
    signal = signals.parse(
        "execute-snapshot",
        '{"data-collections": ["shop.orders", "shop.c.*"], "type": "incremental", "surrogate-key": "seen",'
        ' "additional-conditions": [{"data-collection": "shop.orders", "filter": "id > 3"}]}',
    )
    assert (signal.blocking, signal.tables.key) == (False, "seen")
    assert [signal.tables.has(n) for n in ("SHOP.ORDERS", "shop.customers", "shop.x")] == [True, True, False]
    assert [signal.tables.condition(n) for n in ("shop.orders", "shop.customers")] == ["id > 3", None]
    assert signals.parse("execute-snapshot", '{"data-collections": ["a.b"], "type": "BLOCKING"}').blocking
    assert signals.parse("stop-snapshot", "") == signals.Stop(tables=signals.Tables())
    assert signals.parse("log", '{"message": "hello"}') == signals.Log("hello")


@pytest.mark.parametrize(
    ("type", "data", "words"),
    [
        ("execute-snapshot", "{}", "data-collections is missing"),
        ("execute-snapshot", '{"data-collections": "a.b"}', "is no list"),
        ("execute-snapshot", '{"data-collections": ["a(b"]}', "no regular expression|not a regular"),
        ("execute-snapshot", '{"data-collections": ["a"], "type": "quick"}', "incremental or blocking"),
        (
            "execute-snapshot",
            '{"data-collections": ["a"], "additional-condition": "b = 1"}',
            "no field of data",
        ),
        (
            "execute-snapshot",
            '{"data-collections": ["a"], "additional-conditions": [{"filter": "b = 1"}]}',
            "does not have",
        ),
        ("execute-snapshot", '{"data-collections": [7]}', "7 is no text"),
        ("execute-snapshot", '{"data-collections": ["a.b"], "surrogate-key": 7}', "surrogate-key is 7"),
        (
            "execute-snapshot",
            '{"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.c", "filter": "x"}]}',
            r"a\.c is none of data-collections \(a\.b\), so all rows would be read",
        ),
        ("log", '{"msg": "hello"}', 'data is {"message": "TEXT"}, and not msg'),
        ("execute-snapshot", "no", "no JSON"),
        ("set-binlog-position", "{}", "there is no signal"),
    ],
)
def test_signals_that_nobody_understands_are_sentences(type, data, words):
    with pytest.raises(DataError, match=words):
        signals.parse(type, data)


def test_blocking_snapshots_take_statements_and_conditions():
    assert statement_of(Reading("d.t", "SELECT * FROM d.t WHERE a = 1;")) == "SELECT * FROM d.t WHERE a = 1"
    assert statement_of(Reading("d.t", "a = 1")) == "SELECT * FROM `d`.`t` WHERE a = 1"
    assert (
        Decimal("1.50")
        == Plan.from_text(Plan((Reading("a.b", last=[Decimal("1.50")]),)).to_text()).next.last[0]
    )


@pytest.mark.parametrize(("tables", "condition"), [("a\\.b", "a.b"), ("a[.]b", "a.b"), ("a.b", "a\\.b"), ("a\\..*", "a.b"), ("a.b", "a\\.(b|c)")])  # fmt: skip
def test_a_condition_may_name_its_table_in_other_words(tables, condition):
    data = {
        "data-collections": [tables],
        "additional-conditions": [{"data-collection": condition, "filter": "x"}],
    }
    assert signals.parse("execute-snapshot", json.dumps(data)).tables.condition("a.b") == "x"
