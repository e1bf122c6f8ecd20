"""References in configurations, and secrets out of texts."""

from __future__ import annotations

import html
import json
import logging
import re
import time
from urllib.parse import quote, quote_plus
from xml.sax import saxutils

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from klamm_base.redaction import (
    RedactingFilter,
    Redactor,
    has_hidden_login,
    is_secret_name,
    secret_values,
    without_logins,
)
from klamm_base.references import Reference, references_in, replaced, with_references

PART = st.text("abcXYZ/._-0", min_size=1, max_size=8)


@given(st.lists(st.tuples(PART, PART, PART), max_size=4), st.text("ab ${}:", max_size=10))
def test_every_reference_is_found_and_replaced(parts, tail):
    wanted = [Reference(p, path, k) for p, path, k in parts]
    text = "-".join(map(str, wanted))
    assert references_in(text) == wanted
    assert replaced(text, lambda r: f"<{r.key}>") == "-".join(f"<{r.key}>" for r in wanted)
    assert replaced(text + tail, lambda _r: None) == text + tail


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${env:HOME}", [Reference("env", "", "HOME")]),
        ("${file:/a.properties:b:c}", [Reference("file", "/a.properties", "b:c")]),
        ("jdbc://${env:H}:${env:P}/x", [Reference("env", "", "H"), Reference("env", "", "P")]),
        ("${topic}", []),
        ("$env:HOME", []),
    ],
)
def test_the_forms_of_a_reference(text, found):
    assert references_in(text) == found


def test_a_value_is_not_searched_for_references():
    assert replaced("${env:A}", lambda _r: "${env:B}") == "${env:B}"


def test_task_configs_get_their_references_back():
    raw = {"password": "${file:/s:p}", "url": "h:${env:PORT}", "tasks": "2"}
    values = {Reference("file", "/s", "p"): "hunter2!", Reference("env", "", "PORT"): "5432"}
    made = [{"password": "hunter2!", "url": "h:5432", "tasks": "5432", "dsn": "ann:hunter2!@h"}]
    assert with_references(made, raw, values) == [
        {"password": "${file:/s:p}", "url": "h:${env:PORT}", "tasks": "5432", "dsn": "ann:${file:/s:p}@h"}
    ]


@pytest.mark.parametrize(
    "name",
    ["connection.password", "sasl.jaas.config", "ssl.key.password", "aws.secret.access.key", "db.PassWord",
     "ssl.keystore.key", "es.api.key", "basic.auth.credentials.source.token", "notifier.ops.authorization", "http.headers.Authorization"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["topic", "key.converter", "sasl.oauthbearer.token.endpoint.url", "secret.file", "tokens.ms", "ssl.keystore.location",
     "http.authorization.type"],
)  # fmt: skip
def test_names_that_only_sound_like_it(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("address", "shown", "secrets"),
    [
        ("jdbc:mysql://h/db?user=u&password=s3cret&x=1", "jdbc:mysql://h/db?user=u&password=[hidden]&x=1", {"s3cret"}),
        ("mysql://u:p%40ss@h:3306/db", "mysql://u:[hidden]@h:3306/db", {"p%40ss", "p@ss"}),
        ("https://a:one1@x:9200,https://b:two2@y", "https://a:[hidden]@x:9200,https://b:[hidden]@y", {"one1", "two2"}),
        ("jdbc:oracle:thin:scott/tiger@//h:1521/S", "jdbc:oracle:thin:scott/[hidden]@//h:1521/S", {"tiger"}),
        ("jdbc:oracle:thin:@//h:1521/S", "jdbc:oracle:thin:@//h:1521/S", set()),
        ("jdbc:sqlserver://h;user=u;password={a;b}}c};encrypt=false", "jdbc:sqlserver://h;user=u;password=[hidden];encrypt=false", {"{a;b}}c}"}),
        ("mysql://u:${file:/s:p}@h/db", "mysql://u:${file:/s:p}@h/db", set()),
        ("http://h:8080/a?to=b", "http://h:8080/a?to=b", set()),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db", set()),
        ("a:9092,SSL://b:9093", "a:9092,SSL://b:9093", set()),
    ],
)  # fmt: skip
def test_passwords_in_addresses(address, shown, secrets):
    assert without_logins(address) == shown
    assert without_logins(shown) == shown
    assert has_hidden_login(shown) is bool(secrets)
    assert set(secret_values({"connection.url": address})) == secrets


def test_the_password_of_a_jaas_line_is_a_secret_of_its_own():
    line = 'a.PlainLoginModule required username="ann" password="hunter2!";'
    assert secret_values({"sasl.jaas.config": line, "topic": "t", "odd": "x1234"}, ["odd"]) == [
        line,
        "hunter2!",
        "x1234",
    ]


@given(st.lists(st.text("abc", min_size=4, max_size=8), max_size=5), st.text("abc ", max_size=40))
def test_nothing_that_is_to_be_hidden_shows(secrets, text):
    shown = Redactor(secrets).redact(text)
    assert not any(secret in shown.replace("[hidden]", "|") for secret in secrets)
    if not any(secret in text for secret in secrets):
        assert shown == text


def test_short_values_are_left_and_long_ones_go_first():
    redactor = Redactor(["a", "pass", "password1", "true"])
    assert redactor.redact("it is true") == "it is true"
    assert redactor.redact("a password1 pass") == "a [hidden] [hidden]"
    redactor.add(["-----BEGIN KEY-----\nabcdef\n-----END KEY-----"])
    assert redactor.redact("-----BEGIN KEY-----") == "-----BEGIN KEY-----"
    assert redactor.redact("x abcdef y") == "x [hidden] y"


def test_logged_records_and_traces_hide_them():
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(logging.Formatter().format(record))
    handler.addFilter(RedactingFilter(Redactor(["hunter2!"])))
    log = logging.getLogger("test.redaction")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    log.info("as %s of %d", "hunter2!", 5)
    try:
        raise ValueError("no hunter2!")
    except ValueError:
        log.exception("it %s", "failed")
    assert seen[0] == "as [hidden] of 5"
    assert seen[1].startswith("it failed\nTraceback")
    assert "ValueError: no [hidden]" in seen[1]
    assert "hunter2!" not in seen[1]


def test_values_are_hidden_as_json_and_python_write_them() -> None:
    secret = 'p"a\\ss\u00e4\tword'
    redactor = Redactor([secret])
    for text in (
        json.dumps({"a": secret}),
        json.dumps([secret], ensure_ascii=False),
        repr(secret),
        f"<{secret}>",
    ):
        assert "word" not in redactor.redact(text)


FORMS = {
    "repr": repr,
    "repr between other quotes": lambda v: repr('"' + v),
    "ascii": ascii,
    "repr of bytes": lambda v: repr(v.encode()),
    "repr of repr": lambda v: repr(repr(v)),
    "JSON": json.dumps,
    "JSON of more than ASCII": lambda v: json.dumps(v, ensure_ascii=False),
    "JSON of repr": lambda v: json.dumps(repr(v)),
    "backslashes doubled": lambda v: v.replace("\\", "\\\\"),
    "URL": quote,
    "part of a URL": lambda v: quote(v, safe=""),
    "form": quote_plus,
    "URL in a URL": lambda v: quote(quote(v)),
    "HTML": html.escape,
    "XML": saxutils.quoteattr,
    "HTML of HTML": lambda v: html.escape(html.escape(v)),
    "ASCII for XML": lambda v: html.escape(v).encode("ascii", "xmlcharrefreplace").decode(),
    "regular expression": re.escape,
    "shell": lambda v: v.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$"),
}
AWKWARD = st.text(st.sampled_from("\\\\\"'`<>&%+ /:$äß€😀\n\t\x00nux2590"), min_size=4, max_size=12)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@example("0%25")
@example("&amp;&amp;")
@example("a\\n\\\\")
@given(AWKWARD.filter(lambda v: len(v.strip()) >= 4 and v.splitlines() == [v] and not v.startswith("-----")))
@settings(max_examples=25, deadline=None)
def test_a_value_is_hidden_in_every_form_that_a_text_may_show(form, secret):
    shown = Redactor([secret]).redact(form(f"ABCD{secret}ABCD"))
    assert "ABCD[hidden]ABCD" in shown, form(secret)


def test_a_secret_of_backslashes_takes_no_time():
    redactor = Redactor(["\\" * 20 + "\"'" * 10 + "\\x", "%25%25%", "&amp;&amp;&"])
    began = time.process_time()
    for text in ("\\" * 3000, "\\'" * 3000, "%25" * 3000, "&amp;" * 3000):
        redactor.redact(text)
    assert time.process_time() - began < 10
