"""`klamm apply` and `klamm export`: what is exported and applied changes nothing, and what is applied is there."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import types

import pytest
import yaml as pyyaml
from hypothesis import assume, given
from hypothesis import strategies as st
from support.klamm import klamm
from support.schema_registry import SchemaRegistry
from typer.testing import CliRunner

from klamm.cli.apply import documents
from klamm.cli.main import app
from klamm.cli.output import yaml
from klamm.desired import carrying
from klamm.desired.document import as_document, merged, parse
from klamm.desired.plan import Action, Change, plan
from klamm.desired.reading import in_order, read_connectors, read_schemas
from klamm.desired.state import KINDS, Reference, Schema, State, Topic, User
from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError, KlammError
from klamm_broker.security.acl import Acl
from klamm_broker.server.authorizer_keys import STANDARD
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NAMES = st.one_of(TEXT, st.sampled_from(["on", "1", "null", "~", "true", "2026-01-01", "a: b", "- x", "0x1"]))
SETTINGS = st.dictionaries(NAMES, TEXT, max_size=3)


def known(kind, *no):
    return st.sampled_from([m for m in kind if m.name not in {"UNKNOWN", "ANY", "MATCH", *no}])


ACLS = st.builds(
    Acl,
    resource_type=known(ResourceType),
    resource_name=TEXT,
    pattern_type=known(PatternType),
    principal=TEXT.map(lambda name: f"User:{name}"),
    host=TEXT,
    operation=known(AclOperation),
    permission=known(AclPermissionType),
)
ENTITIES = st.dictionaries(
    st.sampled_from(["user", "client-id", "ip"]), st.one_of(st.none(), TEXT), min_size=1, max_size=2
).map(lambda d: in_order(d.items()))
TOPICS = st.builds(
    Topic, partitions=st.integers(1, 9), replication_factor=st.integers(1, 3), configs=SETTINGS
)
USERS = st.builds(
    User,
    mechanisms=st.dictionaries(
        st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), st.integers(4096, 16384), min_size=1
    ),
)
SCHEMAS = st.builds(
    Schema,
    type=st.sampled_from(["AVRO", "JSON", "PROTOBUF"]),
    schema=st.one_of(TEXT, st.just('{"type": "string"}')),
    references=st.lists(st.builds(Reference, TEXT, TEXT, st.integers(1, 9)), max_size=2).map(tuple),
    compatibility=st.sampled_from([None, "NONE", "FULL"]),
)
CONNECTORS = SETTINGS.map(
    lambda d: {k: v for k, v in d.items() if k != "name"} | {"connector.class": "FileStreamSink"}
)
STATES = st.builds(
    State,
    given=st.just(frozenset(KINDS)),
    topics=st.dictionaries(NAMES, TOPICS, max_size=3),
    acls=st.frozensets(ACLS, max_size=3),
    quotas=st.dictionaries(
        ENTITIES, st.dictionaries(TEXT, st.floats(0, 1e9), min_size=1, max_size=2), max_size=3
    ),
    users=st.dictionaries(NAMES, USERS, max_size=3),
    schemas=st.dictionaries(NAMES, SCHEMAS, max_size=3),
    connectors=st.dictionaries(NAMES, CONNECTORS, max_size=3),
)


def read(state: State) -> State:
    (document,) = documents(yaml(as_document(state)), "x")
    return parse(document, "x")


@given(STATES)
def test_what_is_exported_and_applied_changes_nothing(state):
    found = read(state)
    assert found == state
    changes = plan(state, found, prune=KINDS)
    assert {c.action for c in changes} <= {Action.UNCHANGED}


def carried_out(state: State, changes: list[Change]) -> State:
    """Does to a state what a cluster does."""
    things = {kind: dict(getattr(state, kind)) for kind in KINDS if kind != "acls"}
    things["acls"] = {acl: acl for acl in state.acls}
    for c in changes:
        there = things[c.kind]
        match c.action, c.kind:
            case Action.DELETE, _:
                del there[c.name]
            case Action.UNCHANGED, _:
                pass
            case Action.CREATE, "topics":
                there[c.name] = Topic(
                    partitions=c.wanted.partitions or 1,
                    replication_factor=c.wanted.replication_factor or 1,
                    configs=c.wanted.configs,
                )
            case _, "topics":
                old = there[c.name]
                kept = {k: v for k, v in old.configs.items() if k not in c.delete}
                there[c.name] = Topic(
                    partitions=c.partitions or old.partitions,
                    replication_factor=old.replication_factor,
                    configs=kept | c.put,
                )
            case _, "quotas":
                kept = {k: v for k, v in there.get(c.name, {}).items() if k not in c.delete}
                there[c.name] = kept | c.put
            case _, "users":
                old = there[c.name].mechanisms if c.name in there else {}
                there[c.name] = User(mechanisms={k: v for k, v in old.items() if k not in c.delete} | c.put)
            case _, "schemas":
                old = there.get(c.name)
                level = c.put.get("compatibility", old.compatibility if old else None)
                new = c.put.get("schema", old)
                there[c.name] = Schema(
                    type=new.type, schema=new.schema, references=new.references, compatibility=level
                )
            case _:
                there[c.name] = c.wanted
    acls = frozenset(things.pop("acls"))
    return State(given=state.given, acls=acls, **things)


IMPOSSIBLE = re.compile("partitions are never removed|moves replicas")


def with_passwords(state: State) -> State:
    users = {n: User(mechanisms=u.mechanisms, password_env="P") for n, u in state.users.items()}
    return State(**{f: getattr(state, f) for f in State.__dataclass_fields__} | {"users": users})


@given(STATES, STATES, st.sets(st.sampled_from(KINDS)))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(current, wanted, prune):
    wanted = with_passwords(wanted)
    try:
        changes = plan(current, wanted, prune=prune)
    except KlammError as e:
        assume(not IMPOSSIBLE.search(str(e)))
        raise
    after = carried_out(current, changes)
    assert {c.action for c in plan(after, wanted, prune=prune)} <= {Action.UNCHANGED}
    for kind in set(KINDS) - prune - {"acls"}:
        assert getattr(after, kind).keys() >= getattr(current, kind).keys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "x: [1] must be a mapping"),
        ("topic: {}", '"topic" must be one of topics, acls'),
        ("topics: {a: {partition: 1}}", '"partition" must be one of partitions'),
        ("topics: {a: {partitions: 0}}", "partitions: 0 must be 1 or more"),
        ("topics: {a: {partitions: true}}", "must be a whole number"),
        ("topics: {a: {configs: {retention.ms: {}}}}", "must be text, a number"),
        ("acls: [{principal: ann, operation: READ, resource: TOPIC, name: t}]", "like User:NAME"),
        (
            "acls: [{principal: 'User:ann', operation: FLY, resource: TOPIC, name: t}]",
            '"FLY" must be one of ALL',
        ),
        ("acls: [{principal: 'User:ann', operation: READ, resource: TOPIC}]", "name is missing"),
        ("quotas: [{limits: {a: 1}}]", "name one of user, client_id, ip"),
        ("quotas: [{user: a, limits: {a: x}}]", "must be a number"),
        ("quotas: [{user: a, limits: {}}, {user: a, limits: {}}]", "has quotas above"),
        ("users: {a: {mechanisms: {PLAIN: 1}}}", '"PLAIN" must be one of SCRAM'),
        ("users: {a: {password_env: A, password_file: b}}", "not both"),
        ("schemas: {a: {type: XML, schema: x}}", '"XML" must be one of AVRO'),
        ("schemas: {a: {type: AVRO}}", "must be text"),
        ("connectors: {a: {x: y}}", "connector.class is missing"),
        (
            "schemas: {a: {schema: x, references: [{name: n, subject: s, version: -1}]}}",
            "must be a version from 1 on",
        ),
        ("topics: {a: 1, a: 2}", "line 1: 'a' is there twice"),
        ("topics: {", "x: not YAML"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(text, said):
    with pytest.raises(ConfigError) as caught:
        list(map(parse, documents(text, "x"), ["x"]))
    assert said in str(caught.value)


def test_a_thing_of_two_files_is_refused():
    one, two = ((f, parse({"topics": {"a": {}}}, f)) for f in ("one", "two"))
    with pytest.raises(ConfigError, match="two: topics: a is in another file, too"):
        merged([one, two])


def test_secrets_of_connectors_are_not_in_the_plan():
    before = {"connector.class": "C", "db.password": "[hidden]", "url": "http://u:[hidden]@h"}
    after = {
        "connector.class": "C",
        "db.password": "sesame",
        "url": "http://u:sesame@h",
        "api.key.secret": "sesame",
    }
    (change,) = plan(
        State(connectors={"c": before}), State(given=frozenset({"connectors"}), connectors={"c": after})
    )
    assert "sesame" not in change.said
    assert change.action is Action.CHANGE
    assert "db.password" not in change.said


def test_referenced_schemas_come_first_and_go_last():
    def schema(*subjects):
        return Schema(
            type="AVRO", schema="{}", references=tuple(Reference(s.upper(), s, 1) for s in subjects)
        )

    every = {"a": schema("z", "m"), "m": schema("z"), "z": schema(), "b": schema("b", "elsewhere")}
    given = frozenset({"schemas"})
    made = plan(State(), State(given=given, schemas=every))
    assert [c.name for c in made] == ["z", "m", "a", "b"]
    gone = plan(State(schemas=every), State(given=given), prune=given)
    assert [c.name for c in gone] == ["b", "a", "m", "z"]


def test_a_hidden_secret_is_no_secret_of_a_new_connector():
    connectors = {"c": {"connector.class": "C", "db.password": "[hidden]"}}
    with pytest.raises(KlammError, match=r"connector c: db\.password is \[hidden\]"):
        plan(State(), State(given=frozenset({"connectors"}), connectors=connectors))
    assert plan(State(connectors=connectors), State(given=frozenset({"connectors"}), connectors=connectors))


@pytest.mark.parametrize("answer", [None, {"message": "no"}])
def test_another_server_is_told_from_a_registry_and_a_worker(answer):
    other = types.SimpleNamespace(call=lambda *_: answer)
    with pytest.raises(KlammError, match="is that a schema registry"):
        read_schemas(other)
    with pytest.raises(KlammError, match="is that a Connect worker"):
        read_connectors(other)


# ---- against servers


@pytest.fixture
def broker(tmp_path, processes):
    config = {
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with EmbeddedBroker(tmp_path / "data", config=config) as running:
        yield running


WANTED = """
topics:
  orders: {partitions: 2, configs: {cleanup.policy: [compact, delete], retention.ms: 1000}}
  events: {}
acls:
  - {principal: "User:ann", operation: read, resource: topic, name: ord, pattern: prefixed}
quotas:
  - {user: ann, limits: {producer_byte_rate: 1048576}}
  - {user: null, client_id: c, limits: {consumer_byte_rate: 5}}
users:
  ann: {mechanisms: {SCRAM-SHA-512: 4096}, password_env: ANN}
schemas:
  orders-value: {schema: {type: record, name: R, fields: []}, compatibility: FULL}
connectors:
  sink: {connector.class: FileStreamSink, topics: orders, file: /dev/null}
"""


@pytest.mark.usefixtures("processes")
def test_a_password_that_is_missing_is_found_before_anything_is_changed(broker, tmp_path):
    file = tmp_path / "wanted.yaml"
    file.write_text(
        "topics: {early: {partitions: 1}}\n"
        "users: {ann: {mechanisms: {SCRAM-SHA-512: 4096}, password_env: KLAMM_NO_SUCH_PASSWORD}}\n"
    )
    done = klamm("apply", "-f", str(file), "-b", broker.bootstrap)
    assert done.returncode == 2
    said = "klamm: users: ann: the environment variable KLAMM_NO_SUCH_PASSWORD holds no password\n"
    assert done.stderr == said
    assert klamm("topic", "list", "--topic", "early", "-b", broker.bootstrap, "-o", "csv").stdout.split() in (
        [],
        ["topic,partitions,replicas"],
    )


def test_a_setting_that_is_refused_leaves_no_new_partitions(broker, tmp_path):
    file = tmp_path / "wanted.yaml"
    words = ("apply", "-f", str(file), "-b", broker.bootstrap)
    file.write_text("topics: {orders: {partitions: 1}}\n")
    assert klamm(*words).returncode == 0
    file.write_text("topics: {orders: {partitions: 3, configs: {retention.ms: soon}}}\n")
    done = klamm(*words)
    assert (done.returncode, "0 of 1 change done; then change topics orders: " in done.stderr) == (1, True)
    (row,) = json.loads(
        klamm("topic", "list", "--topic", "orders", "-o", "json", "-b", broker.bootstrap).stdout
    )
    assert row["partitions"] == 1


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_tells_what_was_done(broker, tmp_path, monkeypatch, number, name):
    file = tmp_path / "wanted.yaml"
    file.write_text("topics: {a: {partitions: 1}, b: {partitions: 1}, c: {partitions: 1}}\n")
    carry_out = carrying.carry_out

    async def interrupted(admin, change):
        if change.name == "b":
            signal.raise_signal(number)
            await asyncio.sleep(30)
        await carry_out(admin, change)

    monkeypatch.setattr(carrying, "carry_out", interrupted)
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "-b", broker.bootstrap])
    said = f"klamm: 1 of 3 changes done; then create topics b: {name}; nobody knows whether this one is done"
    assert (done.exit_code, said in done.output) == (128 + number, True)


def test_a_signal_after_the_last_change_tells_that_all_are_done(broker, tmp_path, monkeypatch):
    file = tmp_path / "wanted.yaml"
    file.write_text("topics: {only: {partitions: 1}}\n")
    carry_out = carrying.carry_out

    async def interrupted(admin, change):
        await carry_out(admin, change)
        signal.raise_signal(signal.SIGINT)  # connections are closed next

    monkeypatch.setattr(carrying, "carry_out", interrupted)
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "-b", broker.bootstrap])
    assert (done.exit_code, done.stderr) == (130, "klamm: 1 of 1 change done; then Ctrl-C\n")


def test_a_cluster_becomes_as_a_file_wants_it(broker, klamm_worker, tmp_path, monkeypatch):
    monkeypatch.setenv("ANN", "sesame")
    file = tmp_path / "wanted.yaml"
    file.write_text(WANTED)
    with SchemaRegistry() as registry:
        places = ("-b", broker.bootstrap, "--registry", registry.url, "--url", klamm_worker.url)

        def run(*words, code=0):
            done = klamm(*words, *places)
            assert done.returncode == code, done.stderr
            return done.stdout

        def actions(text):
            return [line.split()[0] for line in text.splitlines()[1:]]

        assert actions(run("apply", "-f", str(file), "--check", code=3)) == ["create"] * 8
        assert actions(run("apply", "-f", str(file))) == ["create"] * 8
        assert actions(run("apply", "-f", str(file), "--check")) == ["unchanged"] * 8

        exported = run("export")
        (tmp_path / "exported.yaml").write_text(exported)
        assert set(actions(run("apply", "-f", str(tmp_path / "exported.yaml"), "--check"))) == {"unchanged"}
        assert pyyaml.safe_load(exported)["topics"]["orders"]["configs"]["cleanup.policy"] == "compact,delete"
        assert "sesame" not in exported

        file.write_text("topics: {orders: {partitions: 3, configs: {retention.ms: 5}}}\nacls: []\n")
        rows = json.loads(run("apply", "-f", str(file), "--prune", "topics,acls", "--dry-run", "-o", "json"))
        assert [(r["action"], r["kind"], r["name"]) for r in rows] == [
            ("change", "topics", "orders"),
            ("delete", "acls", "User:ann is allowed READ on TOPIC PREFIXED ord from host *"),
            ("delete", "topics", "events"),
        ]
        assert (
            rows[0]["change"]
            == "partitions: 2 -> 3, retention.ms: 1000 -> 5, cleanup.policy: compact,delete -> (default)"
        )
        done = klamm("apply", "-f", str(file), "--prune", "topics,acls", *places)
        assert (done.returncode, "2 deletions: give --yes" in done.stderr) == (1, True)
        run("apply", "-f", str(file), "--prune", "topics,acls", "--yes")
        assert list(pyyaml.safe_load(run("export", "--kinds", "topics"))["topics"]) == ["orders"]
        assert pyyaml.safe_load(run("export", "--kinds", "acls,topics", "--topic", "no*")) == {
            "topics": {},
            "acls": [],
        }

        file.write_text("topics: {orders: {partitions: 1}}\n")
        done = klamm("apply", "-f", str(file), *places)
        assert (done.returncode, "partitions are never removed" in done.stderr) == (1, True)
