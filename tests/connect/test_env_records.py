"""Plugin packages in the config topic: records and what they come to."""

import dataclasses
import hashlib
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.plugins.group import GroupPackages
from klamm.connect.plugins.records import (
    PART_BYTES,
    PLUGINS,
    PluginRecords,
    decoded_wheel,
    package_record,
    removal_record,
    wheel_records,
)
from klamm.environments.errors import BadRequirement
from klamm.environments.lock import Lock, LockedPackage, make_lock, merged
from klamm.environments.store import Record, Store

WHEEL = b"wheel" * 300_000
DIGEST = hashlib.sha256(WHEEL).hexdigest()


def package(name="acme", version="1.0", digest=DIGEST):
    packages = (
        LockedPackage(name=name, version=version, hashes=(digest,), file=f"{name}.whl"),
        LockedPackage(name="lib", version="2", hashes=("a" * 64, "b" * 64)),
    )
    lock = make_lock([name], packages)
    return Record(name=name, version=version, request=name, lock=lock, installed_ms=1, group="g")


def test_a_package_and_its_wheel_come_back_from_the_records():
    state, wheels = PluginRecords(), []
    records = [*wheel_records("acme.whl", WHEEL), package_record(package())]
    assert len(records) == 4  # 1.5 MB in three parts
    for key, value in records:
        assert key.startswith(PLUGINS)
        assert len(value) < 1_000_000
        if (wheel := state.apply(key, value)) is not None:
            wheels.append(wheel)
    assert [tuple(w) for w in wheels] == [("acme.whl", WHEEL)]
    assert list(state.packages.values()) == [package()]


def test_parts_may_come_again_and_in_any_order_as_after_compaction():
    state = PluginRecords()
    records = list(wheel_records("acme.whl", WHEEL))
    found = [state.apply(*r) for r in (records[2], records[0], records[0], records[1])]
    assert [f is not None for f in found] == [False, False, False, True]


def test_a_removed_package_takes_the_wheels_with_it_that_nobody_else_needs():
    state = PluginRecords()
    mine, other = package(), package("other")
    for record in [*wheel_records("acme.whl", WHEEL), package_record(mine), package_record(other)]:
        state.apply(*record)
    assert state.orphans(mine) == []
    state.apply(*removal_record(other))
    gone = state.orphans(mine)
    assert [value for _, value in gone] == [None] * 3
    for record in [removal_record(mine), *gone]:
        state.apply(*record)
    assert (state.packages, state.parts) == ({}, {})


BAD = [
    (f"{PLUGINS}package-x-1", b"no json"),
    (f"{PLUGINS}package-x-1", b'{"name": "x"}'),
    (f"{PLUGINS}wheel-abc-0", b'{"file": "x", "parts": 1, "data": "!!"}'),
    (f"{PLUGINS}wheel-abc-0", b'{"file": "x", "parts": 1, "data": "YQ=="}'),  # not what its hash says
    (f"{PLUGINS}wheel-abc-0", b'{"file": "x", "parts": 1000000, "data": ""}'),
    (f"{PLUGINS}wheel-abc-x", b'{"file": "x", "parts": 1, "data": ""}'),
    (f"{PLUGINS}later-thing", b"{}"),
    (f"{PLUGINS}package-x-1", b"[1]"),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_record_that_is_not_understood_is_told_and_left(key, value, caplog):
    state = PluginRecords()
    assert state.apply(key, value) is None
    assert state.packages == {}
    assert key in caplog.text


@given(st.binary(max_size=3 * PART_BYTES // 1000), st.sampled_from(["a.whl", "b-1.whl"]))
def test_any_wheel(data, file):
    state = PluginRecords()
    found = [state.apply(*record) for record in wheel_records(file, data)]
    assert [f for f in found if f] == ([] if not data else [(file, data)])


def test_uploads():
    assert decoded_wheel("YQ==") == b"a"
    with pytest.raises(ValueError, match="not base64"):
        decoded_wheel("??")


LOCKED = st.builds(
    LockedPackage,
    name=st.sampled_from("abc"),
    version=st.sampled_from(["1", "2"]),
    hashes=st.just(("0" * 64,)),
)


@given(st.lists(st.lists(LOCKED, unique_by=lambda p: p.name), max_size=4))
def test_locks_merge_where_no_package_has_two_versions(sets):
    locks = [Lock(roots=(f"r{i}",), packages=tuple(packages)) for i, packages in enumerate(sets)]
    union = merged(locks)
    every = {p for packages in sets for p in packages}
    if len({p.name for p in every}) == len(every):
        assert set(union.packages) == every
        assert Lock.from_json(union.to_json()) == union
    else:
        assert union is None


BAD_PARTS = [
    {"name": "../../etc/cron"},
    {"name": "acme\n--index-url=http://elsewhere"},
    {"name": "Acme"},
    {"version": "1/../../x"},
    {"version": "1 --pre"},
    {"version": ""},
    {"hashes": ["../../x"]},
    {"hashes": []},
    {"file": "../acme.whl"},
    {"file": "acme.whl\n-e ."},
]


@pytest.mark.parametrize("part", BAD_PARTS)
def test_what_would_leave_its_folder_or_its_line_is_no_package(part, caplog):
    data = package().to_json()
    locked = data["lock"]["packages"][0] | part
    data |= {k: locked[k] for k in ("name", "version")}
    data["lock"] = {"roots": [f"{locked['name']}=={locked['version']}"], "packages": [locked]}
    with pytest.raises(BadRequirement):
        Record.from_json(data)
    state = PluginRecords()
    key = f"{PLUGINS}package-{locked['name']}-{locked['version']}"
    assert state.apply(key, orjson.dumps(data)) is None
    assert state.packages == {}
    assert "ignoring record" in caplog.text


def test_a_record_speaks_of_the_package_in_its_key_alone(caplog):
    state = PluginRecords()
    state.apply(package_record(package("other"))[0], package_record(package())[1])
    assert state.packages == {}
    data = package().to_json() | {"version": "2.0"}
    with pytest.raises(BadRequirement, match=r"the lock of acme==2\.0 does not contain this package"):
        Record.from_json(data)


def test_a_package_that_is_built_anew_leaves_no_wheel_behind(tmp_path):
    group = GroupPackages(Store(tmp_path), "g")
    for record in [*wheel_records("acme.whl", WHEEL), package_record(package())]:
        group.apply(*record)
    other = WHEEL + b"!"
    digest = group._store.wheels.keep("acme.whl", other)
    written = group.installation(package(digest=digest))
    for record in written:
        group.apply(*record)
    assert group.records.parts.keys() == {digest}
    assert [key for key, value in written if value is None] == [
        f"{PLUGINS}wheel-{DIGEST}-{i}" for i in range(3)
    ]
    assert [v is None for _, v in group.installation(package(digest=digest))] == [False]  # once more the same
    assert group.records.packages.keys() == {package_record(package())[0]}


async def test_only_what_a_record_removed_is_removed(tmp_path):
    """Two workers with one directory: of a group, and the package is there before its record; or of two clusters."""
    store = Store(tmp_path)
    group = GroupPackages(store, "g")
    now = int(time.time() * 1000) + 1000
    new = dataclasses.replace(package(), installed_ms=now)
    left = dataclasses.replace(package("left"), installed_ms=1)
    strange = dataclasses.replace(package("strange"), installed_ms=1, group="g of another/config")
    gone = dataclasses.replace(package("gone"), installed_ms=1)
    everything = {r.root: (r, None) for r in (new, left, strange, gone)}
    for record, _ in everything.values():
        store._note(record)
    group.apply(*removal_record(gone))  # before this worker was there
    group.apply(*removal_record(strange))
    group.apply(*removal_record(new))  # an older one of its name
    await group.catch_up(everything)
    assert store.records() == [new, left, strange]
    # The group has it, and then no more; what is installed again meanwhile stays.
    group.apply(*package_record(new))
    group.apply(*removal_record(new))
    again = dataclasses.replace(new, installed_ms=now + 1)
    await group.catch_up({new.root: (again, None)})
    assert new in store.records()
    await group.catch_up({new.root: (new, None)})
    assert store.records() == [left, strange]


def test_a_package_of_the_group_that_is_gone_here_is_missed(tmp_path):
    group = GroupPackages(Store(tmp_path), "g")
    group.apply(*package_record(package()))
    group.changed.clear()
    group.check({"acme==1.0": (package(), None)})
    assert not group.changed.is_set()
    group.check({})
    assert group.changed.is_set()
    group.changed.clear()
    group.errors["acme==1.0"] = "no index"  # it is tried again anyway
    group.check({})
    assert not group.changed.is_set()
