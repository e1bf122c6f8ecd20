"""Reconciliation while files grow and rotate: nothing that was there is missed, nothing is taken for what it is not."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.reconcile import cut, files, running
from klamm.reconcile.agent_state import AgentState
from klamm.reconcile.compare import Document, SourceLine
from klamm.reconcile.cut import Sources
from klamm.reconcile.running import Question, reconcile_running
from klamm.reconcile.times import between, seconds
from klamm_agent.files.tracked import Checkpoint, Gap, Print
from klamm_agent.state.registry import StateDir
from klamm_base.errors import ConfigError, KlammError

PATTERN = files.identifier("id=([0-9]+)")


class Logs:
    """`a.log` as a service writes it and as somebody rotates it; `lines` is all that was ever written, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "a.log"
        self.path.touch()
        self.lines: list[str] = []
        self._numbers = itertools.count()
        self.removed: set[str] = set()

    def write(self, count: int, length: int = 5) -> None:
        text = [str(next(self._numbers)) for _ in range(count)]
        with self.path.open("a") as file:
            file.writelines(f"{'x' * length} id={t}\n" for t in text)
        self.lines += text

    def _shift(self) -> None:
        for path in sorted(self.folder.glob("a.log.*"), key=lambda p: -int(p.name.split(".")[2])):
            name, number, *end = path.name.rsplit(".", path.name.count(".") - 1)
            path.rename(self.folder / ".".join([name, str(int(number) + 1), *end]))

    def rename(self) -> None:
        self._shift()
        self.path.rename(self.folder / "a.log.1")
        self.path.touch()

    def copytruncate(self) -> None:
        self._shift()
        shutil.copyfile(self.path, self.folder / "a.log.1")
        os.truncate(self.path, 0)

    def compress(self) -> None:
        plain = [p for p in self.folder.glob("a.log.*") if p.suffix != ".gz"]
        if plain:
            with gzip.open(f"{plain[0]}.gz", "wb") as file:
                file.write(plain[0].read_bytes())
            plain[0].unlink()

    def do(self, step: str) -> None:
        if step == "write":
            self.write(3)
        elif step == "long":
            self.write(2, 1500)
        else:
            getattr(self, step)()


def ids(lines: Iterator[files.RawLine]) -> list[str]:
    return [line.id for line in files.with_ids(lines, PATTERN)]


STEPS = st.lists(st.sampled_from(["write", "long", "rename", "copytruncate", "compress"]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(STEPS, max_size=5), STEPS, st.integers(0, 2**16))
def test_all_lines_of_the_cut_are_read_whatever_happens_to_the_files(
    tmp_path_factory, before, during, after, seed
):
    logs = Logs(tmp_path_factory.mktemp("logs"))
    wild = random.Random(seed)
    for step in before:
        logs.do(step)
    with pytest.MonkeyPatch.context() as patch, Sources([f"{logs.folder}/*"]) as sources:
        patch.setattr(cut, "CHUNK", 64)  # so that things happen in the middle of files
        sources.take()
        wanted, found = list(logs.lines), []
        reading = files.with_ids(sources.lines(), PATTERN)
        for steps in during:
            found += [line.id for line in itertools.islice(reading, wild.randrange(4))]
            for step in steps:
                logs.do(step)
        found += [line.id for line in reading]
        # A file that was copied, truncated and compressed while it was read is said to be unread
        compressed = any("compress" in steps for steps in during)
        if compressed and sources.unread:
            assert set(found) < set(wanted)
        else:
            assert sorted(found) == sorted(wanted)
            assert sources.unread == []
        for step in after:
            logs.do(step)
        assert set(ids(sources.rest())) >= set(logs.lines) - set(wanted)
        logs.write(2)
        assert ids(sources.rest())[-2:] == logs.lines[-2:]


def test_what_was_truncated_without_a_copy_is_said(tmp_path):
    logs = Logs(tmp_path)
    logs.write(100)
    with pytest.MonkeyPatch.context() as patch, Sources([f"{tmp_path}/*.log"]) as sources:
        patch.setattr(cut, "CHUNK", 128)
        sources.take()
        reading = sources.lines()
        first = [next(reading) for _ in range(3)]
        logs.copytruncate()  # the copy is not among the sources
        logs.write(50)
        found = [*first, *reading]
        place = found[-1].offset + len(found[-1].data) + 1
        assert [(u.start, u.end) for u in sources.unread] == [(place, sources.cut[0].cut)]
        result = reconcile_running(
            Question(
                sources=sources, pattern=PATTERN, target=lambda: [Document(i, i, True) for i in logs.lines]
            )
        )
        assert result.source_lines == 50  # the cut is taken anew


def test_a_copy_that_is_being_made_and_a_file_that_is_being_compressed_are_read_once(tmp_path, monkeypatch):
    logs = Logs(tmp_path)
    logs.write(10)
    shutil.copyfile(logs.path, tmp_path / "a.log.1")
    monkeypatch.setattr(cut, "COPY_S", 60)  # until it is truncated
    with ThreadPoolExecutor(1) as pool, Sources([f"{tmp_path}/*"]) as sources:
        truncated = pool.submit(lambda: (time.sleep(0.3), os.truncate(logs.path, 0)))
        sources.take()
        assert ids(sources.lines()) == logs.lines
        truncated.result()
    monkeypatch.undo()
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress((tmp_path / "a.log.1").read_bytes())[:20])
    with Sources([f"{tmp_path}/*"]) as sources:
        sources.take()
        assert ids(sources.lines()) == logs.lines
    (tmp_path / "a.log.1").unlink()
    with Sources([f"{tmp_path}/*"]) as sources:
        sources.take()
        with pytest.raises(KlammError, match=r"cannot read .*a\.log\.1\.gz"):
            list(sources.lines())


def test_a_copy_that_stays_has_its_lines_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(cut, "COPY_S", 0.1)
    logs = Logs(tmp_path)
    logs.write(10)
    shutil.copyfile(logs.path, tmp_path / "backup.log")
    with Sources([f"{tmp_path}/*"]) as sources:
        result = reconcile_running(
            Question(
                sources=sources, pattern=PATTERN, target=lambda: [Document(i, i, True) for i in logs.lines]
            )
        )
    assert result.repeated.count == 10
    with Sources([f"{tmp_path}/*"], [f"{tmp_path}/backup*"]) as sources:
        sources.take()
        assert ids(sources.lines()) == logs.lines


def test_missing_lines_are_waited_for_and_newer_lines_are_no_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "AGAIN_S", 0.05)
    logs, asked = Logs(tmp_path), []
    logs.write(100)

    def target() -> list[Document]:
        asked.append(len(logs.lines))
        logs.write(10)  # written, and already there
        arrived = 40 if len(asked) == 1 else 1000
        return [Document(i, f"d{i}", True) for i in logs.lines[:arrived]]

    said: list[str] = []
    with Sources([f"{tmp_path}/*"]) as sources:
        result = reconcile_running(
            Question(sources=sources, pattern=PATTERN, target=target, settle_s=60, say=said.append)
        )
    assert result.complete
    assert (result.source_lines, result.delivered, result.documents, result.of_later_lines) == (
        100,
        100,
        120,
        20,
    )
    assert len(asked) == 2
    assert said[0].startswith("60 lines are not there yet")
    with Sources([f"{tmp_path}/*"]) as sources:
        documents = [Document(i, f"d{i}", True) for i in logs.lines if i != "7"]
        question = Question(sources=sources, pattern=PATTERN, target=lambda: documents)
        result = reconcile_running(question)
    assert not result.complete
    assert [(m.id, m.file) for m in result.missing.items] == [("7", str(logs.path))]


def test_only_lines_between_two_times_have_to_be_there(tmp_path):
    (tmp_path / "a.log").write_text(
        "2026-01-01T00:00:00Z id=1\n2026-01-01T00:00:10.5Z id=2\n  without a time id=3\n"
        '1.1.1.1 - - [01/Jan/2026:01:00:20 +0100] "GET" id=4\n2026-01-01 00:00:30,5 id=5\n'
    )
    wanted = between(None, "2026-01-01T00:00:10Z", str(int(seconds("2026-01-01T00:00:30Z"))))
    with Sources([f"{tmp_path}/*"]) as sources:
        question = Question(
            sources=sources, pattern=PATTERN, target=lambda: [Document("5", "d", True)], wanted=wanted
        )
        result = reconcile_running(question)
    assert [line.id for line in result.missing.items] == ["2", "3", "4"]
    assert (result.later_lines, result.of_later_lines, result.unexpected.count) == (2, 1, 0)


def test_times_that_are_none_are_named():
    assert between(None, None, None) is None
    for arguments, said in (
        ((None, "soon", None), "'soon' is no time"),
        (("(", "1700000000", None), r"'\(' is not a regular expression"),
        (("x", "1700000000", None), "no group for the time"),
    ):
        with pytest.raises(ConfigError, match=said):
            between(*arguments)
    assert seconds("1700000000000") == seconds("1700000000") == seconds("2023-11-14T22:13:20Z")


@pytest.fixture
def agent(tmp_path) -> Iterator[StateDir]:
    state = StateDir(tmp_path / "state")
    yield state
    state.close()


def test_what_the_agent_has_not_sent_or_left_out_is_not_missing(tmp_path, agent):
    (tmp_path / "logs").mkdir()
    logs = Logs(tmp_path / "logs")
    logs.write(10)  # 11 bytes each
    about = logs.path.stat()
    inode = (about.st_dev, about.st_ino)
    head = Print.of(logs.path.read_bytes())
    agent.save([Checkpoint(path=str(logs.path), inode=inode, head=head, offset=88, tail=Print())])
    agent.add_gaps(
        [
            Gap(path=str(logs.path), inode=inode, start=11, end=22, reason="spool full"),
            Gap(path=str(logs.path), inode=inode, start=22, end=33, reason="truncated"),
        ],
        "2026-01-01T00:00:00Z",
    )

    def reconciled(there: set[str]):
        with Sources([f"{tmp_path}/logs/*"]) as sources:
            return reconcile_running(
                Question(
                    sources=sources, pattern=PATTERN, agent=AgentState(tmp_path / "state"),
                    target=lambda: [Document(i, i, True) for i in sorted(there)],
                )
            )  # fmt: skip

    result = reconciled(set("034567"))
    assert dict(result.excused) == {"not sent by the agent yet": 2, "left out by the agent: spool full": 1}
    assert [line.id for line in result.missing.items] == ["2"]
    # Another content under the same number: the agent's place in the old one says nothing
    agent.save(
        [Checkpoint(path=str(logs.path), inode=inode, head=Print.of(b"other"), offset=0, tail=Print())]
    )
    assert reconciled(set("034567")).missing.count == 3
    with pytest.raises(KlammError, match="no agent has run with state_dir"):
        AgentState(tmp_path).load()


def test_of_a_rules_range_only_so_many_lines_as_it_left_out_are_excused(tmp_path, agent):
    (tmp_path / "logs").mkdir()
    logs = Logs(tmp_path / "logs")
    logs.write(10)  # 11 bytes each
    about = logs.path.stat()
    inode = (about.st_dev, about.st_ino)
    head = Print.of(logs.path.read_bytes())
    known = Checkpoint(path=str(logs.path), inode=inode, head=head, offset=110, tail=Print())
    where = {"path": str(logs.path), "dev": inode[0], "inode": inode[1]}
    rules = [
        {**where, "from": 0, "to": 88, "reason": "debug", "lines": 2},
        {**where, "from": 22, "to": 99, "reason": "health", "lines": 1},
    ]
    agent.save([known], policy=rules)
    # What the file was before it began again says nothing of its lines now
    old = Gap(path=str(logs.path), inode=inode, start=0, end=110, reason="debug", lines=9, policy=True)
    agent.add_gaps([old], "2026-01-01T00:00:00Z")

    def reconciled(there: str):
        with Sources([f"{tmp_path}/logs/*"]) as sources:
            return reconcile_running(
                Question(
                    sources=sources, pattern=PATTERN, agent=AgentState(tmp_path / "state"),
                    target=lambda: [Document(i, i, True) for i in there],
                )
            )  # fmt: skip

    result = reconciled("0135679")
    assert dict(result.excused) == {"left out by the agent: debug, health": 3}
    assert result.missing.count == 0
    assert reconciled("135679").missing.count == 1  # one more than the rules left out
    assert [line.id for line in reconciled("01234567").missing.items] == ["9"]  # behind all ranges
    agent.save([], policy=[])  # the agent has forgotten the file: the ledger has the last word
    assert dict(reconciled("0").excused) == {"left out by the agent: debug": 9}


def test_the_agents_progress_is_waited_for(tmp_path, agent):
    (tmp_path / "logs").mkdir()
    logs = Logs(tmp_path / "logs")
    logs.write(10)
    about = logs.path.stat()

    def acknowledge(offset: int) -> None:
        head = Print.of(logs.path.read_bytes())
        point = Checkpoint(
            path=str(logs.path), inode=(about.st_dev, about.st_ino), head=head, offset=offset, tail=Print()
        )
        agent.save([point])

    acknowledge(0)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        acknowledge(logs.path.stat().st_size)

    with Sources([f"{tmp_path}/logs/*"]) as sources:
        result = reconcile_running(
            Question(
                sources=sources, pattern=PATTERN, agent=AgentState(tmp_path / "state"), settle_s=60, say=say,
                target=lambda: [Document(i, i, True) for i in logs.lines],
            )
        )  # fmt: skip
    assert result.complete
    assert said == ["the agent has not sent all lines yet"]


def test_under_constant_rotation_nothing_is_missed(tmp_path, monkeypatch):
    """A writer that rotates all the time, and a target that has every line as soon as it is written.

    The writer waits for this process's own work, not for a clock: where others have the machine, its reader falls behind.
    """
    monkeypatch.setattr(running, "AGAIN_S", 0.05)  # a line is in a file a moment before it is in the list
    logs, stop = Logs(tmp_path), threading.Event()

    def work() -> None:
        wild = random.Random(3)
        while not stop.is_set():
            logs.write(50)
            if wild.random() < 0.3:
                logs.do(wild.choice(["rename", "rename", "copytruncate"]))
            due_s = time.process_time() + 0.002
            while time.process_time() < due_s and not stop.is_set():
                time.sleep(0.001)

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work)
        try:
            while len(logs.lines) < 10_000 and not worker.done():
                with Sources([f"{tmp_path}/*"]) as sources:
                    result = reconcile_running(
                        Question(
                            sources=sources, pattern=PATTERN, settle_s=60,
                            target=lambda: [Document(i, i, True) for i in list(logs.lines)],
                        )
                    )  # fmt: skip
                    found = {
                        name: listing.count for name, listing in result.differences.items() if listing.count
                    }
                    assert not found, (found, result.missing.items[:3], result.unexpected.items[:3])
        finally:
            stop.set()
        worker.result()


def test_lines_of_a_file_that_is_gone_are_read_through_it(tmp_path):
    logs = Logs(tmp_path)
    logs.write(20)
    with Sources([f"{tmp_path}/*"]) as sources:
        sources.take()
        logs.write(5)
        logs.path.unlink()
        assert ids(sources.lines()) == logs.lines[:20]
        assert ids(sources.rest()) == logs.lines[20:]


def test_a_file_that_was_empty_at_first_is_read_again_after_it_was_truncated(tmp_path):
    logs = Logs(tmp_path)
    with Sources([f"{tmp_path}/*"]) as sources:
        sources.take()
        assert ids(sources.rest()) == []
        logs.write(5)
        assert ids(sources.rest()) == logs.lines
        logs.copytruncate()
        logs.write(20)
        assert set(ids(sources.rest())) >= set(logs.lines[5:])


def test_a_copy_is_found_while_names_change(tmp_path, monkeypatch):
    """The file is truncated while it is read; while its copy is looked for, that gets another name."""
    logs = Logs(tmp_path)
    logs.write(100)
    with Sources([f"{tmp_path}/*"]) as sources:
        monkeypatch.setattr(cut, "CHUNK", 128)
        sources.take()
        reading = sources.lines()
        first = [next(reading)]
        logs.copytruncate()
        renamed = iter([logs.rename])
        listed = Sources._list

        def then_renamed(self: Sources) -> list[Path]:
            paths = listed(self)
            for rename in renamed:
                rename()
            return paths

        monkeypatch.setattr(Sources, "_list", then_renamed)
        assert ids(iter([*first, *reading])) == logs.lines
        assert sources.unread == []


def test_a_source_line_knows_its_place(tmp_path):
    logs = Logs(tmp_path)
    logs.write(3)
    with Sources([f"{tmp_path}/*"]) as sources:
        sources.take()
        found = list(files.with_ids(sources.lines(), PATTERN))
    assert found[2] == SourceLine("2", str(logs.path), 22)
    assert json.dumps(found[2])
