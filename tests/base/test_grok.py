"""Grok's patterns: lines of programs with what they mean, in Python's dialect and in Java's."""

from __future__ import annotations

import re
import re._parser as sre  # type: ignore[import-not-found]
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.grok import GrokError, expand, parse_definitions, patterns

LINES = [
    (
        "COMBINEDAPACHELOG",
        '83.149.9.216 - frank [17/May/2015:10:05:03 +0000] "GET /a.png?x=1 HTTP/1.1" 200 203023 "http://e.org/" "Mozilla/5.0 (X; \\"Y\\")"',
        {
            "source.address": "83.149.9.216",
            "user.name": "frank",
            "timestamp": "17/May/2015:10:05:03 +0000",
            "http.request.method": "GET",
            "url.original": "/a.png?x=1",
            "http.version": "1.1",
            "http.response.status_code": "200",
            "http.response.body.bytes": "203023",
            "http.request.referrer": "http://e.org/",
            "user_agent.original": 'Mozilla/5.0 (X; \\"Y\\")',
        },
    ),
    (
        "COMMONAPACHELOG",
        '::1 - - [17/May/2015:10:05:03 +0000] "-" 408 -',
        {
            "source.address": "::1",
            "timestamp": "17/May/2015:10:05:03 +0000",
            "http.response.status_code": "408",
        },
    ),
    (
        "SYSLOGLINE",
        "Nov  2 10:01:02 web-1 sshd[123]: Accepted password for x",
        {
            "timestamp": "Nov  2 10:01:02",
            "host.hostname": "web-1",
            "process.name": "sshd",
            "process.pid": "123",
            "message": "Accepted password for x",
        },
    ),
    (
        "SYSLOG5424LINE",
        '<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 [x@1 a="b ] \\" c"] failed',
        {
            "log.syslog.priority": "34",
            "system.syslog.version": "1",
            "timestamp": "2003-10-11T22:14:15.003Z",
            "host.hostname": "mymachine.example.com",
            "process.name": "su",
            "event.code": "ID47",
            "message": "failed",
        },
    ),
    (
        "NGINXERROR",
        "2026/01/02 10:11:12 [error] 12#34: *5 open() failed",
        {
            "timestamp": "2026/01/02 10:11:12",
            "log.level": "error",
            "process.pid": "12",
            "process.thread.id": "34",
            "nginx.error.connection_id": "5",
            "message": "open() failed",
        },
    ),
    (
        "HTTPD_ERRORLOG",
        "[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 43286] [client 72.15.99.187:55] AH00128: no file",
        {
            "timestamp": "Fri Sep 09 10:42:29.902022 2011",
            "apache.error.module": "core",
            "log.level": "error",
            "process.pid": "35708",
            "process.thread.id": "43286",
            "source.address": "72.15.99.187",
            "source.port": "55",
            "error.code": "AH00128",
            "message": "no file",
        },
    ),
    (
        "KAFKALOG",
        "[2026-01-02 10:11:12,123] INFO Started (x) (kafka.server.KafkaServer)",
        {
            "timestamp": "2026-01-02 10:11:12,123",
            "log.level": "INFO",
            "message": "Started (x)",
            "log.logger": "kafka.server.KafkaServer",
        },
    ),
    (
        "PYTHONLOG",
        "2026-01-02 10:11:12,123 - app.x - ERROR - boom\nTraceback",
        {
            "timestamp": "2026-01-02 10:11:12,123",
            "log.logger": "app.x",
            "log.level": "ERROR",
            "message": "boom\nTraceback",
        },
    ),
    (
        "POSTGRESQL",
        "2026-01-02 10:11:12.123 UTC [77] app@db ERROR:  relation x",
        {
            "timestamp": "2026-01-02 10:11:12.123",
            "event.timezone": "UTC",
            "process.pid": "77",
            "user.name": "app",
            "postgresql.log.database": "db",
            "log.level": "ERROR",
            "message": "relation x",
        },
    ),
    (
        "URI",
        "https://u:p@example.org:80/a/b?c=d",
        {
            "url.scheme": "https",
            "url.username": "u",
            "url.domain": "example.org",
            "url.port": "80",
            "url.path": "/a/b",
            "url.query": "c=d",
        },
    ),
]


@pytest.mark.parametrize(("name", "line", "expected"), LINES, ids=[case[0] for case in LINES])
def test_lines_of_programs(name, line, expected):
    expanded = expand(f"^%{{{name}}}$")
    match = re.search(expanded.regex, line)
    found: dict[str, str] = {}
    for field in expanded.fields:
        if match[field.group] is not None:
            found.setdefault(field.name, match[field.group])
    assert found == expected


def test_groups_of_fields_are_numbered_among_all_groups():
    assert expand(r"(a|\()(?<x>b[(])(c)%{INT:y}", dialect="java").numbers == (2, 4)


@pytest.mark.parametrize("name", sorted(patterns()))
def test_every_pattern_compiles_and_captures_in_order(name):
    expanded = expand(f"%{{{name}:whole}}")
    compiled = re.compile(expanded.regex)
    assert compiled.groups == len(expanded.fields), "a group that captures without a name"
    assert [compiled.groupindex[f.group] for f in expanded.fields] == list(range(1, compiled.groups + 1))
    assert expanded.fields[0].name == "whole"
    assert expand(f"%{{{name}:whole}}", dialect="java").fields == expanded.fields


def _recursive(parsed):
    """Yields repetitions of a group without a small bound, from which Java goes back by recursion: a deep line ends the process."""
    for operation, value in parsed:
        if operation in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
            _, most, body = value
            if most > 1000 and (len(body) > 1 or body[0][0] in {sre.SUBPATTERN, sre.BRANCH}):
                yield body
        for part in value if isinstance(value, tuple) else ():
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, sre.SubPattern):
                    yield from _recursive(inner)


@pytest.mark.parametrize("name", sorted(patterns()))
def test_no_pattern_needs_a_stack_as_deep_as_a_line_is_long(name):
    assert list(_recursive(sre.parse(expand(f"%{{{name}}}").regex))) == []


def test_repetitions_that_need_a_stack_are_found():
    for bad in (r'"(?:[^"]|\\.)*"', r"(?:a|bc)+?", r"((?:ab)+)x", r"a|(?:(?:ab)*c){2}"):
        assert list(_recursive(sre.parse(bad))), bad


@pytest.mark.parametrize("address", ["1.2.3.4", "255.255.255.255", "::1", "fe80::1%eth0", "2001:db8::ff00:42:8329",
                                     "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "::", "1::"])  # fmt: skip
def test_addresses(address):
    assert re.fullmatch(expand("%{IP}").regex, address)


@pytest.mark.parametrize("text", ["256.1.1.1", "1.2.3", "1:2:3:4:5:6:7:8:9", "12345::", "1::2::3", ":::"])
def test_what_is_no_address(text):
    assert not re.fullmatch(expand("%{IP}").regex, text)


@given(st.ip_addresses())
def test_any_address_is_one(address):
    assert re.fullmatch(expand("%{IP}").regex, str(address))


@given(st.ip_addresses(v=6))
def test_any_address_written_out_is_one(address):
    assert re.fullmatch(expand("%{IP}").regex, address.exploded)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("%{NOPE}", "no pattern 'NOPE' is known"),
        ("%{INT:a b}", "is not a field"),
        ("%{INT:a:text}", "'text' is not one of string, int"),
        ("%{INT:a", "has no closing brace"),
        ("(", "not a regular expression"),
        ("%{A}", "A refers to itself: A → B → A"),
        ("(?<x>a)(?P=x)", "refers to a group"),
        ("%{LARGE}", "more than 200000 characters"),
    ],
)
def test_errors_say_what_is_wrong(pattern, why):
    definitions = {"A": "%{B}", "B": "x%{A}", "L1": "a" * 30_000, "LARGE": "%{L1}" * 10}
    with pytest.raises(GrokError, match=re.escape(why)):
        expand(pattern, definitions)


def test_fields_in_brackets_classes_of_posix_and_own_captures():
    expanded = expand(r"%{INT:[a][b]:int} (?<c.d>[[:alpha:]&&[]+) (?P<e>\h{2})")
    assert [(f.name, f.type) for f in expanded.fields] == [("a.b", "int"), ("c.d", "string"), ("e", "string")]
    match = re.search(expanded.regex, "12 x[& aF")
    assert match.groups() == ("12", "x[&", "aF")


def test_definitions_are_read_from_text():
    assert parse_definitions("# comment\n\nA a b\nB_2   c\n", "f") == {"A": "a b", "B_2": "c"}
    with pytest.raises(GrokError, match="f:2: 'A' is not NAME and an expression"):
        parse_definitions("# x\nA\n", "f")


def test_without_references_a_brace_is_a_brace():
    assert re.search(expand(r"^%\{(?<a>x)\}$", references=False).regex, "%{x}")


JAVA = """
import java.nio.file.*;
import java.util.regex.*;
public class Grok {
  public static void main(String[] args) throws Exception {
    for (String line : Files.readAllLines(Path.of(args[0]))) {
      String[] parts = line.split("\\u0001", -1);
      Matcher m = Pattern.compile(parts[0]).matcher(parts[1].replace("\\u0002", "\\n"));
      StringBuilder found = new StringBuilder();
      if (m.find()) for (int i = 1; i <= m.groupCount(); i++) found.append(m.group(i) == null ? "" : m.group(i).replace("\\n", "\\u0002")).append('\\u0001');
      System.out.println(found);
    }
  }
}
"""


@pytest.mark.usefixtures("java_runtime")
def test_java_finds_what_python_finds(tmp_path):
    (tmp_path / "Grok.java").write_text(JAVA)
    cases = [(f"%{{{name}}}", line) for name in patterns() for _, line, _ in LINES]
    rows = [f"{expand(p, dialect='java').regex}\x01{line}".replace("\n", "\x02") for p, line in cases]
    (tmp_path / "cases").write_text("\n".join(rows) + "\n")
    ran = subprocess.run(
        ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", str(tmp_path / "Grok.java"), str(tmp_path / "cases")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for (pattern, line), found in zip(cases, ran.stdout.splitlines(), strict=True):
        match = re.search(expand(pattern).regex, line)
        groups = [] if match is None else [g or "" for g in match.groups()]
        assert found.split("\x01")[:-1] == [g.replace("\n", "\x02") for g in groups], (pattern, line)
