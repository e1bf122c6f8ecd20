"""Every key of Debezium that is honoured has a test that shows its effect with a real MariaDB: `CASES` names it.

A key without a case fails here, and so does a case whose test is gone, asserts nothing or does not give its key a value: as a keyword,
as a key of a dict or as a parameter. That the test fails without the key's effect is for the reviewer to see.
"""

import ast
import json
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from support import original_keys
from support.mysql_types import MODES

HERE: Final = Path(__file__).parent
TABLE: Final = json.loads(original_keys.ORIGINALS["debezium"].path.read_text("utf-8"))
HONOURED: Final = sorted(
    {name for keys in TABLE.values() for name, row in keys.items() if row[2] == "honoured"}
)


_KEYS, _FURTHER, _SIGNALS, _SOURCE = (
    f"test_mysql_{name}.py::" for name in ("debezium_keys", "further_keys", "signals", "source")
)
_TLS, _TYPES, _TRANSACTIONS = (f"test_mysql_{name}.py::" for name in ("tls", "types", "transactions"))
_MODES: Final = _TYPES + "test_every_type_is_as_debezium_has_it"

CASES: Final = {
    "bigint.unsigned.handling.mode": _MODES,
    "binary.handling.mode": _MODES,
    "column.exclude.list": _KEYS + "test_columns_that_are_left_out_stay_in_the_key",
    "column.include.list": _KEYS + "test_columns_that_are_left_out_stay_in_the_key",
    "column.mask.hash.*.with.salt.*": _KEYS + "test_columns_are_masked_hashed_and_cut_in_snapshot_and_binlog",
    "column.mask.with.*.chars": _KEYS + "test_columns_are_masked_hashed_and_cut_in_snapshot_and_binlog",
    "column.truncate.to.*.chars": _KEYS + "test_columns_are_masked_hashed_and_cut_in_snapshot_and_binlog",
    "connect.timeout.ms": _FURTHER + "test_an_attempt_to_connect_ends_in_time",
    "database.exclude.list": _FURTHER + "test_an_excluded_database_is_not_captured",
    "database.hostname": _SOURCE + "test_a_server_that_is_not_there_is_tried_again",
    "database.include.list": _FURTHER + "test_databases_and_tables_that_are_captured",
    "database.password": _FURTHER + "test_user_and_password",
    "database.port": _FURTHER + "test_an_attempt_to_connect_ends_in_time",
    "database.server.id": _FURTHER + "test_the_number_under_which_the_binlog_is_read",
    "database.ssl.keystore": _TLS + "test_a_key_store_says_who_we_are",
    "database.ssl.keystore.password": _TLS + "test_a_key_store_says_who_we_are",
    "database.ssl.mode": _TLS + "test_disabled_is_in_clear",
    "database.ssl.truststore": _TLS + "test_the_servers_certificate_is_checked",
    "database.ssl.truststore.password": _FURTHER + "test_the_trust_stores_password",
    "database.user": _FURTHER + "test_user_and_password",
    "decimal.handling.mode": _MODES,
    "event.processing.failure.handling.mode": _KEYS + "test_rows_that_do_not_fit_are_left_out_and_named",
    "field.name.adjustment.mode": _FURTHER + "test_names_of_schemas_and_fields_are_those_that_avro_has",
    "gtid.source.excludes": _KEYS + "test_transactions_of_some_servers",
    "gtid.source.filter.dml.events": _KEYS + "test_transactions_of_some_servers",
    "gtid.source.includes": _KEYS + "test_transactions_of_some_servers",
    "heartbeat.action.query": _KEYS + "test_a_statement_runs_with_each_heartbeat",
    "heartbeat.interval.ms": _SOURCE + "test_lag_heartbeats_and_a_position_that_moves",
    "heartbeat.topics.prefix": _FURTHER + "test_names_of_the_topics_beside_the_tables",
    "include.schema.changes": _TRANSACTIONS + "test_the_topic_of_schema_changes",
    "incremental.snapshot.chunk.size": _SIGNALS + "test_the_topic_ends_up_as_the_table_while_others_write",
    "max.batch.size": _FURTHER + "test_a_batch_has_about_as_many_records_as_it_may",
    "max.queue.size": _FURTHER + "test_the_queue_of_events_is_as_long_as_it_may_be",
    "message.key.columns": _KEYS + "test_columns_that_are_left_out_stay_in_the_key",
    "poll.interval.ms": _KEYS + "test_a_poll_interval_of_any_length_does_not_delay_events",
    "provide.transaction.metadata": _FURTHER + "test_names_of_the_topics_beside_the_tables",
    "schema.history.internal.consumer.*": _FURTHER + "test_clients_get_their_properties",
    "schema.history.internal.kafka.bootstrap.servers": "test_mysql_vanished.py::"
    "test_without_a_cluster_it_is_said_and_a_cluster_that_is_away_is_tried_again",
    "schema.history.internal.producer.*": _FURTHER + "test_clients_get_their_properties",
    "signal.consumer.*": _FURTHER + "test_clients_get_their_properties",
    "schema.name.adjustment.mode": _FURTHER + "test_names_of_schemas_and_fields_are_those_that_avro_has",
    "signal.data.collection": "test_mysql_pipeline.py::"
    "test_tasks_and_the_server_are_killed_in_the_middle_and_every_row_is_right",
    "signal.enabled.channels": _SIGNALS + "test_signals_by_a_topic",
    "signal.kafka.bootstrap.servers": _SIGNALS + "test_signals_by_a_topic",
    "signal.kafka.groupId": _SIGNALS + "test_signals_by_a_topic",
    "signal.kafka.topic": _SIGNALS + "test_signals_by_a_topic",
    "signal.poll.interval.ms": _SIGNALS + "test_signals_by_a_topic",
    "skipped.operations": _KEYS + "test_skipped_operations_leave_no_records_and_the_position_moves",
    "snapshot.fetch.size": _SOURCE + "test_snapshots_page_by_any_key_and_without_one",
    "snapshot.locking.mode": _FURTHER + "test_a_snapshot_locks_the_server_or_does_not",
    "snapshot.max.threads": _KEYS + "test_a_snapshot_by_statements_of_ones_own_and_by_several_connections",
    "snapshot.mode": _SOURCE + "test_a_killed_server_a_purged_binlog_and_a_log_that_is_off",
    "snapshot.select.statement.overrides": _KEYS
    + "test_a_snapshot_by_statements_of_ones_own_and_by_several_connections",
    "snapshot.select.statement.overrides.*": _KEYS
    + "test_a_snapshot_by_statements_of_ones_own_and_by_several_connections",
    "table.exclude.list": _FURTHER + "test_databases_and_tables_that_are_captured",
    "table.include.list": _FURTHER + "test_databases_and_tables_that_are_captured",
    "time.precision.mode": _MODES,
    "tombstones.on.delete": _FURTHER + "test_a_deleted_row_has_a_tombstone_or_none",
    "topic.delimiter": _KEYS + "test_skipped_operations_leave_no_records_and_the_position_moves",
    "topic.prefix": _FURTHER + "test_names_of_the_topics_beside_the_tables",
    "topic.transaction": _FURTHER + "test_names_of_the_topics_beside_the_tables",
}
"""By key, FILE::TEST in this folder."""


def test_every_honoured_key_has_a_case_and_no_other():
    assert sorted(CASES) == HONOURED


@pytest.mark.parametrize("key", HONOURED)
def test_the_case_is_there_meets_mariadb_and_sets_the_key(key):
    file, _, name = CASES[key].partition("::")
    tree, text = parsed(file)
    functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    assert name in functions, f"{CASES[key]} is gone"
    assert 'usefixtures("mariadb_server")' in text
    test = functions[name]
    named = [*calls(test, functions), *test.decorator_list]
    words = {w for node in [test, *named] for w in given(node)}
    checks = [n for node in [test, *named] for n in ast.walk(node) if isinstance(n, ast.Assert | ast.With)]
    assert any(isinstance(n, ast.Assert) or "raises" in ast.unparse(n.items[0]) for n in checks)
    if "MODES" in text:
        words |= {k for mode in MODES.values() for k in mode}
    assert any(sets(word, key) for word in words), f"{CASES[key]} does not set {key}"


@cache
def parsed(file):
    text = (HERE / file).read_text("utf-8")
    return ast.parse(text), text


def calls(test, functions):
    """Yields the helpers and fixtures of the file that a test names."""
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)} | {a.arg for a in test.args.args}
    return [functions[name] for name in names if name in functions]


def given(node):
    """Yields the keys that a piece of code gives a value: keywords, keys of dicts, parameters of a decorator or of a helper."""
    constants = {
        n.targets[0].id: n.value for n in ast.walk(node) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }  # fmt: skip
    for part in ast.walk(node):
        match part:
            case ast.keyword(arg=str(name)):
                yield name.replace("__", ".")
            case ast.Dict(keys=keys):
                named = (constants.get(k.id, k) if isinstance(k, ast.Name) else k for k in keys if k)
                yield from (text for key in named for text in texts(key))
            case ast.Call(args=args):
                for one in args:
                    yield from texts(one)


def texts(node):
    """Yields the texts in a piece of code, with those that an f-string begins or ends with."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value.replace("__", ".")


def sets(word, key):
    """Decides whether a text is the key, or one of the keys that it stands for."""
    if "*" not in key:
        return word == key
    return word.startswith(key.partition("*")[0].rstrip("."))
