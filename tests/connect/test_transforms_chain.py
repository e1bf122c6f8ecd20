"""The chain of a task: order, predicates, drops, bad records, retries, and how it is made of a config."""

import pytest

from klamm.connect.child.stage_keys import stage_answers
from klamm.connect.child.transform_chain import Stage, TransformChain, make_chain
from klamm.connect.model import PluginInfo
from klamm.connect.plugins.catalog import PluginRegistry
from klamm.connect.validation.connector import key_info, value_info
from klamm.connect.validation.stages import stage_rows, unknown_keys
from klamm.environments.inspection import Broken
from klamm_base.configdef import ConfigDef, Type
from klamm_base.errors import ConfigError
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import DataError, PluginNotFoundError, RetriableError
from klamm_plugins.records import Headers, SinkRecord, SourceRecord
from klamm_plugins.transform import Predicate, Transformation

PLUGINS = PluginManager.load()
REGISTRY = PluginRegistry(
    [PluginInfo(d.class_name, d.type.value, d.version, tuple(d.names)) for d in PLUGINS.plugins()]
)
KAFKA = "org.apache.kafka.connect.transforms."


class Suffix(Transformation):
    """Adds a letter to the value; `drop` and `bad` are dropped and refused. Counts its calls."""

    def __init__(self, letter="x", busy=0):
        self.letter, self.busy, self.calls, self.closed = letter, busy, [], 0

    def apply(self, record):
        if record.value.startswith("drop"):
            return None
        if record.value.startswith("bad"):
            raise DataError(f"no {record.value}")
        if record.value.startswith("busy") and self.busy:
            self.busy -= 1
            raise RetriableError("not now")
        made = record.copy()
        made.value += self.letter
        return made

    def apply_many(self, records):
        self.calls.append(len(records))
        return super().apply_many(records)

    def close(self):
        self.closed += 1


class Long(Predicate):
    def test(self, record):
        return len(record.value) > 3


class Door:
    """The part of Tolerance that the chain sees."""

    def __init__(self, *, tolerates=True):
        self.tolerates, self.failures, self.tries = tolerates, [], 0
        self.retry = self

    def call(self, stage, operation):
        assert stage == "TRANSFORMATION"
        for _ in range(3):
            self.tries += 1
            try:
                return operation()
            except RetriableError:
                continue
        return operation()

    def failed(self, record, error, *, stage, executing):
        assert stage == "TRANSFORMATION"
        self.failures.append((record.value, str(error), executing))
        if not self.tolerates:
            raise error


def records(*values):
    return [SourceRecord({"p": 1}, {"n": i}, "t", value=v) for i, v in enumerate(values)]


def values(pairs):
    return [None if made is None else made.value for _, made in pairs]


def chain_of(*transforms, **rest):
    return TransformChain([Stage(alias=str(i), transform=t, **rest) for i, t in enumerate(transforms)])


def test_an_empty_chain_is_false_and_gives_records_back():
    chain = TransformChain()
    assert not chain
    (one,) = records("a")
    assert chain.apply([one], Door()) == [(one, one)]


def test_transforms_follow_one_another_a_list_a_call():
    first, second = Suffix("x"), Suffix("y")
    given = records(*"abc")
    pairs = chain_of(first, second).apply(given, Door())
    assert values(pairs) == ["axy", "bxy", "cxy"]
    assert [original for original, _ in pairs] == given
    assert [r.value for r in given] == ["a", "b", "c"]
    assert first.calls == second.calls == [3]


def test_what_is_dropped_goes_no_further_and_keeps_its_place():
    first, second = Suffix("x"), Suffix("y")
    pairs = chain_of(first, second).apply(records("a", "drop", "b", "drop"), Door())
    assert values(pairs) == ["axy", None, "bxy", None]
    assert second.calls == [2]


def test_all_dropped():
    second = Suffix()
    assert values(chain_of(Suffix(), second).apply(records("drop", "drop"), Door())) == [None, None]
    assert second.calls == []


def test_one_bad_record_is_judged_and_the_others_go_on():
    door = Door()
    pairs = chain_of(Suffix("x"), Suffix("y")).apply(records("a", "bad", "b"), door)
    assert values(pairs) == ["axy", None, "bxy"]
    assert door.failures == [("bad", "no bad", f"{__name__}.Suffix")]


def test_the_tolerance_may_let_the_error_through():
    with pytest.raises(DataError, match="no bad"):
        chain_of(Suffix()).apply(records("a", "bad"), Door(tolerates=False))


def test_what_may_pass_is_tried_again():
    door = Door()
    pairs = chain_of(Suffix("x", busy=3)).apply(records("a", "busy", "b"), door)
    assert values(pairs) == ["ax", "busyx", "bx"]
    assert not door.failures
    assert door.tries == 5  # once by the list, then one by one: a, busy three times, b


def test_the_original_is_what_is_judged():
    door = Door()

    class Spoil(Suffix):
        def apply(self, record):
            made = record.copy()
            made.value = "bad" + record.value
            return made

    chain_of(Spoil(), Suffix()).apply(records("a"), door)
    assert [value for value, _, _ in door.failures] == ["a"]


@pytest.mark.parametrize(("negate", "expected"), [(False, ["a", "longx", "b"]), (True, ["ax", "long", "bx"])])
def test_a_predicate_chooses(negate, expected):
    transform = Suffix("x")
    chain = chain_of(transform, predicate=Long(), predicate_alias="p", negate=negate)
    assert values(chain.apply(records("a", "long", "b"), Door())) == expected


def test_nobody_is_chosen():
    transform = Suffix("x")
    chain = chain_of(transform, predicate=Long())
    assert values(chain.apply(records("a", "b"), Door())) == ["a", "b"]
    assert transform.calls == []


def test_a_predicate_that_drops_some_of_the_chosen():
    chain = TransformChain(
        [Stage(alias="f", transform=PLUGINS.find_transformation("Filter")(), predicate=Long())]
    )
    assert values(chain.apply(records("a", "long", "b"), Door())) == ["a", None, "b"]


class Short(Transformation):
    def apply(self, record):
        return record

    def apply_many(self, records):
        return list(records[1:])


def test_a_transform_that_loses_records_is_not_believed():
    # One by one it does what it should, so nothing is lost.
    door = Door()
    assert values(chain_of(Short()).apply(records("a", "b"), door)) == ["a", "b"]
    assert not door.failures


def test_trace_shows_each_step():
    chain = chain_of(Suffix("x"), Suffix("y"), predicate=Long())
    steps = list(chain.trace(records("abc")[0]))
    assert [(s.stage.alias, s.applied, s.record.value) for s in steps] == [
        ("0", False, "abc"),
        ("1", False, "abc"),
    ]
    steps = list(chain.trace(records("badly")[0]))
    assert [(s.applied, s.record, str(s.error)) for s in steps] == [(True, None, "no badly")]
    steps = list(chain_of(Suffix(), Suffix()).trace(records("drop")[0]))
    assert [(s.record, s.error) for s in steps] == [(None, None)]


CONFIG = {
    "transforms": "hoist, route",
    "transforms.hoist.type": f"{KAFKA}HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "x-$1",
    "transforms.route.predicate": "some",
    "transforms.route.negate": "true",
    "predicates": "some",
    "predicates.some.type": f"{KAFKA}predicates.TopicNameMatches",
    "predicates.some.pattern": "keep.*",
}


def test_a_chain_is_made_of_a_config():
    chain = make_chain(PLUGINS, CONFIG)
    given = [SourceRecord({}, {}, t, value=t) for t in ("keep-1", "other")]
    pairs = chain.apply(given, Door())
    assert [(made.topic, made.value) for _, made in pairs] == [
        ("keep-1", {"line": "keep-1"}),
        ("x-other", {"line": "other"}),
    ]
    hoist, route = chain.info()
    assert hoist["transform-class"] == f"{KAFKA}HoistField$Value"
    assert (route["transform"], route["predicate"]) == ("route", "some")
    assert route["predicate-class"].endswith("TopicNameMatches")
    chain.close()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            {"transforms.hoist.type": ""},
            ConfigError,
            'Missing required configuration "transforms.hoist.type"',
        ),
        ({"transforms.hoist.type": "no.Such"}, PluginNotFoundError, "Class no.Such could not be found"),
        (
            {"transforms.hoist.field": None},
            ConfigError,
            'transforms.hoist: Missing required configuration "field"',
        ),
        ({"transforms.route.regex": "("}, ConfigError, "transforms.route: Invalid value"),
        ({"transforms.route.predicate": "none"}, ConfigError, "no predicate of this name"),
        ({"transforms.route.predicate": None}, ConfigError, "no config 'transforms.route.predicate'"),
        ({"predicates.some.type": None}, ConfigError, "predicates.some.type"),
        ({"predicates.some.pattern": "["}, ConfigError, "predicates.some: Invalid value"),
        ({"transforms.route.negate": "perhaps"}, ConfigError, "perhaps"),
    ],
)
def test_a_chain_that_cannot_be_made(change, error, says):
    config = {k: v for k, v in {**CONFIG, **change}.items() if v is not None}
    with pytest.raises(error) as raised:
        make_chain(PLUGINS, config)
    assert says in str(raised.value)


def rows_of(config):
    rows = stage_rows(
        config,
        REGISTRY,
        stage_answers(PLUGINS, config),
        lambda key, value: {"definition": key_info(key), "value": value_info(value, key.type)},
    )
    return {row["value"]["name"]: row for row in rows}


def errors_of(config):
    return {name: row["value"]["errors"] for name, row in rows_of(config).items() if row["value"]["errors"]}


def test_a_good_config_is_valid_and_shows_full_names():
    rows = rows_of(CONFIG)
    assert not errors_of(CONFIG)
    assert list(rows) == [
        *(f"transforms.hoist.{k}" for k in ("type", "plugin.version", "field", "negate", "predicate")),
        *(f"transforms.route.{k}" for k in ("type", "plugin.version", "regex", "replacement", "negate", "predicate")),
        *(f"predicates.some.{k}" for k in ("type", "plugin.version", "pattern")),
    ]  # fmt: skip
    assert rows["transforms.route.type"]["value"]["value"] == f"{KAFKA}RegexRouter"
    assert rows["transforms.route.type"]["definition"]["group"] == "Transforms: route"
    assert rows["predicates.some.pattern"]["definition"]["order_in_group"] == 2


def test_what_is_wrong_is_said_beside_its_key():
    config = {
        "transforms": "a,b,c,d,e",
        "transforms.a.type": f"{KAFKA}Cast",
        "transforms.b.type": f"{KAFKA}predicates.TopicNameMatches",
        "transforms.c.type": f"{KAFKA}InsertField$Value",
        "transforms.d.type": "Filter",
        "transforms.d.negate": "true",
        "transforms.e.type": "Filter",
        "transforms.e.predicate": "none",
    }
    assert errors_of(config) == {
        "transforms.a.type": [
            f"This class is abstract and cannot be created. Did you mean {KAFKA}Cast$Key, {KAFKA}Cast$Value?"
        ],
        "transforms.b.type": [
            f"Class {KAFKA}predicates.TopicNameMatches does not implement the Transformation interface"
        ],
        "transforms.c.type": ["transforms.c: No field insertion configured"],
        "transforms.d.type": [
            (
                "Config 'transforms.d.negate' was provided but there is no config 'transforms.d.predicate' defining "
                "a predicate to be negated."
            )
        ],
        "transforms.e.predicate": [
            "Invalid value none for configuration transforms.e.predicate: there is no predicate of this name in predicates"
        ],
    }


@pytest.mark.parametrize(
    ("cls", "key"),
    [("Filter", "condition"), ("ContentBasedRouter", "topic.expression")],
)
def test_an_expression_that_cannot_be_read_is_an_error_of_its_key(cls, key):
    config = {
        "transforms": "f",
        "transforms.f.type": f"io.debezium.transforms.{cls}",
        "transforms.f.language": "jsr223.groovy",
        f"transforms.f.{key}": "value.op ==",
    }
    ((name, said),) = errors_of(config).items()
    assert name == f"transforms.f.{key}"
    assert said[0].startswith(f"transforms.f: Invalid value value.op == for configuration {key}: ")


def test_errors_name_the_transform_and_what_may_be_meant():
    config = {
        "transforms": "a,b,c,d",
        "transforms.a.type": "RegexRouter",
        "transforms.a.regex": "(",
        "transforms.a.replacement": "x",
        "transforms.b.type": "Cast$Value",
        "transforms.b.spec": "int33",
        "transforms.c.type": "InsertField",
        "transforms.d.type": "HoistFeild$Key",
    }
    found = errors_of(config)
    assert found["transforms.a.regex"][0].startswith(
        "Invalid value ( for configuration transforms.a.regex: Invalid regex"
    )
    assert found["transforms.b.spec"] == ["transforms.b.spec: Invalid type found in casting spec: int33"]
    assert found["transforms.c.type"] == [
        (
            "Invalid value InsertField for configuration transforms.c.type: Class InsertField could not be found; did you "
            "mean InsertField$Key or InsertField$Value? `klamm connector plugins --all` lists all"
        )
    ]
    assert "could not be found; did you mean HoistField$Key? `klamm" in found["transforms.d.type"][0]


def test_a_class_that_nobody_has_may_be_in_a_package_that_is_broken():
    broken = Broken("acme", "SyntaxError: '(' was never closed (up.py, line 3)", "")
    registry = PluginRegistry([PluginInfo("acme.Uppercase", "transformation", "1", ("Uppercase",))], [broken])
    assert registry.not_found("Uppercas", "transformation") == (
        "Class Uppercas could not be found; did you mean Uppercase? `klamm connector plugins --all` lists all; "
        "these plugin packages could not be loaded: acme (SyntaxError: '(' was never closed (up.py, line 3))"
    )


def test_keys_below_transforms_that_mean_nothing_are_named():
    config = {
        "transforms": "a, b.c",
        "transforms.a.type": "ExtractField$Value",
        "transforms.a.feild": "x",
        "transforms.a.other": "x",
        "transforms.b.c.type": "Filter",
        "transforms.b.c.nothing": "x",
        "transforms.aa.type": "Filter",
        "predicates.p.type": "RecordIsTombstone",
        "connector.own": "x",
    }
    assert dict(unknown_keys(config, set(rows_of(config)) | {"transforms"})) == {
        "transforms.a.feild": "transforms.a.feild is not a setting of this transformation; did you mean transforms.a.field?",
        "transforms.a.other": "transforms.a.other is not a setting of this transformation",
        "transforms.b.c.nothing": "transforms.b.c.nothing is not a setting of this transformation",
        "transforms.aa.type": "transforms.aa.type has no effect: transforms does not list aa",
        "predicates.p.type": "predicates.p.type has no effect: predicates does not list p",
    }


def test_a_transforms_own_key_of_a_runtime_name_is_masked():
    class Masked(Suffix):
        @classmethod
        def config(cls):
            return ConfigDef().define("predicate", Type.INT, 5).define("own", Type.STRING, "v")

    class Loaded(PluginManager):
        def find_transformation(self, name):
            return Masked

    answer = stage_answers(Loaded(), {"transforms": "m", "transforms.m.type": "Masked"})["transforms.m."]
    kinds = {row["value"]["name"]: row["definition"]["type"] for row in answer["rows"]}
    assert kinds == {
        "transforms.m.negate": "BOOLEAN",
        "transforms.m.own": "STRING",
        "transforms.m.predicate": "STRING",
    }


def test_a_sinks_record_remembers_where_it_was_read():
    record = SinkRecord("t", 3, None, "k", None, "v", 7, 5, "CreateTime", Headers.of(("h", 1)))
    chain = make_chain(
        PLUGINS, {k: v for k, v in CONFIG.items() if "predicate" not in k and "negate" not in k}
    )
    ((_, made),) = chain.apply([record], Door())
    assert (made.topic, made.partition, made.offset) == ("x-t", 3, 7)
    assert (made.original_topic, made.original_kafka_partition, made.original_kafka_offset) == ("t", 3, 7)
    assert (made.key, made.timestamp, made.timestamp_type, made.headers) == (
        "k",
        5,
        "CreateTime",
        record.headers,
    )
    assert record.topic == "t"
