"""[[inputs]] of other types than files: what is right, and one sentence for what is wrong."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest

from klamm_agent.config.agent import AgentConfig
from klamm_base.errors import ConfigError

HEAD = 'bootstrap_servers = "localhost:9092"\nstate_dir = "state"\n[[inputs]]\ntopic = "t"\n'


def load(tmp_path, text):
    path = tmp_path / "agent.toml"
    path.write_text(HEAD + text)
    return AgentConfig.load(path).inputs[0]


def test_what_syslog_is_told(tmp_path):
    found = load(
        tmp_path,
        'type = "syslog"\nlisten = ["udp://:514", "tcp://[::1]:0", "unix:///run/x.sock"]\ntimezone = "Europe/Vienna"\n'
        'idle_timeout = "5m"\nmax_message_bytes = 480\nformat = "json"\nfields = { a = 1 }\n',
    )
    options = found.options
    assert [(a.kind, a.host, a.port) for a in options.listen] == [
        ("udp", "", 514),
        ("tcp", "::1", 0),
        ("unix", "/run/x.sock", 0),
    ]
    assert options.zone == zoneinfo.ZoneInfo("Europe/Vienna")
    assert (options.idle_timeout, found.max_line_bytes, found.fields) == (300.0, 480, {"a": 1})
    assert options.name == "syslog udp:514 tcp:::1 unix:/run/x.sock"


@pytest.mark.parametrize(
    ("text", "zone"),
    [("local", None), ("UTC", dt.UTC), ("-03:30", dt.timezone(-dt.timedelta(hours=3, minutes=30)))],
)
def test_zones(tmp_path, text, zone):
    assert (
        load(tmp_path, f'type = "syslog"\nlisten = ["udp://h:1"]\ntimezone = "{text}"\n').options.zone == zone
    )


def test_what_the_journal_is_told(tmp_path):
    options = load(
        tmp_path, 'type = "journald"\nunits = ["a.service"]\ndirectory = "j"\nmatches = ["_UID=0"]\n'
    ).options
    assert options.directory == tmp_path / "j"
    assert options.name == f"journald {tmp_path / 'j'} a.service _UID=0"


SYSLOG = 'type = "syslog"\n'
WRONG = [
    (SYSLOG, 3, "[inputs[0]] listen is missing"),
    (SYSLOG + 'listen = ["udp://h"]\n', 6, "listen = 'udp://h': udp://HOST:PORT, tcp://HOST:PORT"),
    (SYSLOG + 'listen = ["udp://h:65536"]\n', 6, "listen = 'udp://h:65536'"),
    (SYSLOG + f'listen = ["unix:///{"x" * 200}"]\n', 6, "a unix socket's path has 107 bytes at most"),
    (SYSLOG + 'listen = ["tls://h:1"]\n', 3, "tls_certificate is missing: tls:// needs the server's certificate"),
    (SYSLOG + 'listen = ["tls://h:1"]\ntls_certificate = "none.pem"\n', 7, "tls_certificate cannot be used with its key: No such file"),
    (SYSLOG + 'listen = ["udp://h:1"]\ntls_key = "k.pem"\n', 7, "tls_key has an effect with an address tls://HOST:PORT only"),
    (SYSLOG + 'listen = ["udp://h:1"]\ntimezone = "Mars/Olympus"\n', 7, "timezone = 'Mars/Olympus': \"local\", \"UTC\""),
    (SYSLOG + 'listen = ["udp://h:1"]\nframing = "octets"\n', 7, "framing = 'octets': one of auto, octet, newline, nul"),
    (SYSLOG + 'listen = ["udp://h:1"]\npaths = ["/x"]\n', 7, "paths is not a setting"),
    ('type = "journald"\nmatches = ["unit"]\n', 6, "matches = 'unit': FIELD=value is expected"),
    ('type = "journald"\nlisten = ["udp://h:1"]\n', 6, "listen is not a setting"),
    ('type = "stdin"\nmax_message_bytes = 1\n', 6, "max_message_bytes = 1: a whole number from 16"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "what"), WRONG, ids=[w[2][:40] for w in WRONG])
def test_what_is_wrong_is_one_sentence_with_its_line(tmp_path, text, line, what):
    with pytest.raises(ConfigError) as failed:
        load(tmp_path, text)
    assert what in str(failed.value)
    assert str(failed.value).startswith(f"{tmp_path / 'agent.toml'}:{line}: ")


def test_an_id_is_one_inputs(tmp_path):
    with pytest.raises(
        ConfigError, match=r"agent.toml:10: \[inputs\[1\]\] id = 'web': another input has this id"
    ):
        load(
            tmp_path,
            'id = "web"\npaths = ["/a"]\n[[inputs]]\npaths = ["/b"]\ntopic = "u"\nid = "web"\n',
        )


def test_standard_input_is_one_inputs(tmp_path):
    with pytest.raises(
        ConfigError, match=r"agent.toml:7: \[inputs\[1\]\] type = 'stdin': only one input can read"
    ):
        load(tmp_path, 'type = "stdin"\n[[inputs]]\ntype = "stdin"\ntopic = "u"\n')
