"""The generator: the same for the same seed, unique ids, nothing lost or changed by rotation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter

import pytest

from klamm.demo.logs import rates
from klamm.demo.logs.generator import Generator
from klamm.demo.logs.lines import ID_PATTERN, SERVICES, Lines, Plan
from klamm.reconcile.files import expand, raw_lines

PLAN = Plan(seed=7, start_ms=1_700_000_000_000, rate=1000, total=6000)


def ids(lines: list[bytes]) -> list[str]:
    return [m[1].decode() for line in lines if (m := re.search(ID_PATTERN.encode(), line))]


def test_same_seed_same_lines():
    first, second = list(Lines(PLAN)), list(Lines(PLAN))
    other = list(Lines(Plan(seed=8, start_ms=PLAN.start_ms, rate=1000, total=100)))
    assert first == second
    assert [line.data for line in first[:100]] != [line.data for line in other]


def test_every_line_has_an_id_of_its_own_damaged_ones_too():
    lines = [line.data for line in Lines(PLAN)]
    found = ids(lines)
    assert len(found) == len(set(found)) == len(lines)
    damaged = [line for line in lines if rates.parse(line[:-1]) is None]
    assert 0 < len(damaged) < len(lines) / 50
    assert {d[:1] for d in damaged} == {b"{", b"n"}  # both kinds of log have some


def test_lines_say_when_they_were_due_and_episodes_show_in_the_windows():
    length = PLAN.total * 1000 // PLAN.rate
    windows: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    episodes = PLAN.episodes()
    for line in Lines(PLAN):
        entry = rates.parse(line.data[:-1])
        if entry is None:
            continue
        assert entry.service == line.service.name
        precision = 1000 if line.service.kind == "access" else 1
        assert entry.time_ms == line.due_ms - line.due_ms % precision
        if episodes[entry.service].start_ms <= line.due_ms < episodes[entry.service].end_ms:
            windows[entry.service] += 1
            errors[entry.service] += entry.error
    for service in SERVICES:
        assert windows[service.name] / (PLAN.total * service.share) == pytest.approx(0.2, abs=0.06)
        assert errors[service.name] > 0.15 * windows[service.name]
        episode = episodes[service.name]
        assert PLAN.start_ms <= episode.start_ms < episode.end_ms <= PLAN.start_ms + length


def test_application_lines_are_json_with_messages_of_several_words():
    documents = [
        json.loads(line.data)
        for line in Lines(PLAN)
        if line.service.kind == "app" and rates.parse(line.data[:-1]) is not None
    ]
    assert all({"@timestamp", "id", "level", "service", "trace_id", "message"} <= d.keys() for d in documents)
    assert any(len(d["message"].split()) > 5 for d in documents)
    assert any("ß" in d["message"] for d in documents)


@pytest.mark.parametrize("step_ms", [7, 450, 100_000])
def test_rotation_keeps_every_line(tmp_path, step_ms):
    generator = Generator(tmp_path, PLAN, rotations=3)
    now = PLAN.start_ms
    while not generator.done:
        now += step_ms
        generator.write_due(now)
    generator.close()
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.log*")}
    assert names == {s.file for s in SERVICES} | {
        f"{folder}.{n}" for folder in ("gateway/access.log", "checkout/app.log") for n in (1, 2, 3)
    }
    written = Counter(line.data for line in raw_lines(expand([str(tmp_path / "**/*.log*")])))
    assert written == Counter(line.data[:-1] for line in Lines(PLAN))


def test_copytruncate_keeps_the_file_and_rename_makes_a_new_one(tmp_path):
    generator = Generator(tmp_path, PLAN, rotations=1)
    generator.write_due(PLAN.start_ms + 1000)
    truncated, renamed = tmp_path / "checkout/app.log", tmp_path / "gateway/access.log"
    inodes = truncated.stat().st_ino, renamed.stat().st_ino
    generator.write_due(PLAN.start_ms + 4000)
    generator.close()
    assert truncated.stat().st_ino == inodes[0]
    assert (tmp_path / "gateway/access.log.1").stat().st_ino == inodes[1]


@pytest.mark.usefixtures("processes")
def test_as_a_process_it_says_how_far_it_is_and_ends(tmp_path):
    words = [sys.executable, "-m", "klamm.demo.logs.generator", str(tmp_path), "1"]
    words += [str(int(time.time() * 1000)), "2000", "900", "2"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    assert said[-1] == {"lines": 900, "rotations": 4, "done": True}
    assert len(list(raw_lines(expand([str(tmp_path / "**/*.log*")])))) == 900


@pytest.mark.usefixtures("processes")
def test_it_leaves_when_its_parent_is_gone(tmp_path):
    words = [sys.executable, "-m", "klamm.demo.logs.generator", str(tmp_path), "1"]
    words += [str(int(time.time() * 1000)), "100", "100000", "2"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(60) == 1
