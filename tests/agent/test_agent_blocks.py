"""Blocks to record values, against the plain way to do it; path patterns against glob."""

from __future__ import annotations

import glob
import json
import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klamm_agent.files.scan import expression
from klamm_agent.framing.lines import split
from klamm_agent.stages.envelope import Envelope


@given(
    st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), min_size=1),
    st.booleans(),
    st.integers(16, 30),
)
def test_lines_and_offsets(lines, ended, limit):
    data = b"\n".join(lines) + (b"\n" if ended or not lines[-1] else b"")
    found, offsets, cuts = split(data, 1000, limit, places=True)
    assert len(found) == len(offsets) == len(lines) + cuts
    for line, offset in zip(found, offsets, strict=True):
        assert data[offset - 1000 :].startswith(line)
        assert len(line) <= limit
    if not cuts:
        assert found == [line.removesuffix(b"\r") for line in lines]
    assert b"".join(found).replace(b"\r", b"") == data.replace(b"\n", b"").replace(b"\r", b"")


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1))
@example(["\x1e", "a"])
@example(["\\u001e", "b"])
@example(["several\nlines", "c"])
def test_documents_hold_the_lines(texts):
    envelope = Envelope(
        {"host": {"name": "h"}, "agent": {"type": "klamm", "id": "a"}, "service": {"name": "ü"}}
    )
    values = envelope.wrap([t.encode() for t in texts], list(range(len(texts))), "/var/log/ä.log", 0.5)
    documents = [json.loads(v) for v in values]
    assert [d["message"] for d in documents] == texts
    assert [d["log"]["offset"] for d in documents] == list(range(len(texts)))
    assert documents[0] == {
        "@timestamp": "1970-01-01T00:00:00.500Z",
        "message": texts[0],
        "log": {"file": {"path": "/var/log/ä.log"}, "offset": 0},
        "host": {"name": "h"},
        "agent": {"type": "klamm", "id": "a"},
        "service": {"name": "ü"},
    }


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), min_size=1))
def test_bytes_that_are_no_text_spoil_their_own_line_only(lines):
    envelope = Envelope({"host": {"name": "h"}})
    values = envelope.wrap(lines, [0] * len(lines), "/x", 0.0)
    assert [json.loads(v)["message"] for v in values] == [line.decode(errors="replace") for line in lines]


@pytest.mark.parametrize(
    "pattern", ["*.log", "**/*.log", "a/**/*", "a/[xy]?.log", "a/b/z.log", "**/b/*", "a/[!x]1.log"]
)
def test_excludes_mean_what_paths_mean(tmp_path, pattern):
    names = [
        "r.log",
        "a/x1.log",
        "a/y2.log",
        "a/z1.log",
        "a/b/z.log",
        "a/b/c/deep.log",
        "a/b/n.txt",
        "a/r.log.1",
    ]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    expected = {
        p
        for p in glob.glob(str(tmp_path / pattern), recursive=True)  # noqa: PTH207 - what the scanner uses
        if p in {str(tmp_path / n) for n in names}
    }
    compiled = re.compile(expression(str(tmp_path / pattern)))
    assert {str(tmp_path / n) for n in names if compiled.fullmatch(str(tmp_path / n))} == expected


@pytest.mark.usefixtures("processes")
def test_starting_the_agent_imports_nothing_heavy():
    code = (
        "import sys, klamm.cli.agent, klamm_agent.agent, klamm_agent.config.agent;"
        "print([m for m in ('aiohttp', 'sqlalchemy', 'pandas', 'pydantic', 'confluent_kafka', 'cryptography',"
        "'klamm_broker.server', 'klamm_broker.log', 'klamm_broker.api') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
