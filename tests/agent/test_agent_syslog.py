"""Syslog messages as events: the formats of RFC 3164 and RFC 5424, and what is met besides."""

from __future__ import annotations

import datetime as dt
import json
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_agent.events import Events
from klamm_agent.stages.document import Documents
from klamm_agent.stages.shared_fields import SharedFields
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.syslog.messages import FACILITIES, SEVERITIES, Parser, structured_data
from klamm_agent.syslog.times import Times

NOW = dt.datetime(2026, 11, 22, 12, 0, 0, tzinfo=dt.UTC).timestamp()
CAME = "2026-11-22T12:00:00+00:00"

# message; text; time; host, application, process id
CASES = [
    (
        b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick",
        b"'su root' failed for lonvick", "2026-10-11T22:14:15+00:00", ("mymachine", "su", None),
    ),
    (b"<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!", b"Use the BFG!", "2026-02-05T17:32:18+00:00", ("10.0.0.99", None, None)),
    (
        b"<165>Aug 24 05:34:00 CST 1987 mymachine myproc[10]: %% It's time",
        b"%% It's time", "2026-08-24T05:34:00+00:00", ("mymachine", "myproc", "10"),
    ),
    (b"<30>Oct  1 01:02:03 sshd[7]: x", b"x", "2026-10-01T01:02:03+00:00", (None, "sshd", "7")),
    (b"<30>Oct  1 01:02:03 (systemd)[1]: x", b"x", "2026-10-01T01:02:03+00:00", (None, "(systemd)", "1")),
    (b"<30>Oct  1 01:02:03 fe80::1 sshd[7]: x", b"x", "2026-10-01T01:02:03+00:00", ("fe80::1", "sshd", "7")),
    (b"<30>Oct  1 01:02:03 WEB cron: a: b", b"a: b", "2026-10-01T01:02:03+00:00", ("WEB", "cron", None)),
    (b"<30>Oct  1 01:02:03 h postfix/smtpd[7]: x", b"x", "2026-10-01T01:02:03+00:00", ("h", "postfix/smtpd", "7")),
    (
        b"<30>2026-11-22T03:03:18.123456+01:00 host rsyslogd: start",
        b"start", "2026-11-22T02:03:18.123456+00:00", ("host", "rsyslogd", None),
    ),
    (
        b"<189>42: Oct 11 22:14:15.123: %SYS-5-CONFIG_I: Configured",
        b"Configured", "2026-10-11T22:14:15.123000+00:00", (None, "%SYS-5-CONFIG_I", None),
    ),
    (
        b"<189>29: sw1: *Apr  8 13:58:40.411 UTC: %LINK-3-UPDOWN: down",
        b"down", "2026-04-08T13:58:40.411000+00:00", (None, "%LINK-3-UPDOWN", None),
    ),
    (b"<166>Oct 11 2023 22:14:15 asa1 : %ASA-6-302013: Built", b"Built", "2023-10-11T22:14:15+00:00", ("asa1", "%ASA-6-302013", None)),
    (b"<14>error: no header", b"error: no header", CAME, (None, None, None)),
    (b"<30>docker/abc[123]: hi", b"hi", CAME, (None, "docker/abc", "123")),
    (b"<34>Feb 30 22:14:15 h su: no such day", b"no such day", CAME, ("h", "su", None)),
    (b"<34>", b"", CAME, (None, None, None)),
    (
        b'<165>1 2003-10-11T22:14:15.003Z m evntslog 17 ID47 [x@1 a="1"] \xef\xbb\xbfAn event',
        b"An event", "2003-10-11T22:14:15.003000+00:00", ("m", "evntslog", "17"),
    ),
    (b"<14>1 - h a - - -  rsyslog's space", b"rsyslog's space", CAME, ("h", "a", None)),
    (b"<14>1 - h a - - -   indented", b"  indented", CAME, ("h", "a", None)),
    (b"<165>1 - - - - - -", b"", CAME, (None, None, None)),
    (b"<165>1 - h a - - - \xe4", b"\xe4", CAME, ("h", "a", None)),
    (b"<34>1 2003-10-11T22:14:15.003Z h a - - text without data", b"text without data", "2003-10-11T22:14:15.003000+00:00", ("h", "a", None)),
    (b'<34>1 2003-10-11T22:14:15.003Z h a - - [x y="]', b'[x y="]', "2003-10-11T22:14:15.003000+00:00", ("h", "a", None)),
]  # fmt: skip


def parse(message, parser=None, peer=""):
    texts, times, fields = (parser or Parser(dt.UTC)).parse([message], [peer], NOW)
    return texts[0], dt.datetime.fromtimestamp(times[0], tz=dt.UTC).isoformat(), fields[0]


@pytest.mark.parametrize(("message", "text", "time", "sender"), CASES, ids=[str(c[0][:40]) for c in CASES])
def test_messages_and_what_they_say(message, text, time, sender):
    found, at, fields = parse(message)
    syslog = fields["log"]["syslog"]
    assert (found, at) == (text, time)
    assert tuple(syslog.get(name) for name in ("hostname", "appname", "procid")) == sender
    assert fields.get("host", {}).get("name") == sender[0]
    assert fields.get("process", {}).get("name") == sender[1]


def test_fields_of_a_message():
    message = b'<165>1 2003-10-11T22:14:15.003Z m app 17 ID47 [x@1 a="1" a="2" b="q\\"\\]\\\\n"][y] text'
    _, _, fields = parse(message, peer="10.1.1.1:514")
    assert fields == {
        "log": {
            "level": "notice",
            "source": {"address": "10.1.1.1:514"},
            "syslog": {
                "priority": 165,
                "facility": {"code": 20, "name": "local4"},
                "severity": {"code": 5, "name": "notice"},
                "hostname": "m",
                "appname": "app",
                "procid": "17",
                "msgid": "ID47",
                "version": "1",
                "structured_data": {"x@1": {"a": ["1", "2"], "b": 'q"]\\n'}, "y": {}},
            },
        },
        "host": {"name": "m"},
        "process": {"name": "app", "pid": 17},
    }


@pytest.mark.parametrize("message", [b"no priority", b"<999>x", b"<x>", b"", b"<1", b"\xff\xfe"])
def test_what_has_no_priority_is_an_event_with_its_whole_text(message):
    parser = Parser(dt.UTC)
    assert parse(message, parser) == (message, CAME, {})
    assert parser.unparsed == 1


def test_a_year_is_the_latest_that_is_not_in_the_future():
    times = Times(dt.UTC)
    new_year = dt.datetime(2027, 1, 1, 0, 0, 5, tzinfo=dt.UTC).timestamp()
    assert times.of(b"Dec 31 23:59:59", new_year) == new_year - 6
    assert times.of(b"Jan  1 00:00:10", new_year) == new_year + 5, "a clock that is ahead"
    old_year = dt.datetime(2026, 12, 31, 23, 59, 55, tzinfo=dt.UTC).timestamp()
    assert times.of(b"Jan  1 00:00:05", old_year) == old_year + 10
    leap = dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC).timestamp()
    assert Times(dt.UTC).of(b"Feb 29 01:00:00", NOW) == leap, "the last year that has such a day"


def test_times_without_zone_are_of_the_input():
    vienna = Times(zoneinfo.ZoneInfo("Europe/Vienna"))
    assert vienna.of(b"Jul  1 12:00:00", NOW) == dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC).timestamp()
    assert vienna.of(b"Nov  1 12:00:00", NOW) == dt.datetime(2026, 11, 1, 11, tzinfo=dt.UTC).timestamp()
    assert vienna.of(b"2026-07-01T12:00:00Z", NOW) == dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC).timestamp()
    assert (
        vienna.of(b"2026-07-01 12:00:00,5", NOW)
        == dt.datetime(2026, 7, 1, 10, 0, 0, 500_000, tzinfo=dt.UTC).timestamp()
    )
    assert vienna.of(b"2016-12-31T23:59:60Z", NOW) == dt.datetime(2017, 1, 1, tzinfo=dt.UTC).timestamp()


WORD = st.text(
    st.characters(codec="ascii", min_codepoint=33, max_codepoint=126, exclude_characters='=]"'),
    min_size=1,
    max_size=12,
)
VALUE = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def written(parameters):
    escaped = {
        k: v.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]") for k, v in parameters.items()
    }
    return "".join(f' {k}="{v}"' for k, v in escaped.items())


@given(st.dictionaries(WORD, st.dictionaries(WORD, VALUE, max_size=4), min_size=1, max_size=4), VALUE)
def test_structured_data_comes_back_whatever_it_holds(elements, text):
    data = "".join(f"[{name}{written(parameters)}]" for name, parameters in elements.items())
    assert structured_data(data.encode()) == elements
    found, _, fields = parse(f"<14>1 - h a - - {data} {text}".encode())
    assert fields["log"]["syslog"]["structured_data"] == elements
    assert found.strip() == text.encode().removeprefix(b"\xef\xbb\xbf").strip()


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"<14>", b"<14>1 ", b"<14>Oct 11 22:14:15 ", b"<14>1 - h a - - ["]),
)
def test_garbage_is_an_event_and_can_be_written(rest, start):
    text, _, fields = parse(start + rest)
    assert (start + rest).endswith(text)
    assert json.dumps(fields)


@given(st.integers(0, 23), st.integers(0, 7))
def test_priorities(facility, severity):
    _, _, fields = parse(b"<%d>x" % (facility * 8 + severity))
    assert fields["log"]["level"] == SEVERITIES[severity]
    assert fields["log"]["syslog"]["facility"] == {"code": facility, "name": FACILITIES[facility]}


def test_senders_share_their_fields_and_data_of_one_message_is_its_own():
    parser = Parser(dt.UTC)
    messages = [b"<14>1 - h a - - - x", b'<14>1 - h a - - [i k="1"] x', b"<14>1 - h a - - - x"]
    _, _, fields = parser.parse(messages, ["p"] * 3, NOW)
    assert fields[0] is fields[2]
    assert "structured_data" not in fields[0]["log"]["syslog"]
    assert fields[1]["log"]["syslog"]["structured_data"] == {"i": {"k": "1"}}


def test_documents_of_shared_fields_are_the_documents():
    base = {
        "host": {"name": "agent", "os": {"type": "linux"}},
        "agent": {"id": "a"},
        "service": {"name": "shop"},
    }
    documents = Documents(base)
    messages = [
        b'<14>1 - h a - - - \xff "x" \n',
        b'<14>1 - h a - - [i k="1"] two',
        b"no priority",
        b"<14>1 - h a - - - again",
    ]
    texts, times, fields = Parser(dt.UTC).parse(messages, ["1.2.3.4:5"] * 4, NOW)
    events = Events(texts, "syslog://udp:514", NOW, times=[*times[:3], NOW + 0.25], fields=fields)
    staged = StagedEvents(events, errors="replace")
    staged.begin_documents()
    wrapped = list(map(json.loads, SharedFields(documents).wrap(events)))
    assert wrapped == list(map(json.loads, documents.build(staged)))
    assert wrapped[0]["host"]["name"] == "h"
    assert wrapped[2]["host"]["name"] == "agent"


@pytest.mark.parametrize(
    "stamp", [b"0001-01-01T00:00:00+05:00", b"9999-12-31T23:59:59-05:00", b"9999-12-31T23:59:60Z"]
)
@pytest.mark.parametrize("form", [b"<13>%b host app: x", b"<13>1 %b host app - - - x"])
def test_a_time_that_utc_has_not_is_the_time_of_arrival(stamp, form):
    """Nobody may end the agent with a datagram."""
    _, times, fields = Parser(dt.UTC).parse([form % stamp], ["p"], NOW)
    assert times == [NOW]
    wrapped = SharedFields(Documents({})).wrap(
        Events([b"x"], "syslog://udp:514", NOW, times=times, fields=fields)
    )
    assert json.loads(wrapped[0])["@timestamp"] == "2026-11-22T12:00:00.000Z"
