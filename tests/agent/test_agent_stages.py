"""The stages of an input, block by block: filters, masks, parsing, names, documents."""

from __future__ import annotations

import datetime as dt
import json
import re
import signal
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_agent.config.agent import AgentConfig
from klamm_agent.events import Events
from klamm_agent.lanes.lane import Lane
from klamm_agent.stages import patience
from klamm_agent.stages.filters import anywhere
from klamm_agent.stages.parse.dissect import DissectError, DissectParser
from klamm_agent.stages.parse.fields import get, merge, pop, put
from klamm_agent.stages.parse.json import JsonParser
from klamm_agent.stages.parse.logfmt import LogfmtParser
from klamm_agent.stages.parse.pattern import PatternParser
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import TimeError, Times, stamp
from klamm_base.errors import ConfigError

AT = 1_790_000_000.0


@pytest.fixture
def lane(tmp_path):
    def make(more: str) -> Lane:
        path = tmp_path / "agent.toml"
        path.write_text(
            f'bootstrap_servers = "h:1"\nstate_dir = "s"\n[[inputs]]\npaths = ["x"]\ntopic = "t"\n{more}'
        )
        return Lane(AgentConfig.load(path).inputs[0], host={"name": "h"}, agent_id="a")

    return make


def run(lane: Lane, text: str):
    return lane.block(text.encode(), 100, "/x", AT)


def documents(lane: Lane, text: str) -> list[dict]:
    """Documents without what is the same in all."""
    found = [json.loads(v) for v in run(lane, text).values]
    for document in found:
        assert document.pop("agent") == {"type": "klamm", "id": "a"}
        assert document["host"].pop("name") == "h"
        if not document["host"]:
            del document["host"]
        assert document["log"].pop("file") == {"path": "/x"}
        document["log"].pop("offset")
        if not document["log"]:
            del document["log"]
    return found


def test_what_is_not_asked_for_costs_nothing(lane):
    raw = lane("")
    events = Events([b"\xff a", b"b"], "/x", AT)
    assert raw.run(events).values is events.values
    assert not raw.stages.needs_offsets


def test_filters_in_their_order_with_ranges(lane):
    found = run(lane('include_lines = ["a", "b"]\nexclude_lines = ["ab", "^b$"]'), "a1\nxx\nab\nb\nb2\nzz\n")
    assert found.values == [b"a1", b"b2"]
    included, excluded = found.dropped
    assert (included.reason, included.lines, included.start, included.end) == ("include_lines", 2, 103, None)
    assert (excluded.reason, excluded.lines, excluded.start, excluded.end) == ("exclude_lines", 2, 106, 111)


_FILTERS = [
    r"a",
    r"^a",
    r"a$",
    r"\Aa",
    r"(?<!b)a",
    r"a(?!b)",
    r"(?i)A",
    r"\ba",
    r"a+",
    r"a\b",
    r"(a)b",
    r"a(?:b|c)",
    r"\sa",
    r"[^b]a",
]


@given(
    st.lists(st.text("abc \n", max_size=5), max_size=8),
    st.lists(st.sampled_from(_FILTERS), min_size=1, max_size=3),
)
def test_looking_in_the_whole_block_first_changes_nothing(texts, filters):
    expected = [any(re.search(p, text) for p in filters) for text in texts]
    assert anywhere(filters)(texts) == expected


@pytest.mark.parametrize(
    ("mask", "text", "masked"),
    [
        ('preset = "email"', "to me.x@e-x.org!", "to ***!"),
        ('preset = "credit_card"', "card 4111 1111 1111 1111, no 4111111111111112", "card ***, no 4111111111111112"),
        ('preset = "ipv4"', "from 10.0.0.1:80 v1.2.3", "from ***:80 v1.2.3"),
        ('preset = "secret"', 'password=hunter2 token: "abc" ok', 'password=*** token: "***" ok'),
        ('preset = "bearer"', "Authorization: Bearer abcdefghij", "Authorization: Bearer ***"),
        ('preset = "url_password"', "amqp://u:p@h/x", "amqp://u:***@h/x"),
        ('preset = "jwt"', "t=eyJhbGciOi.eyJzdWIi.sig x", "t=*** x"),
        ('preset = "iban"', "to AT61 1904 3002 3457 3201.", "to ***."),
        ("pattern = '(id)=(\\d+)'\nreplacement = '\\1=<\\2>'", "id=42", "id=<42>"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["raw", "json"])
def test_masks(lane, mask, text, masked, form):
    found = run(lane(f'format = "{form}"\n[[inputs.mask]]\n{mask}'), f"{text}\nnothing here\n").values
    shown = [json.loads(v)["message"] if form == "json" else v.decode() for v in found]
    assert shown == [masked, "nothing here"]


def test_the_same_text_has_the_same_digest(lane):
    masked = lane('[[inputs.mask]]\npreset = "email"\nhash_key = "k"')
    a, b, c = run(masked, "a@e.org\nx a@e.org\nb@e.org\n").values
    assert re.fullmatch(rb"[0-9a-f]{16}", a)
    assert b == b"x " + a
    assert c != a


def test_raw_lines_that_are_no_text_pass_masks_and_filters_as_they_are(lane):
    masked = lane('exclude_lines = ["zz"]\n[[inputs.mask]]\npattern = "secret"')
    found = masked.block(b"\xff secret \xfe\x1e\nzz\n\xc3\n", 0, "/x", AT).values
    assert found == [b"\xff *** \xfe\x1e", b"\xc3"]


def test_json_takes_usual_names_and_keeps_ecs_ones(lane):
    found = documents(
        lane('format = "json"\nparse = "json"'),
        '{"time":1700000000123,"level":30,"msg":"m","trace_id":"t","host":"w","pid":7,"err":"e"}\n'
        '{"@timestamp":"2026-01-02T10:11:12Z","log.level":"warn","message":"m","log":"text","host":{"os":"x"}}\n'
        '{"log":{"level":"x"},"level":"y","n":12345678901234567890}\n',
    )
    assert found == [
        {"@timestamp": "2023-11-14T22:13:20.123Z", "log": {"level": "info"}, "message": "m", "trace": {"id": "t"},
         "host": {"hostname": "w"}, "process": {"pid": 7}, "error": {"message": "e"}},
        {"@timestamp": "2026-01-02T10:11:12.000Z", "log": {"level": "warn"}, "message": "m", "labels": {"log": "text"},
         "host": {"os": "x"}},
        {"@timestamp": "2026-09-21T14:13:20.000Z", "log": {"level": "x"}, "level": "y", "n": 12345678901234567890},
    ]  # fmt: skip


def test_without_ecs_names_stay(lane):
    (found,) = documents(lane('format = "json"\nparse = "json"\necs = false'), '{"msg":"m","time":1}\n')
    assert found == {"@timestamp": "2026-09-21T14:13:20.000Z", "msg": "m", "time": 1}


def test_steps_in_a_row_targets_types_and_names(lane):
    found = documents(
        lane(
            """format = "json"
level = "sev"
original = true
rename = { "kv.user" = "user.name" }
remove = ["kv.drop"]
timestamp = { field = "when", format = "dd.MM.yyyy HH:mm:ss", timezone = "Europe/Vienna" }
[[inputs.parse]]
type = "dissect"
pattern = "[%{when}] %{sev->} %{rest}"
[[inputs.parse]]
type = "logfmt"
field = "rest"
target = "kv"
types = { took = "float", ok = "boolean", n = "int" }
"""
        ),
        '[02.07.2026 10:11:12] WARN   took=1.5 ok=true n=x user="a b" drop=1\n',
    )
    assert found == [
        {
            "@timestamp": "2026-07-02T08:11:12.000Z",
            "message": '[02.07.2026 10:11:12] WARN   took=1.5 ok=true n=x user="a b" drop=1',
            "log": {"level": "WARN"},
            "rest": 'took=1.5 ok=true n=x user="a b" drop=1',
            "kv": {"took": 1.5, "ok": True, "n": "x"},
            "user": {"name": "a b"},
            "event": {"original": '[02.07.2026 10:11:12] WARN   took=1.5 ok=true n=x user="a b" drop=1'},
        }
    ]


def test_a_time_that_cannot_be_read_stays_with_a_tag(lane):
    (found,) = documents(
        lane('format = "json"\nparse = "json"\ntimestamp = { field = "at", format = "ISO8601" }'),
        '{"at":"soon","message":"m"}\n',
    )
    assert found == {
        "@timestamp": "2026-09-21T14:13:20.000Z",
        "message": "m",
        "at": "soon",
        "tags": ["_dateparsefailure"],
    }


@pytest.mark.parametrize("on_error", ["keep", "drop", "dead_letter"])
def test_what_does_not_parse(lane, on_error):
    it = lane(
        f'format = "json"\ndead_letter_topic = "d"\nfields = {{ tags = ["x"] }}\n[[inputs.parse]]\ntype = "json"\non_error = "{on_error}"'
    )
    found = run(it, '{"message":"a"}\nno\n[1]\n{"message":"b"}\n')
    made = [json.loads(v) for v in found.values]
    dead = [json.loads(v) for v in found.dead]
    assert it.stages.counts.parse_failures == 2
    failed = [d for d in (made if on_error == "keep" else dead) if "error" in d]
    assert [d["message"] for d in made if "error" not in d] == ["a", "b"]
    if on_error == "drop":
        (one,) = found.dropped
        assert (one.reason, one.lines, one.start, one.end) == ("parse_error", 2, 116, 123)
        assert not dead
        return
    assert not found.dropped
    assert [d["message"] for d in failed] == ["no", "[1]"]
    assert [d["log"]["offset"] for d in failed] == [116, 119]
    assert failed[0]["tags"] == ["x", "_jsonparsefailure"]
    assert failed[0]["error"]["type"] == "json"
    assert failed[1]["error"]["message"] == "JSON, but no object: an array"


def test_what_inputs_know_goes_into_documents(lane):
    shared = {"stream": "stderr", "container": {"id": "c"}}
    events = Events(
        [b'{"container":{"name":"n"}}', b"x"], "syslog", AT, [], [AT + 1, AT + 2], [shared, shared]
    )
    found = [json.loads(v) for v in lane('format = "json"\nparse = "json"').run(events).values]
    assert found[0]["container"] == {"id": "c", "name": "n"}
    assert found[0]["stream"] == "stderr"
    assert "log" not in found[0]
    assert found[0]["@timestamp"] == "2026-09-21T14:13:21.000Z"
    assert found[1]["message"] == "x"
    assert shared == {"stream": "stderr", "container": {"id": "c"}}


def test_who_sent_it_is_not_for_the_event_to_say(lane):
    it = lane('format = "json"\nparse = "json"')
    found = [
        json.loads(v)
        for v in run(it, '{"agent":{"id":"x","v":1},"log":{"offset":9}}\n{"agent":"Mozilla"}\n').values
    ]
    assert [d["agent"] for d in found] == [{"type": "klamm", "id": "a", "v": 1}, {"type": "klamm", "id": "a"}]
    assert found[0]["log"] == {"offset": 100, "file": {"path": "/x"}}
    assert found[1]["labels"] == {"agent": "Mozilla"}


def test_masked_fields(lane):
    (found,) = documents(
        lane('format = "json"\nparse = "json"\n[[inputs.mask]]\nfields = ["user.email", "user", "no"]'),
        '{"message":"m","user":{"email":"x","id":1}}\n',
    )
    assert found["user"] == "***"


def test_objects_nested_too_deeply_become_text(lane):
    deep = '{"a":' * 300 + "1" + "}" * 300
    bad, good = [
        json.loads(v)
        for v in run(lane('format = "json"\nparse = "json"'), f'{deep}\n{{"message":"m"}}\n').values
    ]
    assert bad["message"] == deep
    assert bad["tags"] == ["_jsonparsefailure"]
    assert bad["log"]["offset"] == 100
    assert good["message"] == "m"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
NAMES = st.sampled_from(["message", "log", "log.level", "host", "host.name", "agent", "tags", "labels", "error", "error.message",
                         "@timestamp", "time", "level", "a.b", "a", "a.b.c", ".x", "x.", "", "event", "msg"])  # fmt: skip


@given(
    st.lists(
        st.dictionaries(NAMES, VALUES, max_size=6).map(orjson.dumps) | st.binary(max_size=10),
        max_size=5,
    )
)
def test_whatever_comes_each_event_is_one_document(tmp_path_factory, lines):
    lines = [line.replace(b"\n", b"").replace(b"\r", b"") or b"x" for line in lines]
    path = tmp_path_factory.getbasetemp() / "any.toml"
    if not path.exists():
        path.write_text(
            'bootstrap_servers = "h:1"\nstate_dir = "s"\n[[inputs]]\npaths = ["x"]\ntopic = "t"\nformat = "json"\nparse = "json"\n'
            'level = "a.b"\noriginal = true\nrename = { a = "log" }\nfields = { labels = { x = 1 }, tags = ["t"] }\n'
        )
    it = Lane(AgentConfig.load(path).inputs[0], host={"name": "h"}, agent_id="a")
    data = b"".join(line + b"\n" for line in lines)
    found = [json.loads(v) for v in it.block(data, 0, "/x", AT).values]
    assert len(found) == len(lines)
    offset = 0
    for document, line in zip(found, lines, strict=True):
        assert document["log"]["offset"] == offset
        assert document["log"]["file"] == {"path": "/x"}
        assert dt.datetime.fromisoformat(document["@timestamp"])
        offset += len(line) + 1


@given(st.lists(st.text(max_size=5), max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_what_is_kept_and_what_is_dropped_is_all(texts, wanted):
    values = [t.encode() for t in texts]
    staged = StagedEvents(Events(values, "/x", AT, list(range(0, 10 * len(values), 10))), errors="replace")
    assert staged.texts == texts
    staged.begin_documents()
    wanted = wanted[: len(values)]
    staged.keep(wanted, "r")
    assert staged.values == [v for v, w in zip(values, wanted, strict=True) if w]
    assert len(staged.docs) == len(staged.values) == len(staged.offsets) == len(staged.bare)
    assert sum(d.lines for d in staged.dropped) == len(values) - len(staged.values)


# ---- patterns that would take for ever


@pytest.fixture
def patient(monkeypatch):
    """Makes the bounds of the agent's main thread small; the text needs years."""
    monkeypatch.setattr(patience, "BLOCK_S", 0.1)
    monkeypatch.setattr(patience, "EVENT_S", 0.1)
    before = signal.getsignal(signal.SIGVTALRM)
    patience.enable()
    yield "a" * 60 + "!"
    patience._timer.enabled = False
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("kind", ["regex", "grok"])
def test_a_text_that_takes_for_ever_is_a_failure_of_its_own(lane, patient, kind):
    it = lane(f'format = "json"\n[[inputs.parse]]\ntype = "{kind}"\npattern = "^(?<x>(?:a+)+)$"')
    first, bad, last = documents(it, f"aaa\n{patient}\naa\n")
    assert (first["x"], last["x"]) == ("aaa", "aa")
    assert bad["message"] == patient
    assert bad["error"]["message"] == "the pattern needs more than 1 s of CPU time"


def test_filters_keep_and_masks_hide_what_they_cannot_look_through(lane, patient):
    kept = run(lane("exclude_lines = ['^(a+)+$']\ninclude_lines = ['^(a+)+$', 'x']"), f"aaa\nx\n{patient}\n")
    assert kept.values == [b"x", patient.encode()]
    hidden = run(lane("[[inputs.mask]]\npattern = '^(a+)+$'\nreplacement = '-'"), f"aaa\nx\n{patient}\n")
    assert hidden.values == [b"-", b"x", b"***"]


# ---- parsers


def test_logfmt():
    parse = LogfmtParser().parse
    assert parse(
        ['level=info msg="it \\"x\\" \\u00e4" took=12ms cached a.b= url=/x?a=b', "text only", 'a="b c']
    ) == [
        {"level": "info", "msg": 'it "x" ä', "took": "12ms", "cached": True, "a": {"b": ""}, "url": "/x?a=b"},
        "not logfmt: there is no name=value",
        "not logfmt: the quote of a does not end",
    ]


@given(st.dictionaries(st.text("abcä_-", min_size=1, max_size=6), st.text(max_size=12), min_size=1))
def test_logfmt_reads_what_is_written(fields):
    line = " ".join(f"{name}={orjson.dumps(value).decode()}" for name, value in fields.items())
    assert LogfmtParser().parse([line]) == [fields]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%{a} %{b}", "1 2 3", {"a": "1", "b": "2 3"}),
        ("%{a->} %{b}", "1    2", {"a": "1", "b": "2"}),
        ("%{?skip} %{} %{b}", "1 2 3", {"b": "3"}),
        ("%{+t/2} %{+t/1} %{x}", "a b c", {"t": "b a", "x": "c"}),
        ("%{*k}=%{&k}", "x.y=1", {"x": {"y": "1"}}),
        ("[%{a.b}]", "[x]", {"a": {"b": "x"}}),
        ("[%{a}]", "x]", "does not begin with '['"),
        ("%{a}]", "x", "has no ']' behind a"),
        ("%{a}]", "x] y", "goes on behind the pattern: ' y'"),
    ],
)
def test_dissect(pattern, text, expected):
    assert DissectParser(pattern).parse([text]) == [expected]


@given(st.lists(st.text("abc ", max_size=4), min_size=1, max_size=5))
def test_dissect_cuts_what_was_joined(parts):
    pattern = "|".join(f"%{{f{i}}}" for i in range(len(parts)))
    assert DissectParser(pattern).parse(["|".join(parts)]) == [{f"f{i}": p for i, p in enumerate(parts)}]


@pytest.mark.parametrize("pattern", ["none", "%{a}%{b}", "%{*a} %{b}", "%{+} x"])
def test_dissect_refuses_patterns(pattern):
    with pytest.raises(DissectError, match=re.escape(pattern)):
        DissectParser(pattern)


def test_patterns_in_their_order_and_nested_captures():
    parser = PatternParser(["^%{INT:n:int} (?<a.b>x(?<a.c>y)?)", "%{WORD:w}"])
    assert parser.parse(["12 x", "3 xy", "zz", "--"]) == [
        {"n": 12, "a": {"b": "x"}},
        {"n": 3, "a": {"b": "xy", "c": "y"}},
        {"w": "zz"},
        "matches none of the 2 patterns",
    ]
    assert PatternParser(["%{NUMBER:x:float}"]).parse(["1e", "9" * 400]) == [{"x": 1.0}, {"x": "9" * 400}]
    assert PatternParser(["%{INT:x:int}"]).parse(["9" * 20]) == [{"x": "9" * 20}]


def test_json_says_what_is_wrong():
    first, second = JsonParser().parse(['{"a":}', "null"])
    assert first.startswith("not JSON: unexpected character")
    assert second == "JSON, but no object: null"


# ---- documents


def test_fields_by_dotted_names():
    document = {"a": {"b": 1}, "t": "text"}
    assert (get(document, "a.b"), get(document, "a.b.c"), get(document, "x")) == (1, None, None)
    put(document, "t.x", 2)
    put(document, "a", 3)
    assert document == {"a": {"b": 1}, "t": "text", "labels": {"t_x": 2, "a": 3}}
    assert pop(document, "a.b") == 1
    assert "a" not in document
    merge(document, {"t": {"y": 1}})
    assert document["t"] == {"y": 1}
    assert document["labels"]["t"] == "text"


# ---- times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T10:11:12.123456Z", "2026-01-02T10:11:12.123456Z"),
        ("2026-01-02 10:11:12,123", "2026-01-02T10:11:12.123Z"),
        ("2026-01-02T10:11:12+02:00", "2026-01-02T08:11:12.000Z"),
        ("17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03.000Z"),
        ("Nov  2 10:01:02", "2025-11-02T10:01:02.000Z"),
        ("Sep 30 10:01:02", "2026-09-30T10:01:02.000Z"),
        ("Feb 29 10:00:00", "2024-02-29T10:00:00.000Z"),
        (1_700_000_000, "2023-11-14T22:13:20.000Z"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500Z"),
        ("1700000000123", "2023-11-14T22:13:20.123Z"),
        ("Fri Sep 09 10:42:29.902022 2011", "2011-09-09T10:42:29.902022Z"),
    ],
)  # fmt: skip
def test_usual_times(text, expected):
    assert stamp(Times(timezone="UTC").parse(text, AT)) == expected


@pytest.mark.parametrize(
    "text", ["soon", "", None, True, [], 12, "2026-13-01", float("nan"), 1e300, "Nov 31 10:00:00"]
)
def test_what_is_no_time(text):
    assert Times(timezone="UTC").parse(text, AT) is None


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("dd/MMM/yyyy:HH:mm:ss Z", "17/May/2015:10:05:03 +0200", "2015-05-17T08:05:03.000Z"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2026-01-02T10:11:12.123+01:00", "2026-01-02T09:11:12.123Z"),
        ("%d.%m.%y %H:%M", "02.07.26 10:11", "2026-07-02T08:11:00.000Z"),
        ("MMdd HH:mm:ss.SSSSSS", "0102 10:11:12.123456", "2026-01-02T09:11:12.123456Z"),
        ("yyyy-MM-dd HH:mm:ss,SSS", "2026-07-02 10:11:12,5", "2026-07-02T08:11:12.500Z"),
        ("UNIX_NS", "1700000000123456789", "2023-11-14T22:13:20.123457Z"),
    ],
)
def test_times_by_format(form, text, expected):
    assert stamp(Times([form], "Europe/Vienna").parse(text, AT)) == expected


def test_the_year_of_a_text_is_not_remembered():
    times = Times(timezone="UTC")
    years = [stamp(times.parse("Nov  2 10:01:02", AT + years * 366 * 86400))[:4] for years in range(3)]
    assert all(int(b) == int(a) + 1 for a, b in pairwise(years))


@pytest.mark.parametrize(("form", "zone"), [("yyyy-QQ", "UTC"), ("%Q", "UTC"), ("auto", "Mars/Olympus")])
def test_formats_and_zones_that_nobody_knows(form, zone):
    with pytest.raises(TimeError):
        Times([form], zone)


@given(st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2200, 1, 1)))  # noqa: DTZ001 - as Hypothesis wants them
def test_stamps_are_read_as_they_are_written(time):
    seconds = time.replace(tzinfo=dt.UTC).timestamp()
    assert Times(["ISO8601"]).parse(stamp(seconds), AT) == pytest.approx(seconds, abs=1e-6)


# ---- configuration


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('parse = "json"', r'agent.toml:6: \[inputs\[0\]\] parse has an effect with format = "json" only'),
        ('format = "json"\n[[inputs.parse]]\ntype = "grog"', r"agent.toml:8: \[inputs\[0\].parse\[0\]\] type = 'grog': one of json, logfmt"),
        ('format = "json"\n[[inputs.parse]]\npattern = "x"', r"\[inputs\[0\].parse\[0\]\] type is missing: one of"),
        ('format = "json"\n[[inputs.parse]]\ntype = "grok"\npattern = "%{X}"', "agent.toml:9: .* pattern cannot be used: .*no pattern 'X' is known"),
        ('format = "json"\n[[inputs.parse]]\ntype = "json"\npattern = "x"', "pattern is not a setting"),
        ('format = "json"\n[[inputs.parse]]\ntype = "json"\non_error = "dead_letter"', "dead_letter_topic is missing"),
        ('format = "json"\n[[inputs.parse]]\ntype = "json"\ntypes = { a = "x" }', "types says a = 'x': one of string, int"),
        ('format = "json"\n[[inputs.parse]]\ntype = "grok"\npattern = "x"\npattern_files = ["no"]', "pattern_files = 'no': cannot be read"),
        ('exclude_lines = ["("]', r"exclude_lines = '\(': not a regular expression"),
        ('[[inputs.mask]]\npattern = "x"\nreplacement = "\\\\2"', "replacement = .*invalid group reference"),
        ('[[inputs.mask]]\nreplacement = "x"', "pattern or preset or fields: one of them"),
        ('[[inputs.mask]]\npreset = "mail"', "preset = 'mail': one of email"),
        ('format = "json"\ntimestamp = { field = "t", format = "QQ" }', "format cannot be used: 'QQ'"),
        ('format = "json"\ntimestamp = { timezone = "Mars" }', "timezone cannot be used: 'Mars'"),
        ('format = "json"\nlevel = "a b"', "level = 'a b': a field such as"),
        ('format = "json"\nrename = { a = 1 }', "rename says a = 1: a text is expected"),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_key(lane, more, why):
    with pytest.raises(ConfigError, match=why):
        lane(more)


def test_dead_letters_have_the_names_of_others_and_hide_the_same_fields(lane):
    found = run(
        lane(
            'format = "json"\ndead_letter_topic = "d"\nremove = ["secret"]\nrename = { mail = "user.email" }\n'
            '[[inputs.parse]]\ntype = "json"\n[[inputs.parse]]\ntype = "grok"\nfield = "code"\npattern = "^%{INT:n}$"\n'
            'on_error = "dead_letter"\n[[inputs.mask]]\nfields = ["user.email"]'
        ),
        '{"code":"x","mail":"a@b.c","secret":"s","level":"info","time":"2024-05-01T12:00:00Z"}\n',
    )
    assert found.values == []
    (dead,) = map(json.loads, found.dead)
    assert dead["user"] == {"email": "***"}
    assert dead["log"]["level"] == "info"
    assert dead["@timestamp"] == "2024-05-01T12:00:00.000Z"
    assert not {"secret", "mail", "time"} & dead.keys()
    assert dead["tags"] == ["_grokparsefailure"]


@pytest.mark.parametrize(
    "more", ["", '[[inputs.parse]]\ntype = "json"\ntarget = "t"', "[inputs.fields]\na.a.b = 1"]
)
@pytest.mark.parametrize("depth", [300, 1020])
def test_no_nesting_ends_the_agent(lane, more, depth):
    parse = "" if "parse" in more else 'parse = "json"\n'
    deep = '{"a":' * depth + "1" + "}" * depth
    (value,) = run(lane(f'format = "json"\n{parse}{more}'), f"{deep}\n").values
    assert json.loads(value)["message"] == deep


def test_what_no_calendar_has_is_shown_as_its_end():
    assert stamp(1e12) == "9999-12-31T00:00:00.000Z"
    assert stamp(-1e12) == "0001-01-02T00:00:00.000Z"
