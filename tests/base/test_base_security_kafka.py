"""JAAS lines and references as Apache Kafka's own classes read them."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest
from support import kafka_oracle
from support.secure_kafka import quoted

from klamm_base.errors import ConfigError
from klamm_base.jaas import parse_jaas
from klamm_base.references import replaced
from klamm_broker.security.kerberos_names import KerberosNames, NoRule

pytestmark = pytest.mark.usefixtures("apache_kafka")
ORACLE = Path(kafka_oracle.__file__).with_name("SecurityOracle.java")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def ask(what: str, texts: list[str]) -> list[str]:
    oracle = kafka_oracle.require()
    said = oracle.run(str(ORACLE), stdin="".join(f"{what} {encoded(t)}\n" for t in texts))
    assert said.returncode == 0, said.stderr
    answers = said.stdout.splitlines()
    assert len(answers) == len(texts)
    return answers


def jaas_lines() -> list[str]:
    """Fine ones of every shape, and ones with a piece missing or one too many."""
    chance = random.Random(7)
    letters = "abcXYZ0189 =;\"'\\/*#-_$.:@é\tn"
    lines = [
        "M required;",
        "a.b.M required a=b;",
        "M required a='b c' /* why */ d=\"e\"; // end",
        'M optional a="1\\n2\\t\\"\\\\\\101";',
        "M required a=b",
        "M required a;",
        "M required a=;",
        "M required =b;",
        "M wanted a=b;",
        "M required; N required;",
        "",
        'M required a="b;',
        "M required path-to_x$y.z=v-1_2$3.4;",
    ]
    for _ in range(300):
        options = []
        for _ in range(chance.randrange(4)):
            value = "".join(chance.choice(letters) for _ in range(chance.randrange(8)))
            options.append(f"{chance.choice('abcd')}{chance.randrange(9)}={quoted(value)}")
        lines.append(
            f"org.x.Module {chance.choice(['required', 'REQUIRED', 'sufficient'])} {' '.join(options)};"
        )
    return lines


def test_jaas_lines_are_read_as_java_reads_them():
    lines = jaas_lines()
    for line, answer in zip(lines, ask("jaas", lines), strict=True):
        try:
            entry = parse_jaas(line)
        except ConfigError:
            assert answer == "error", line
            continue
        words = answer.split(" ")
        assert words[0] == "ok", line
        assert decoded(words[1]) == entry.module, line
        pairs = [word.split(":") for word in words[2:]]
        theirs = {decoded(name): decoded(value) for name, value in pairs}
        assert theirs == dict(entry.options), line


def test_references_are_replaced_as_java_replaces_them():
    chance = random.Random(11)
    pieces = [
        "${",
        "}",
        ":",
        "a",
        "b",
        "c",
        "/x.y",
        "$",
        "{",
        " ",
        "${a:k}",
        "${b:p:k}",
        "${a:p:k:l}",
        "${c:p:k}",
    ]
    texts = ["".join(chance.choice(pieces) for _ in range(chance.randrange(1, 12))) for _ in range(500)]

    def value(reference):
        return f"<{reference.path}|{reference.key}>" if reference.provider in {"a", "b"} else None

    for text, answer in zip(texts, ask("refs", texts), strict=True):
        assert replaced(text, value) == decoded(answer.removeprefix("ok ")), text


PRINCIPALS = [
    "ann@R",
    "ann/h@R",
    "ann@S",
    "App.Big@R",
    "ann/admin@S",
    "plain",
    "a/b/c@R",
    "@R",
    "ann@",
    "Ann-9/Host.x@R",
    "a@b@c",
    "",
]
RULES = [
    "DEFAULT",
    "RULE:[1:$1]",
    "RULE:[1:$1@$0](.*@R)s/@.*//",
    "RULE:[2:$1;$2](^.*;admin$)s/;admin$//",
    "RULE:[2:$2](h|Host.*)/L",
    "RULE:[1:$1](A.*)s/[.]/_/g/U",
    "RULE:[1:$1]s/n/m/",
    "RULE:[1:$1]s/n/m/g",
    "RULE:[1:$0$1]/L",
    "RULE:[1:$1]s/(.)(.)/$2$1/",
    "RULE:[2:$1/$2]",
    "RULE:[1:$3]",
    "RULE:[2:$1](x),RULE:[1:$1](a.*),DEFAULT",
    "RULE:[1:$1](zzz),DEFAULT",
    "nothing",
    "RULE:[1:$1",
]  # fmt: skip


def test_names_of_kerberos_principals_are_kafkas():
    cases = [(rules, principal) for rules in RULES for principal in PRINCIPALS]
    theirs = ask("names", [f"R\n{rules}\n{principal}" for rules, principal in cases])
    # a user without a name is nobody here
    told = [
        f"ok {name}" if (name := decoded(answer[3:]) if answer[:3] == "ok " else "") else "error"
        for answer in theirs
    ]
    assert [f"{case}: {short(*case)}" for case in cases] == [
        f"{case}: {said}" for case, said in zip(cases, told, strict=True)
    ]


def short(rules: str, principal: str) -> str:
    try:
        return f"ok {KerberosNames(rules.split(','), 'R').short(principal)}"
    except (NoRule, ConfigError):
        return "error"
