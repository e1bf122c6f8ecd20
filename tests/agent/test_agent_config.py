"""agent.toml: what is wrong is one sentence with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm_agent.config.agent import AgentConfig, Input
from klamm_agent.config.stages import KEYS
from klamm_agent.files.scan import Scanner
from klamm_base.errors import ConfigError

GOOD = """\
bootstrap_servers = "127.0.0.1:9092"
state_dir = "state"

[[inputs]]
paths = ["a/*.log"]
topic = "logs"
"""


def load(tmp_path, text):
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return AgentConfig.load(path)


def test_defaults_and_relative_paths(tmp_path):
    config = load(tmp_path, GOOD)
    assert config.state_dir == tmp_path / "state"
    assert config.inputs[0].paths == (str(tmp_path / "a/*.log"),)
    assert config.inputs[0].format == "raw"
    assert config.agent_id


def test_producer_settings_are_translated(tmp_path):
    config = load(tmp_path, GOOD + '[producer]\nlinger.ms = 5\n"max.request.size" = 2097152\n')
    assert config.producer.linger == 0.005
    assert dict(config.ignored) == {"max.request.size": "batch.size bounds what is sent together"}


def test_a_folder_with_the_signs_of_patterns_in_its_name(tmp_path):
    folder = tmp_path / "site [1]*"
    (folder / "a").mkdir(parents=True)
    for name in ("x.log", "y.log"):
        (folder / "a" / name).touch()
    config = load(folder, GOOD + 'exclude = ["a/[!x].log"]\n')
    assert [f.path for f in Scanner(config.inputs, lambda *_: None).scan()] == [str(folder / "a/x.log")]


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        (GOOD.replace("topic", "topik"), 6, "[inputs[0]] topik is not a setting; did you mean topic?"),
        (GOOD.replace('"logs"', '"lo gs"'), 6, "[inputs[0]] topic = 'lo gs'"),
        (GOOD.replace('["a/*.log"]', '"a"'), 5, """[inputs[0]] paths = 'a': a list is expected: ["a"]"""),
        (GOOD.replace('topic = "logs"\n', ""), 4, "[inputs[0]] topic is missing"),
        (
            GOOD + '[producer]\n"buffer.memory" = 1048576\n',
            8,
            "[producer] buffer.memory cannot be set: it is queue_bytes at the top of the file",
        ),
        (
            GOOD.replace("a/*.log", "~nobody-here/*.log"),
            5,
            "[inputs[0]] paths = '~nobody-here/*.log': the home folder cannot be found",
        ),
        (GOOD.replace("a/*.log", "a\\u0000"), 5, "[inputs[0]] paths = 'a\\x00': a path cannot hold NUL"),
        (GOOD + 'format = "xml"\n', 7, "[inputs[0]] format = 'xml': one of raw, json is expected"),
        (
            GOOD + 'type = "journal"\n',
            7,
            "[inputs[0]] type = 'journal': one of file, syslog, journald, stdin is expected",
        ),
        (GOOD + "ignore_older = 5\n", 7, "[inputs[0]] ignore_older = 5: a time such as"),
        (GOOD + 'ignore_older = "5 parsecs"\n', 7, "[inputs[0]] ignore_older = '5 parsecs': a time such as"),
        (GOOD + "max_line_bytes = 1\n", 7, "[inputs[0]] max_line_bytes = 1: a whole number from 16"),
        (
            GOOD + 'encoding = "utf-7-imap"\n',
            7,
            "[inputs[0]] encoding = 'utf-7-imap': no such encoding is known",
        ),
        (
            GOOD + 'encoding = "cp037"\n',
            7,
            "it cannot be read: a line ends with the byte 0A, or the encoding is UTF-16",
        ),
        (GOOD + 'encoding = "klingon"\n', 7, "no such encoding is known"),
        (GOOD + 'long_lines = "drop"\n', 7, "long_lines = 'drop': one of split, truncate is expected"),
        (GOOD + 'container = "podman"\n', 7, "container = 'podman': one of off, auto, cri, docker"),
        (GOOD + 'multiline = "cobol"\n', 7, "multiline = 'cobol': presets are python, java, go, ruby"),
        (GOOD + "multiline = {}\n", 7, "pattern or preset (python, java, go, ruby) is expected"),
        (
            GOOD + '[inputs.multiline]\npattern = "a["\n',
            8,
            "[inputs[0].multiline] pattern = 'a[' is no regular expression: unterminated character set",
        ),
        (
            GOOD + '[inputs.multiline]\npattern = "[[:foo:]]"\n',
            8,
            "no class [:foo:] is known; known are alnum",
        ),
        (
            GOOD + '[inputs.multiline]\npreset = "go"\nnegate = true\n',
            9,
            "negate has an effect with pattern only",
        ),
        (
            GOOD + '[inputs.multiline]\npattern = "a"\nmatch = "around"\n',
            9,
            "match = 'around': one of after, before is expected",
        ),
        (
            GOOD + '[inputs.multiline]\npattern = "a"\nmax_lines = 1\n',
            9,
            "max_lines = 1: a whole number from 2",
        ),
        (GOOD + "fields = { a = 1 }\n", 7, 'has an effect with format = "json" only'),
        (
            GOOD + 'format = "json"\nfields = { message = 1 }\n',
            8,
            "names 'message', which the agent sets itself",
        ),
        (GOOD + 'format = "json"\nfields = { a = 2026-01-01 }\n', 8, "which JSON cannot express"),
        (GOOD + '[[inputs]]\npaths = ["b"]\n', 7, "[inputs[1]] topic is missing"),
        (
            GOOD + '[producer]\nacks = "1"\n',
            8,
            "[producer] acks cannot be set: checkpoints count on acks=all",
        ),
        (GOOD + '[producer]\nbatch.sise = ["x"]\n', 8, "[producer] batch.sise must be a text"),
        (GOOD + "[agent]\nscan_interval_ms = 1\n", 8, "[agent] scan_interval_ms = 1: a whole number from 10"),
        ("queue_bytes = 5\n" + GOOD, 1, "queue_bytes = 5: a whole number from 1048576"),
        (
            GOOD.replace(":9092", ":abc"),
            1,
            "bootstrap_servers = '127.0.0.1:abc': '127.0.0.1:abc' is not host:port",
        ),
        ("bootstrap = 5\n" + GOOD, 1, "bootstrap is not a setting; did you mean bootstrap_servers?"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_line(tmp_path, text, line, sentence):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert sentence in str(caught.value)
    assert f"agent.toml:{line}:" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = [\n", "is not TOML: "),
        ('state_dir = "s"\n', "inputs is missing"),
        (GOOD.replace("bootstrap_servers", "# "), "bootstrap_servers is missing"),
        ("inputs = 5\n", "inputs is missing"),
    ],
)
def test_what_has_no_line(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=r"agent\.toml") as caught:
        load(tmp_path, text)
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        AgentConfig.load(tmp_path / "none.toml")


def test_the_example_loads_and_every_setting_is_documented():
    root = Path(__file__).parents[2]
    assert len(AgentConfig.load(root / "examples/agent.toml").inputs) == 2
    page = (root / "docs/agent.md").read_text()
    names = {
        *Input.__dataclass_fields__,
        *KEYS,
        "bootstrap_servers",
        "state_dir",
        "queue_bytes",
        "scan_interval_ms",
    }
    names -= {"options", "stages"}  # tables of their own keys
    assert [n for n in sorted(names) if f"{n}`" not in page] == []
