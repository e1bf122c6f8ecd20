"""MirrorMaker 2 and `klamm mirror start` take the same mirror over from each other, with the same file, under load."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.broker import wait_until
from support.kafka_broker import KafkaBroker
from support.klamm import klamm
from support.takeover import PARTITIONS, TOPIC, Load, Takeover, source_record

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("apache_kafka")

EXACTLY_ONCE = {"B.exactly.once.source.support": "enabled"}


@pytest.fixture
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Yields the addresses of the source's broker and the target's, of the kinds that the parameter names."""
    with ExitStack() as stack:
        addresses = []
        for side, kind in zip("ab", request.param, strict=True):
            (directory := tmp_path / side).mkdir()
            if kind == "klamm":
                addresses.append(stack.enter_context(EmbeddedBroker(directory)).bootstrap)
            else:
                addresses.append(stack.enter_context(KafkaBroker(directory)).address)
        yield addresses[0], addresses[1]


def translated_without_a_skip(mirror: Takeover, offsets: list[int]) -> bool:
    """Returns whether the group has offsets at the target, none of which skips a record. Raises for one that does."""
    if min(mirror.translated()) < 0:
        return False
    wanted = [source_record(p, offset) for p, offset in enumerate(offsets)]
    found = mirror.next_records()
    assert all(next_ <= record for next_, record in zip(found, wanted, strict=True)), (found, wanted)
    return True


def translated_exactly(mirror: Takeover, offsets: list[int]) -> bool:
    return mirror.next_records() == [source_record(p, offset) for p, offset in enumerate(offsets)]


def planned(mirror: Takeover) -> list[str]:
    """Returns what `klamm mirror plan` says about the topic's offsets."""
    shown = json.loads(klamm("mirror", "plan", str(mirror.file), "--flow", "A->B", "-o", "json").stdout)
    return [row["new"] for row in shown if (row["kind"], row["name"]) == ("taken over", TOPIC)]


def check_whole(got: list[int], count: int) -> None:
    """Checks that each record came once, and in order."""
    assert Counter(got) == Counter(range(count))
    for partition in range(PARTITIONS):
        copies = [n for n in got if n % PARTITIONS == partition]
        assert copies == sorted(copies)


@pytest.mark.parametrize(
    "brokers", [("klamm", "klamm"), ("apache", "apache"), ("apache", "klamm")], indirect=True, ids="-".join
)
def test_a_mirror_changes_hands_and_nothing_is_lost_or_comes_twice(brokers, tmp_path):
    mirror = Takeover(tmp_path, *brokers, {})
    with Load(mirror.source) as load:
        with mirror.run_by_mirror_maker():
            mirror.wait_for_copies(500)
            mirror.commit([400] * PARTITIONS)
            wait_until(lambda: translated_without_a_skip(mirror, [400] * PARTITIONS), "offsets", timeout_s=60)
        assert planned(mirror) == [f"{PARTITIONS} partitions"]
        with mirror.run_by_klamm() as server:
            assert any(f"orders ({PARTITIONS})" in line and "MirrorMaker" in line for line in server.errors)
            mirror.wait_for_copies(1000)
            assert translated_without_a_skip(mirror, [400] * PARTITIONS)
            later = [end - 10 for end in mirror.ends()]
            mirror.commit(later)
            wait_until(lambda: translated_exactly(mirror, later), "exact offsets", timeout_s=60)
        with mirror.run_by_mirror_maker():
            mirror.wait_for_copies(1000)
            assert translated_without_a_skip(mirror, later)
            later = [end - 10 for end in mirror.ends()]
            mirror.commit(later)
        with mirror.run_by_klamm():
            count = load.end()
            got = mirror.wait_for_all(count)
            assert translated_without_a_skip(mirror, later)
    check_whole(got, count)


@pytest.mark.parametrize("brokers", [("klamm", "klamm"), ("apache", "apache")], indirect=True, ids="-".join)
def test_exactly_once_goes_through_kills_of_either(brokers, tmp_path):
    mirror = Takeover(tmp_path, *brokers, {"B.exactly.once.source.support": "enabled"})
    with Load(mirror.source) as load:
        with mirror.run_by_mirror_maker(signal.SIGKILL):
            mirror.wait_for_copies(1000)
            mirror.commit([400] * PARTITIONS)
            wait_until(lambda: translated_without_a_skip(mirror, [400] * PARTITIONS), "offsets", timeout_s=60)
        with mirror.run_by_klamm(signal.SIGKILL):
            mirror.wait_for_copies(1000)
            assert translated_without_a_skip(mirror, [400] * PARTITIONS)
            later = [800] * PARTITIONS
            mirror.commit(later)
            wait_until(lambda: translated_without_a_skip(mirror, later), "offsets", timeout_s=60)
        mirror.wait_for_sessions()
        with mirror.run_by_mirror_maker(signal.SIGKILL):
            mirror.wait_for_copies(1000)
            assert translated_without_a_skip(mirror, later)
        with mirror.run_by_klamm():
            count = load.end()
            got = mirror.wait_for_all(count)
            assert translated_without_a_skip(mirror, later)
    check_whole(got, count)


@pytest.mark.parametrize("brokers", [("klamm", "klamm")], indirect=True, ids="-".join)
def test_after_a_kill_only_what_was_not_committed_comes_again(brokers, tmp_path):
    mirror = Takeover(tmp_path, *brokers, {"offset.flush.interval.ms": "1000"})
    with Load(mirror.source) as load:
        with mirror.run_by_mirror_maker(signal.SIGKILL):
            mirror.wait_for_copies(500)
        by_mirror_maker = mirror.committed()
        with mirror.run_by_klamm(signal.SIGKILL):
            mirror.wait_for_copies(1000)
        by_klamm = mirror.committed()
        mirror.wait_for_sessions()
        with mirror.run_by_mirror_maker():
            mirror.wait_for_copies(500)
            count = load.end()
            got = mirror.wait_for_all(count)
    assert set(got) == set(range(count))
    for partition in range(PARTITIONS):
        again = [n for n, times in Counter(got).items() if times > 1 and n % PARTITIONS == partition]
        bounds = [source_record(partition, each[partition]) for each in (by_mirror_maker, by_klamm)]
        assert all(n >= bounds[0] for n in again), (again[0], bounds)
