"""Lines to events: however a file is cut into blocks, its events are the same, and none is torn."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_agent.files.open_files import OpenFiles
from klamm_agent.files.tracked import Checkpoint, Limits, Observed
from klamm_agent.files.tracker import Tracker
from klamm_agent.framing.containers import assemble
from klamm_agent.framing.encodings import encoding
from klamm_agent.framing.framer import Framed, Framer, Place
from klamm_agent.framing.multiline import Multiline, expression

POD = "/var/log/pods/shop_web-5d9_0a1b/app/0.log"


def read(framer: Framer, data: bytes, sizes, path: str = "") -> list[tuple[int, bytes, str]]:
    """Returns events of a file that is read in blocks of `sizes`, as the tracker does; to its end, which is final."""
    found: list[tuple[int, bytes, str]] = []
    at, inside, wanted = 0, False, 0
    sizes = itertools.cycle(sizes)
    while True:
        count = max(next(sizes), wanted)
        block = data[at : at + count]
        end = at + len(block) == len(data)
        place = Place(
            path=path,
            start=at,
            head=data[:8],
            inside=inside,
            final=end,
            quiet=end,
            full=count >= framer.reach,
        )
        framed = framer.frame(block, place)
        streams = [f.get("stream", "") for f in framed.fields] if framed.fields else [""] * len(framed.values)
        found += zip(framed.offsets, framed.values, streams, strict=True)
        if framed.consumed:
            at, inside, wanted = at + framed.consumed, framed.inside, 0
        else:
            wanted = min(count * 2, framer.reach)
        if end and at == len(data):
            return found
        assert framed.consumed or not end, "the end is final"
        assert framed.consumed or count < framer.reach, "something has to be given out"


LINES = st.lists(
    st.sampled_from(
        [b"2026 one", b"  two", b"\tthree", b"", b"END", b"caf\xc3\xa9 x", b"ERROR no", b"x" * 90]
    ),
    max_size=40,
)
SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=5)


def joined(lines: list[bytes], joins, *, before: bool = False, flush=lambda _line: False) -> list[bytes]:
    """Joins lines by the book: one line at a time."""
    events: list[list[bytes]] = []
    closed = True
    for line in lines:
        if before:
            if closed:
                events.append([])
            events[-1].append(line)
            closed = flush(line) or not joins(line)
        else:
            if not events or closed or not joins(line):
                events.append([])
            events[-1].append(line)
            closed = flush(line)
    return [b"\n".join(e) for e in events]


@settings(max_examples=150, deadline=None)
@given(LINES, SIZES, st.booleans(), st.sampled_from(["after", "before"]), st.booleans())
def test_patterns_join_the_same_lines_wherever_blocks_end(lines, sizes, negate, match, flush):
    config = Multiline(
        pattern=r"^\s+\S", negate=negate, match=match, flush_pattern="^END" if flush else "", max_lines=1000
    )
    events = read(Framer(max_line=5000, multiline=config), b"".join(x + b"\n" for x in lines), sizes)
    assert [v for _, v, _ in events] == joined(
        lines,
        lambda line: bool(re.search(rb"^\s+\S", line)) != negate,
        before=match == "before",
        flush=lambda line: flush and line.startswith(b"END"),
    )


@settings(max_examples=100, deadline=None)
@given(LINES, SIZES, st.integers(2, 6))
def test_no_line_is_left_out_of_events_that_are_too_long(lines, sizes, most):
    framer = Framer(max_line=200, multiline=Multiline(pattern="2026", negate=True, max_lines=most))
    events = [v for _, v, _ in read(framer, b"".join(x + b"\n" for x in lines), sizes)]
    assert b"\n".join(events).split(b"\n") == (lines or [b""])
    assert all(e.count(b"\n") < most and len(e) <= 200 for e in events)


ROWS = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.sampled_from("PFFF"), st.sampled_from(["one", "  two", "x" * 50, ""])),
    max_size=40,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ROWS, SIZES, st.booleans())
def test_containers_streams_are_put_together_wherever_blocks_end(rows, sizes, multiline):
    data = "".join(
        f"2026-01-01T00:00:{i / 10:09.6f}Z {stream} {tag} {text}\n"
        for i, (stream, tag, text) in enumerate(rows)
    ).encode()
    expected: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    part: dict[str, str] = {}
    for stream, tag, text in rows:
        part[stream] = part.get(stream, "") + text
        if tag == "F":
            expected[stream].append(part.pop(stream).encode())
    for stream, text in part.items():
        expected[stream].append(text.encode())
    config = Multiline(pattern=r"^\s+\S", timeout=1000.0) if multiline else None
    events = read(Framer(max_line=5000, container="auto", multiline=config), data, sizes, POD)
    for stream, lines in expected.items():
        wanted = joined(lines, lambda line: bool(re.search(rb"^\s+\S", line))) if multiline else lines
        assert [v for _, v, s in events if s == stream] == wanted
    starts = [m.start() for m in re.finditer(rb"(?m)^2026", data)]
    assert all(offset in starts for offset, _, _ in events)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20), max_size=15),
    SIZES,
    st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-16", "utf-32"]),
    st.booleans(),
)
def test_text_of_any_width_is_the_same_text(lines, sizes, name, big):
    text = "".join(line + "\n" for line in lines)
    if name in {"utf-16", "utf-32"}:
        data = ("\ufeff" + text).encode(f"{name}-{'be' if big else 'le'}")
    else:
        data = text.encode(name)
    framer = Framer(max_line=5000, text=encoding(name), multiline=Multiline(pattern="^$a", timeout=0))
    events = read(framer, data, sizes)
    expected = [line.encode() for line in lines]
    if expected and lines[0].startswith("\ufeff"):
        expected[0] = lines[0].removeprefix("\ufeff").encode()  # a mark is no text, wherever it comes from
    if name in {"utf-16", "utf-32"} and not lines:
        expected = [b""] if events else []
    assert [v for _, v, _ in events] == expected
    for offset, value, _ in events[1:]:
        assert data[offset:].startswith(
            value.decode().encode(framer._encoding.of_file(data[:8]).codec or "utf-8")
        )


@pytest.mark.parametrize("truncate", [False, True])
@given(lengths=st.lists(st.integers(0, 900), max_size=10), sizes=SIZES, last=st.booleans())
@settings(max_examples=60, deadline=None)
def test_long_lines_are_split_or_cut_off_and_what_is_cut_off_is_told(truncate, lengths, sizes, last):
    data = b"\n".join(b"%03d" % (i % 1000) + b"x" * n for i, n in enumerate(lengths)) + (
        b"" if last else b"\n"
    )
    framer = Framer(max_line=100, truncate=truncate, multiline=None, container="")
    framer.reach = 400
    found, at, inside, dropped = [], 0, False, []
    values: list[bytes] = []
    sizes = itertools.cycle(sizes)
    wanted = 0
    while at < len(data):
        count = max(next(sizes), wanted)
        end = at + count >= len(data)
        framed = framer.frame(
            data[at : at + count], Place(start=at, inside=inside, final=end, full=count >= 400)
        )
        values += framed.values
        found += framed.offsets
        dropped += [(d.start, d.end) for d in framed.dropped]
        wanted = 0 if framed.consumed else 400
        at, inside = at + framed.consumed, framed.inside
    assert all(len(v) <= 100 for v in values)
    lines = data.removesuffix(b"\n").split(b"\n") if data not in {b"", b"\n"} else [b""] * data.count(b"\n")
    if truncate:
        assert values == [line[:100] for line in lines]
        left = b"".join(data[s:e] for s, e in dropped)
        assert left.replace(b"\n", b"") == b"".join(line[100:] for line in lines)
    else:
        assert b"".join(values) == b"".join(lines)
        assert dropped == []


class Follower:
    """One file under the agent's core with a framer; killed as often as a test likes."""

    def __init__(self, folder: Path, framer: Framer) -> None:
        self.path, self.framer = folder / "x.log", framer
        self.saved: list[Checkpoint] = []
        self.found: dict[int, bytes] = {}
        self.flying: list[tuple[int, int, bytes, bool]] = []
        self.now = 0.0
        self.path.touch()
        self.boot()

    def boot(self) -> None:
        self.tracker = Tracker([Limits(max_line=100)], self.saved, self.now, [self.framer])
        self.files = OpenFiles(self.tracker, self.fail, 150)

    def fail(self, path: str, error: OSError) -> None:
        raise AssertionError(f"{path}: {error}")

    def look(self) -> None:
        there = self.path.stat()
        inode = (there.st_dev, there.st_ino)
        seen = Observed(
            path=str(self.path), inode=inode, size=there.st_size, modified=there.st_mtime, source=0
        )
        self.tracker.observe([seen], self.now, self.now)
        self.files.open_new(self.now)
        for _ in range(1000):
            files = self.files.changed(self.now)
            if not files:
                return
            for file in files:
                block = self.files.read(file, self.now)
                if block is not None and block.framed is not None:
                    for offset, value in zip(block.framed.offsets, block.framed.values, strict=True):
                        assert self.found.setdefault(offset, value) == value, "an event was torn"
                    self.flying.append((block.generation, block.end, block.tail, block.inside))
        raise AssertionError("reading does not come to an end")

    def acknowledge(self, count: int) -> None:
        there = self.path.stat()
        file = self.tracker.get((there.st_dev, there.st_ino))
        if file is None:
            return
        for generation, end, tail, inside in self.flying[:count]:
            self.tracker.acknowledged(file, generation, end, tail, inside=inside)
        del self.flying[:count]
        self.saved = self.tracker.checkpoints()

    def kill(self) -> None:
        self.files.close_all()
        self.flying.clear()
        self.boot()


FOLLOWED = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["2026 one\n", "  two\n", "  thr", "ee\n", "y" * 90, "\n", "x" * 450])),
        st.tuples(st.just("look")),
        st.tuples(st.just("acknowledge"), st.integers(1, 3)),
        st.tuples(st.just("kill")),
    ),
    max_size=40,
)  # fmt: skip


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("multiline", [None, Multiline(pattern="^2026", negate=True, timeout=5.0)])
@given(steps=FOLLOWED)
@settings(max_examples=60, deadline=None)
def test_kills_tear_no_event_and_lose_none(truncate, multiline, steps):
    with tempfile.TemporaryDirectory() as folder:
        framer = Framer(max_line=100, truncate=truncate, multiline=multiline)
        framer.reach = 600
        follower, text = Follower(Path(folder), framer), b""
        for n, (name, *arguments) in enumerate(steps):
            if name == "write":
                text += arguments[0].encode()
                follower.path.write_bytes(text)
                os.utime(follower.path, (n, n))
            else:
                getattr(follower, name)(*arguments)
        follower.look()
        follower.now += 1000.0
        follower.look()
        follower.files.close_all()
        events = b"\n".join(follower.found[offset] for offset in sorted(follower.found))
        if truncate:  # what is left is the beginning of each line
            left = iter(text.split(b"\n"))
            assert all(any(line.startswith(piece) for line in left) for piece in events.split(b"\n"))
            assert sum(map(len, follower.found.values())) >= min(1, len(text.strip()))
        else:
            assert events.replace(b"\n", b"") == text.replace(b"\n", b"")


PYTHON = b"""INFO one
ERROR it failed
Traceback (most recent call last):
  File "a.py", line 3, in f
    g()
    ^^^
ValueError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 9, in <module>
    f()
shop.errors.ShopError: worse
INFO two
Traceback (most recent call last):
  File "b.py", line 1, in <module>
KeyError: 'x'
INFO three
  + Exception Group Traceback (most recent call last):
  |   File "c.py", line 1, in <module>
  | ExceptionGroup: many (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
INFO four
"""
JAVA = b"""12:00 INFO one
12:00 ERROR c.s.Shop - cannot pay
java.lang.IllegalStateException: no money
\tat com.shop.Pay.run(Pay.java:5)
\tat com.shop.Main.main(Main.java:9)
\tSuppressed: java.io.IOException: closed
\t\tat com.shop.Pay.close(Pay.java:8)
Caused by: java.sql.SQLException: gone
\tat com.shop.Db.get(Db.java:1)
\t... 2 more
12:01 INFO two
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat com.shop.Main.main(Main.java:10)
12:02 INFO three
"""
GO = b"""2026/01/01 one
panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.(*Shop).pay(0xc000012345, {0x1, 0x2})
\t/src/main.go:8 +0x1d
main.main()
\t/src/main.go:20 +0x2a
created by net/http.(*Server).Serve in goroutine 1
\t/go/net/http/server.go:3086 +0x5cb

goroutine 18 [chan receive]:
main.worker(...)
\t/src/main.go:30
exit status 2

2026/01/01 two
"""
RUBY = b"""I, one
E, failed
/srv/shop/pay.rb:3:in `pay': no money (Shop::PayError)
\tfrom /srv/shop/main.rb:7:in `block in run'
\tfrom /srv/shop/main.rb:6:in `each'
I, two
NoMethodError (undefined method `x' for nil:NilClass):

app/models/user.rb:5:in `name'
app/views/x.erb:2:in `_app'
I, three
"""


@pytest.mark.parametrize(
    ("preset", "text", "firsts"),
    [
        (
            "python",
            PYTHON,
            ["INFO one", "ERROR it", "INFO two", "Traceback", "INFO three", "  + Exc", "INFO four"],
        ),
        ("java", JAVA, ["12:00 INFO", "12:00 ERROR", "12:01", "Exception in", "12:02"]),
        ("go", GO, ["2026/01/01 one", "panic: ", "", "2026/01/01 two"]),
        ("ruby", RUBY, ["I, one", "E, failed", "I, two", "NoMethod", "I, three"]),
    ],
)
@given(sizes=SIZES)
@settings(max_examples=25, deadline=None)
def test_stack_traces_are_events(preset, text, firsts, sizes):
    for presets in [(preset,), ("python", "java", "go", "ruby")]:
        events = [
            v for _, v, _ in read(Framer(max_line=5000, multiline=Multiline(presets=presets)), text, sizes)
        ]
        assert b"\n".join(events) + b"\n" == text
        assert len(events) == len(firsts), events
        assert all(e.startswith(f.encode()) for e, f in zip(events, firsts, strict=True))


def test_only_what_may_grow_is_held_back():
    framer = Framer(max_line=5000, multiline=Multiline(presets=("python",)))
    assert framer.frame(b"INFO one\nINFO two\n", Place()).held is False
    held = framer.frame(b"INFO one\nERROR two\n", Place())
    assert (held.values, held.held, held.consumed) == ([b"INFO one"], True, 9)
    quiet = framer.frame(b"ERROR two\nTraceb", Place(quiet=True))
    assert (quiet.values, quiet.held, quiet.consumed) == ([b"ERROR two"], False, 10)


def cri(seconds: float, stream: str, text: str) -> str:
    return f"2026-01-01T00:00:{seconds:09.6f}Z {stream} F {text}\n"


def test_an_event_of_one_stream_does_not_wait_for_ever_while_another_writes():
    framer = Framer(max_line=5000, container="cri", multiline=Multiline(pattern=r"^\s", timeout=5.0))
    rows = [cri(0, "stderr", "failed"), *(cri(i, "stdout", f"line {i}") for i in range(1, 5))]
    early = framer.frame("".join(rows).encode(), Place(path=POD))
    assert early.values == []
    rows += [cri(i, "stdout", f"line {i}") for i in range(5, 9)]
    late = framer.frame("".join(rows).encode(), Place(path=POD))
    assert late.values == [b"failed", *(b"line %d" % i for i in range(1, 8))]


def test_what_a_container_s_line_and_path_tell():
    docker = [{"log": "a\n", "stream": "stdout", "time": "2026-01-01T00:00:00.25Z"},
              {"log": "b", "stream": "stderr", "time": "2026-01-01T00:00:01+01:00"},
              {"log": "c\r\n", "stream": "stderr", "time": "2026-01-01T00:00:02Z"}]  # fmt: skip
    data = "".join(json.dumps(d) + "\n" for d in docker).encode() + b"no json\n"
    path = f"/var/lib/docker/containers/{'ab' * 32}/{'ab' * 32}-json.log"
    framed = Framer(max_line=500, container="auto").frame(data, Place(path=path))
    assert framed == Framed(
        values=[b"a", b"bc", b"no json"],
        offsets=[0, data.index(b'{"log": "b"'), data.index(b"no json")],
        times=[1767225600.25, 1767222001.0, 0.0],
        fields=[
            {"container": {"id": "ab" * 32}} | s for s in ({"stream": "stdout"}, {"stream": "stderr"}, {})
        ],
        consumed=len(data),
    )
    data = b"2026-01-01T00:00:00Z stdout F:x hello world\n"
    for path, container in [
        (POD, {"name": "app"}),
        (f"/var/log/containers/web-5d9_shop_app-{'0' * 64}.log", {"name": "app", "id": "0" * 64}),
    ]:
        framed = Framer(max_line=500, container="auto").frame(data, Place(path=path))
        assert framed.values == [b"hello world"]
        (fields,) = framed.fields or []
        pod = fields["kubernetes"]
        assert (pod["namespace"], pod["pod"]["name"], pod["container"]["name"]) == ("shop", "web-5d9", "app")
        assert fields["container"] == container


@pytest.mark.parametrize("kind", ["cri", "docker"])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**10),
            st.sampled_from(["stdout", "stderr"]),
            st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=9),
        ),
        min_size=1,
        max_size=9,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_block_of_whole_lines_is_the_same_as_line_by_line(kind, rows):
    def line(at: int, stream: str, text: str) -> bytes:
        time = f"2026-01-01T00:{at // 10**9:02d}:00.{at % 10**9:09d}Z"
        if kind == "cri":
            return f"{time} {stream} F {text}".encode()
        return json.dumps({"log": text + "\n", "stream": stream, "time": time}).encode()

    lines = [line(*row) for row in rows]
    fast, _ = assemble(lines, kind, 500)
    slow, _ = assemble([*lines, b"no such format"], kind, 500)
    assert fast.texts == [text.encode() for _, _, text in rows] == slow.texts[:-1]
    assert (fast.streams, fast.first, fast.last) == (slow.streams[:-1], slow.first[:-1], slow.last[:-1])
    assert fast.times == pytest.approx(slow.times[:-1], abs=1e-6)


def test_go_s_classes_and_text_that_is_not_ascii():
    assert expression("^[[:space:]]+at")(b"\t at x")
    assert expression("^[^[:digit:]]")(b"a")
    assert not expression("^[^[:digit:]]")(b"5")
    assert expression("^Fehler: [äö]")("Fehler: öl".encode())
