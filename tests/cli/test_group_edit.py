"""`klamm group edit`: the offsets of a group in the user's editor; and Protobuf by `klamm produce`, through a registry."""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, TopicPartition
from support.broker import new_name, new_topic
from support.klamm import klamm
from support.registry_process import RegistryProcess

PROTO = 'syntax = "proto3";\npackage a;\nimport "b.proto";\nmessage Order { int32 id = 1; repeated string tags = 2; b.Kind kind = 3; }\n'
KIND = 'syntax = "proto3";\npackage b;\nmessage Kind { string name = 1; }\n'


def test_offsets_are_edited(broker, tmp_path):
    topic, group = new_topic(broker, 2), new_name("group")
    assert klamm("produce", topic, "-p", "0", "-b", broker.bootstrap, stdin="a\nb\nc\n").returncode == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, p, 0) for p in (0, 1)], asynchronous=False)
    consumer.close()
    editor = tmp_path / "edit.py"
    editor.write_text(
        f"import sys\np = sys.argv[1]\nt = open(p).read()\nopen(p, 'w').write(t.replace('{topic},0,0', '{topic},0,2'))\n"
    )
    env = {"EDITOR": f"{sys.executable} {editor}", "VISUAL": ""}

    def edit(*words, **env):
        return klamm("group", "edit", group, "-b", broker.bootstrap, "-o", "csv", *words, **env)

    shown = edit(**env)
    assert shown.stdout.splitlines()[1:] == [f"{group},{topic},0,2"], shown.stderr
    assert "--execute" in shown.stderr
    assert edit("--execute", **env).returncode == 0
    assert klamm("group", "export", group, "-b", broker.bootstrap).stdout.splitlines() == [
        f"{topic},0,2",
        f"{topic},1,0",
    ]
    assert "nothing was changed" in edit(EDITOR="true", VISUAL="").stderr
    for editor_, said in {
        "false": "failed",
        f'{sys.executable} -c \'import sys; open(sys.argv[1], "w").write("x")\'': "line 1",
    }.items():
        refused = edit(EDITOR=editor_, VISUAL="", TMPDIR=str(tmp_path))
        assert refused.returncode == 1
        assert said in refused.stderr
    absent = klamm("group", "edit", "absent", "-b", broker.bootstrap, EDITOR="true", VISUAL="")
    assert (absent.returncode, "absent" in absent.stderr) == (1, True)
    unset = edit(EDITOR="", VISUAL="")  # vi would draw its page into our output
    assert (unset.returncode, unset.stdout) == (1, "")
    assert unset.stderr == "klamm: no terminal for the editor vi: set EDITOR to a command that needs none\n"


def test_protobuf_is_written_and_read(broker, tmp_path):
    topic = new_topic(broker)
    registry = RegistryProcess(
        broker.bootstrap, tmp_path, **{"kafkastore.topic.replication.factor": "1"}
    ).start()
    try:
        at = ("-b", broker.bootstrap, "--registry", registry.url, "--value-format", "protobuf")
        (tmp_path / "b.proto").write_text(KIND)
        (tmp_path / "order.proto").write_text(PROTO)
        own = klamm(
            "produce", topic, *at, "--value-schema", str(tmp_path / "b.proto"), stdin='{"name": "small"}\n'
        )
        assert own.returncode == 0, own.stderr
        name = new_name()
        referenced = klamm(
            "schema", "register", f"{name}-value", str(tmp_path / "order.proto"), "--reference", f"b.proto:{topic}-value:1",
            KLAMM_REGISTRY_URL=registry.url,
        )  # fmt: skip
        assert referenced.returncode == 0, referenced.stderr
        with_import = klamm(
            "produce", name, *at, stdin='{"id": 7, "tags": ["x"], "kind": {"name": "large"}}\n'
        )
        assert with_import.returncode == 0, with_import.stderr
        for each, wanted in {
            topic: {"name": "small"},
            name: {"id": 7, "tags": ["x"], "kind": {"name": "large"}},
        }.items():
            read = klamm("consume", each, *at, "--from-beginning", "-e", "-o", "json")
            assert json.loads(read.stdout)["value"] == wanted, read.stderr
        bad = klamm("produce", topic, *at, stdin='{"name": 5}\n')
        assert bad.returncode == 1
        assert "record 1: value: does not fit the schema" in bad.stderr
    finally:
        registry.end()
