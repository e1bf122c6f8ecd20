"""`klamm connector` against a real worker, and the demonstration from start to end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.broker import wait_until
from support.klamm import Server, klamm, up_words


@pytest.fixture(scope="module")
def rest(processes, tmp_path_factory):
    data = tmp_path_factory.mktemp("up")
    with Server(*up_words(data)) as server:
        BROKERS[server.ready["rest"]] = server.ready["broker"]
        yield server.ready["rest"]


TEXT = "value.converter=org.apache.kafka.connect.storage.StringConverter"
BROKERS: dict[str, str] = {}


def broker_of(rest):
    """Returns the broker behind a worker."""
    return BROKERS[rest]


def test_a_connector_from_json_to_deletion(rest, tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    document = {
        "name": "cli/source",  # a slash must survive the path
        "config": {
            "connector.class": "FileStreamSource", "tasks.max": "1", "file": str(tmp_path / "in.txt"), "topic": "cli",
        },
    }  # fmt: skip
    (tmp_path / "c.json").write_text(json.dumps(document))
    at = ["--url", rest]
    assert klamm("connector", "validate", "-f", str(tmp_path / "c.json"), *at).stdout == "no errors\n"
    (tmp_path / "alone.json").write_text(json.dumps(document["config"]))
    (tmp_path / "named.json").write_text(json.dumps(document["config"] | {"name": "a"}))
    alone = ["connector", "validate", "-f", str(tmp_path / "alone.json"), *at]
    assert klamm(*alone, "cli/source").stdout == "no errors\n"
    other = klamm("connector", "validate", "-f", str(tmp_path / "named.json"), "b", *at)
    assert (other.returncode, other.stderr) == (
        2,
        f"klamm: {tmp_path / 'named.json'}: name is 'a', not 'b'\n",
    )
    assert klamm(*alone).stdout == "no errors\n"  # checking needs no name
    nameless = klamm("connector", "create", "-f", str(tmp_path / "alone.json"), *at)
    assert nameless.returncode == 2
    assert "give a NAME, or a file that holds one" in nameless.stderr
    assert klamm("connector", "create", "-f", str(tmp_path / "c.json"), *at).stdout == "created cli/source\n"

    def runs():
        status = klamm("connector", "status", "cli/source", "-o", "json", *at)
        tasks = json.loads(status.stdout)["tasks"] if status.returncode == 0 else []
        return (
            tasks and tasks[0]["state"] == "RUNNING" and (tasks[0].get("progress") or {}).get("records") == 2
        )

    wait_until(runs, "both lines acknowledged", timeout_s=60)
    (row,) = json.loads(klamm("connector", "list", "-o", "json", *at).stdout)
    assert (row["name"], row["type"], row["state"], row["tasks"]) == (
        "cli/source",
        "source",
        "RUNNING",
        ["RUNNING"],
    )
    assert json.loads(klamm("connector", "config", "cli/source", *at).stdout)["topic"] == "cli"
    assert klamm("connector", "delete", "cli/source", *at).returncode == 0
    absent = klamm("connector", "status", "cli/source", *at)
    assert absent.returncode == 1
    assert "cli/source" in absent.stderr


def test_a_bad_configuration_is_the_workers_sentence(rest):
    result = klamm("connector", "create", "x", "-c", "connector.class=FileStreamSource", "--url", rest)
    assert result.returncode == 1
    assert 'Missing required configuration "topic"' in result.stderr


def test_warnings_are_printed_beside_the_result(rest, tmp_path):
    file = tmp_path / "warned.json"
    settings = {
        "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "cli", "batch.sise": "5"
    }  # fmt: skip
    file.write_text(json.dumps({"name": "warned", "config": settings}))
    said = "warning: batch.sise is a setting neither of this connector nor of Connect; did you mean batch.size?\n"
    for words, out in (
        (["validate"], "no errors\n"),
        (["apply", "--dry-run"], "created warned (dry run)\n"),
        (["create"], "created warned\n"),
    ):
        result = klamm("connector", words[0], "-f", str(file), *words[1:], "--url", rest)
        assert (result.returncode, result.stdout, result.stderr) == (0, out, said)
    changed = klamm("connector", "config", "warned", "--set", "topic=other", "--url", rest)
    assert (changed.returncode, changed.stderr) == (0, said)
    (tmp_path / "wrong.json").write_text(
        json.dumps({"name": "wrong", "config": settings | {"tasks.max": "many"}})
    )
    wrong = klamm("connector", "create", "-f", str(tmp_path / "wrong.json"), "--url", rest)
    assert (wrong.returncode, wrong.stderr.splitlines(keepends=True)[0]) == (1, said)
    shown = klamm("connector", "validate", "-f", str(tmp_path / "wrong.json"), "-o", "json", "--url", rest)
    found = json.loads(shown.stdout)
    assert [row["key"] for row in found["errors"]] == ["tasks.max"]
    assert [f"warning: {sentence}\n" for sentence in found["warnings"]] == [said]


def test_an_unknown_connector_is_said_in_few_words(rest):
    misspelt = ["-c", "connector.class=FileStreamSnk", "-c", "topics=t"]
    for words in (["validate"], ["validate", "x"], ["create", "x"]):
        result = klamm("connector", *words, *misspelt, "--url", rest)
        assert result.returncode == 1
        said = (
            "no connector FileStreamSnk; did you mean FileStreamSink? `klamm connector plugins` lists all\n"
        )
        assert result.stderr == f"klamm: {said}"


def test_an_unknown_class_of_another_kind_names_a_command_that_lists_it(rest):
    answer = klamm(
        "connector", "validate", "-c", "connector.class=FileStreamSink", "-c", "topics=t", "-c", "file=/tmp/x",
        "-c", "value.converter=JsonConvertr", "--url", rest,
    )  # fmt: skip
    assert answer.returncode == 1
    assert "could not be found; did you mean JsonConverter? `klamm connector plugins --all`" in answer.stdout
    listed = klamm("connector", "plugins", "--all", "-o", "json", "--url", rest)
    assert "org.apache.kafka.connect.json.JsonConverter" in [p["class"] for p in json.loads(listed.stdout)]


def config_of(name, rest):
    return json.loads(klamm("connector", "config", name, "--url", rest).stdout)


def test_apply_creates_changes_and_leaves_alone(rest, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        f"name: applied\nconfig:\n  connector.class: FileStreamSource\n  file: {tmp_path / 'in.txt'}\n  topic: cli\n"
    )

    def apply(*words):
        done = klamm("connector", "apply", "-f", str(file), "--url", rest, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert apply("--dry-run") == "created applied (dry run)\n"
    assert klamm("connector", "config", "applied", "--url", rest).returncode == 1
    assert apply() == "created applied\n"
    assert apply() == "unchanged applied\n"
    changed = "- topic=cli\n+ topic=other\nchanged applied"
    assert apply("-c", "topic=other", "--dry-run") == f"{changed} (dry run)\n"
    assert config_of("applied", rest)["topic"] == "cli"
    assert apply("-c", "topic=other") == f"{changed}\n"
    assert config_of("applied", rest)["topic"] == "other"


def test_each_error_is_said_once(rest, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\nconnector.class = "FileStreamSource"\nfile = "/f"\ntasks.max = "a"\n')
    errors = [
        "Invalid value a for configuration tasks.max: Not a number of type INT",
        'Missing required configuration "topic" which has no default value.',
    ]
    said = "\n".join(["klamm: the configuration of bad has 2 errors:", *errors, ""])
    for words in (["create"], ["apply"], ["apply", "--dry-run"]):
        done = klamm("connector", *words, "-f", str(file), "--url", rest)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    good = tmp_path / "good.properties"
    good.write_text("name=good\nconnector.class=FileStreamSource\nfile=/f\ntopic=t\n")
    both = klamm("connector", "apply", "-f", str(file), "-f", str(good), "--dry-run", "--url", rest)
    assert (both.returncode, both.stdout, both.stderr) == (1, "created good (dry run)\n", said)
    words = ["-c", "connector.class=FileStreamSource", "-c", "file=/f", "-c", "tasks.max=a", "-o", "json"]
    checked = klamm("connector", "validate", "bad", *words, "--url", rest)
    assert (checked.returncode, [row["error"] for row in json.loads(checked.stdout)["errors"]]) == (1, errors)


def test_edit_applies_what_the_editor_leaves(rest, tmp_path):
    at = ["--url", rest]
    klamm(
        "connector", "create", "edited", "-c", "connector.class=FileStreamSource", "-c", "file=/f",
        "-c", "topic=before", *at,
    )  # fmt: skip

    def edit(script, *words):
        editor = tmp_path / "editor"
        editor.write_text(
            f"#!{sys.executable}\nimport pathlib, sys\np = pathlib.Path(sys.argv[1])\n{script}\n"
        )
        editor.chmod(0o755)
        return klamm("connector", "edit", "edited", *words, *at, VISUAL=str(editor), cwd=tmp_path)

    assert edit("").stdout == "unchanged edited\n"
    change = "p.write_text(p.read_text().replace('before', 'after'))"
    shown = "- topic=before\n+ topic=after\nchanged edited"
    assert edit(change, "--dry-run").stdout == f"{shown} (dry run)\n"
    assert edit(change).stdout == f"{shown}\n"
    assert config_of("edited", rest)["topic"] == "after"
    refused = edit("p.write_text(p.read_text().replace('topic=after', ''))")
    kept = tmp_path / "edited.edited.properties"
    assert refused.returncode == 1
    assert f"your edit is kept: klamm connector apply edited -f {kept.name}" in refused.stderr
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "topic" not in kept.read_text()
    kept.chmod(0o644)
    assert "WARNING" not in refused.stderr
    twice = edit("p.write_text(p.read_text() + 'topic=b\\ntasks.max=x\\n')")
    assert twice.returncode == 1
    assert "WARNING" not in twice.stderr
    assert "/connector.properties" not in twice.stderr
    unreadable = edit("p.write_text('topic=\\\\u12')")
    assert unreadable.returncode == 1
    assert "line 1: \\u12: four hexadecimal digits" in unreadable.stderr
    assert f"your edit is kept: klamm connector apply edited -f {kept.name}" in unreadable.stderr
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("topic=\\u12", 0o600)
    config = {**config_of("edited", rest), "topic": "theirs"}
    put = (
        f"import json, urllib.request as r\nr.urlopen(r.Request('{rest}/connectors/edited/config', "
        f"json.dumps({config!r}).encode(), {{'Content-Type': 'application/json'}}, method='PUT'))\n"
    )
    late = edit(put + "p.write_text(p.read_text().replace('topic=after', 'topic=mine'))")
    assert late.returncode == 1
    assert "somebody else has changed or deleted edited meanwhile" in late.stderr
    assert config_of("edited", rest)["topic"] == "theirs"
    assert "topic=mine" in kept.read_text()
    failed = edit("sys.exit(3)")
    assert (failed.returncode, "ended with exit code 3: nothing is changed" in failed.stderr) == (1, True)


def test_config_prints_and_sets(rest):
    at = ["--url", rest]
    klamm(
        "connector", "create", "set", "-c", "connector.class=FileStreamSource", "-c", "file=/f", "-c", "topic=t",
        "-c", "tasks.max=1", *at,
    )  # fmt: skip
    done = klamm("connector", "config", "set", "--set", "topic=u", "--unset", "tasks.max", *at)
    assert (done.returncode, done.stdout) == (0, "- tasks.max=1\n- topic=t\n+ topic=u\nchanged set\n")
    assert config_of("set", rest) == {
        "name": "set", "connector.class": "FileStreamSource", "file": "/f", "topic": "u",
    }  # fmt: skip
    assert klamm("connector", "config", "set", "--set", "topic=u", *at).stdout == "unchanged set\n"
    absent = klamm("connector", "config", "set", "--unset", "nothing", *at)
    assert (absent.returncode, absent.stderr) == (1, "klamm: set has no setting nothing\n")
    text = klamm("connector", "config", "set", "-o", "properties", *at).stdout
    assert text == "connector.class=FileStreamSource\nfile=/f\nname=set\ntopic=u\n"
    assert 'topic: "u"\n' in klamm("connector", "config", "set", "-o", "yaml", *at).stdout


def test_offsets_are_shown_set_and_reset(rest, tmp_path):
    file, at = tmp_path / "lines.txt", ["--url", rest]
    file.write_text("one\ntwo\n")
    klamm(
        "connector", "create", "off", "-c", "connector.class=FileStreamSource", "-c", f"file={file}",
        "-c", "topic=off", *at,
    )  # fmt: skip

    def offsets(*words):
        return klamm("connector", "offsets", *words, *at)

    def current():
        return [row["offset"] for row in json.loads(offsets("get", "off", "-o", "json").stdout)]

    wait_until(lambda: current() == [{"position": 8}], "both lines are committed", timeout_s=60)
    assert offsets("off").stdout == offsets("get", "off").stdout
    running = offsets("reset", "off")
    assert "before --execute, stop off, which is RUNNING: klamm connector stop off" in running.stderr
    assert klamm("connector", "stop", "off", *at).returncode == 0
    places = tmp_path / "o.json"
    places.write_text(offsets("get", "off", "-o", "json").stdout.replace('"position": 8', '"position": 4'))
    shown = offsets("alter", "off", "-f", str(places))
    assert (shown.returncode, shown.stderr) == (
        0,
        "dry run: 1 offset would be set (--execute does it); the connector itself has not been asked\n",
    )
    assert shown.stdout.splitlines()[1].split()[1:] == ["position=8", "position=4"]
    assert current() == [{"position": 8}]
    assert "altered successfully" in offsets("alter", "off", "-f", str(places), "--execute").stderr
    assert current() == [{"position": 4}]
    assert "1 offset would be forgotten" in offsets("reset", "off").stderr
    assert "reset successfully" in offsets("reset", "off", "--execute").stderr
    assert current() == []
    wrong = offsets("alter", "off", "--to", "t=1")
    assert (wrong.returncode, "'t=1' is not TOPIC:PARTITION=OFFSET" in wrong.stderr) == (2, True)


def test_a_sinks_offsets_are_set_by_topic_and_partition(rest, tmp_path):
    at = ["--url", rest]
    klamm("topic", "create", "sunk", "-p", "1", "-b", broker_of(rest))
    klamm("produce", "sunk", "1", "2", "-b", broker_of(rest))
    klamm(
        "connector", "create", "sink", "-c", "connector.class=FileStreamSink", "-c", f"file={tmp_path / 'out'}",
        "-c", "topics=sunk", "-c", TEXT, *at,
    )  # fmt: skip

    def current():
        return json.loads(klamm("connector", "offsets", "get", "sink", "-o", "json", *at).stdout)

    place = {"kafka_topic": "sunk", "kafka_partition": 0}
    wait_until(
        lambda: current() == [{"partition": place, "offset": {"kafka_offset": 2}}],
        "both committed",
        timeout_s=60,
    )
    klamm("connector", "stop", "sink", *at)
    done = klamm("connector", "offsets", "alter", "sink", "--to", "sunk:0=1", "--execute", *at)
    assert done.returncode == 0, done.stderr
    assert current() == [{"partition": place, "offset": {"kafka_offset": 1}}]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("klamm connector status comple", ["completed"]),
        ("klamm connector offsets get comple", ["completed"]),
        ("klamm topic describe connect-o", ["connect-offsets"]),
        ("klamm topic describe __consumer", ["__consumer_offsets"]),
        ("klamm group describe connect-complet", ["connect-completed"]),
        ("klamm consume --group connect-complet", ["connect-completed"]),
    ],
)
def test_shells_complete_names(words, offered, rest, completed):
    assert complete(words, KLAMM_REST_URL=rest, KLAMM_BOOTSTRAP_SERVER=broker_of(rest)) == (0, offered, "")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "words", ["klamm connector status x", "klamm topic describe x", "klamm group describe x"]
)
def test_completion_is_silent_where_nobody_answers(words):
    nobody = {"KLAMM_REST_URL": "http://127.0.0.1:1", "KLAMM_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    assert complete(words, **nobody) == (0, [], "")
    assert complete(words, **nobody, KLAMM_REST_USER="asked") == (0, [], "")  # for no password


@pytest.mark.usefixtures("processes")
def test_the_script_for_completion_is_printed():
    # The option takes the shell that the command was started by, if nothing keeps Typer from looking for it.
    shown = klamm("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (shown.returncode, "_klamm_completion" in shown.stdout) == (0, True)


@pytest.fixture(scope="module")
def completed(rest, tmp_path_factory):
    """Makes a connector and its group, to be completed."""
    out = tmp_path_factory.mktemp("completed") / "out"
    klamm("produce", "c", "1", "-b", broker_of(rest))
    klamm(
        "connector", "create", "completed", "-c", "connector.class=FileStreamSink", "-c", f"file={out}",
        "-c", "topics=c", "-c", TEXT, "--url", rest,
    )  # fmt: skip
    wait_until(out.exists, "the record is written, so the group exists", timeout_s=60)


def complete(words, **env):
    count = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = klamm(_KLAMM_COMPLETE="complete_bash", **count, **env)
    return done.returncode, done.stdout.split(), done.stderr


@pytest.mark.usefixtures("processes")
def test_the_demonstration_proves_itself():
    for _ in range(2):  # twice in a row
        run = subprocess.run(
            [sys.executable, "-m", "klamm.demo", "--seconds", "2", "--rate", "2000"],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert "nothing was lost: 4,000 lines" in run.stdout


def test_a_loss_would_be_seen(tmp_path):
    from klamm.demo.proof import Proof, _file

    for name, text in (("a", "1\n2\n3\n"), ("b", "1\n3\n2\n"), ("c", "1\n2\n3\n")):
        (tmp_path / name).write_text(text)
    a, b, c = (_file(tmp_path / name) for name in "abc")
    assert Proof(a, a, c).complete
    assert not Proof(a, a, b).complete  # as many lines, in another order
