"""Any prefix of the config topic is a consistent state: only committed and complete task sets are seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.topics.config_topic import (
    ConfigState,
    Record,
    TargetState,
    connector_record,
    delete_records,
    target_state_record,
    task_records,
)

NAMES = ("a", "a-1", "b")
configs = st.dictionaries(st.sampled_from("xyz"), st.text(max_size=3), max_size=2)
changes = st.one_of(
    st.builds(lambda n, c: ("put", n, [connector_record(n, c)]), st.sampled_from(NAMES), configs),
    st.builds(
        lambda n, c: ("tasks", n, task_records(n, c)), st.sampled_from(NAMES), st.lists(configs, max_size=3)
    ),
    st.builds(lambda n: ("delete", n, delete_records(n)), st.sampled_from(NAMES)),
    st.builds(
        lambda n, s: ("target", n, [target_state_record(n, s)]),
        st.sampled_from(NAMES),
        st.sampled_from(list(TargetState)),
    ),
)
histories = st.lists(changes, max_size=12)


def _tasks_after(history: list[tuple[str, str, list[Record]]]) -> dict[str, list[bytes]]:
    """Independent model: each connector's last complete task set, from whole changes only."""
    tasks: dict[str, list[bytes]] = {}
    for kind, name, records in history:
        if kind == "tasks":
            tasks[name] = [value for _, value in records[:-1] if value is not None]
        elif kind == "delete":
            tasks.pop(name, None)
    return tasks


def _read(records: list[Record]) -> ConfigState:
    state = ConfigState()
    for key, value in records:
        state.apply(key, value)
    return state


@given(histories, st.data())
def test_topics_every_prefix_shows_whole_task_sets_only(
    history: list[tuple[str, str, list[Record]]], data: st.DataObject
) -> None:
    whole = data.draw(st.integers(0, len(history)))
    part = history[whole][2] if whole < len(history) else []
    cut = data.draw(st.integers(0, max(0, len(part) - 1)))
    state = _read([r for _, _, rs in history[:whole] for r in rs] + part[:cut])
    expected = _tasks_after(history[:whole])
    torn = history[whole] if cut else None
    for name in state.connectors:
        written = [r[1] for r in task_records(name, state.tasks(name))[:-1]]
        if torn is not None and torn[:2] == ("delete", name):
            assert written == []
        else:
            assert written == expected.get(name, [])
        assert not state.inconsistent(name)


@given(histories, st.data())
def test_topics_compaction_never_invents_tasks(
    history: list[tuple[str, str, list[Record]]], data: st.DataObject
) -> None:
    """A compacted log (latest record per key, any part of the head) gives the same tasks, or says inconsistent."""
    records = [r for _, _, rs in history for r in rs]
    head = data.draw(st.integers(0, len(records)))
    last = {key: i for i, (key, _) in enumerate(records[:head])}
    compacted = [r for i, r in enumerate(records) if i >= head or last[r[0]] == i]
    full, small = _read(records), _read(compacted)
    assert small.connectors == [n for n in small.connectors if n in full]
    assert set(small.connectors) == set(full.connectors)
    for name in full.connectors:
        assert small.config(name) == full.config(name)
        assert small.target(name) is full.target(name)
        if not small.inconsistent(name):
            assert small.tasks(name) == full.tasks(name)


@given(configs, st.lists(configs, min_size=2, max_size=3), st.integers(0, 1))
def test_topics_a_commit_without_all_its_tasks_is_inconsistent_until_the_next(
    config: dict[str, str], tasks: list[dict[str, str]], lost: int
) -> None:
    records = task_records("a", tasks)
    state = _read([connector_record("a", config), *(r for i, r in enumerate(records) if i != lost)])
    assert state.inconsistent("a")
    assert state.tasks("a") == []
    for record in records:
        state.apply(*record)
    assert not state.inconsistent("a")
    assert state.tasks("a") == tasks
