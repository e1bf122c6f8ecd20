"""The tests that start processes and run in every `./dev test`: they prove each capability of the README end to end.

The keys are the capabilities in bold of README's "What is here". A value names files, functions or single tests. The sum
of all must fit two cores for five minutes beside the pure tests: a new capability brings its proof here, and the proof
is the shortest that there is.
"""

from __future__ import annotations

from typing import Final

import pytest

ESSENTIAL: Final[dict[str, tuple[str, ...]]] = {
    "Broker": (
        "tests/broker/test_server_clients.py",
        "tests/broker/test_authorizer_broker.py::test_rights_are_there_after_kill_9",
        "tests/broker/test_group_clients.py::test_aiokafka",
        "tests/broker/test_group_clients.py::test_members_share_partitions_and_inherit_them",
        "tests/broker/test_consumer_group_clients.py::test_members_join_and_leave",
        "tests/broker/test_consumer_group_clients.py::test_live_migration_to_the_new_protocol_and_back",
        "tests/broker/test_txn_clients.py::test_committed_records_are_read_and_aborted_ones_are_not",
        "tests/broker/test_txn_clients.py::test_aiokafka",
        "tests/broker/test_fetch_session_clients.py::test_librdkafka_reads_many_partitions_without_sessions",
        "tests/broker/test_admin_clients.py",
        "tests/broker/test_api_configs.py::test_a_brokers_default_is_changed_while_it_runs",
        "tests/broker/test_quotas.py::test_a_producer_over_its_quota_is_answered_at_once_and_then_waits",
        "tests/conformance/test_conformance_tools_topics.py",
        "tests/cli/test_console_tools.py::test_there_and_back",
    ),
    "Log": (
        "tests/broker/test_server_kill.py::test_nothing_acknowledged_is_lost[False]",
        "tests/broker/test_cleaner_server.py::test_the_cleaner_process_is_killed",
        "tests/broker/test_log_dump_segments.py::test_every_record",
    ),
    "Console": (
        "tests/console/test_console_pages.py::test_a_connector_from_its_form_to_its_end",
        "tests/console/test_console_pages.py::test_records_are_searched_and_shown",
    ),
    "Doctor": ("tests/doctor/test_doctor_command.py",),
    "Services": (
        "tests/service/test_service_systemd.py::test_a_broker_is_installed_watched_and_removed",
        "tests/service/test_service_unit.py",
    ),
    "Metrics": ("tests/broker/test_server_metrics.py",),
    "Connect workers": (
        "tests/connect/test_herd_cluster.py::test_herd_workers_that_start_at_once_share_the_tasks",
        "tests/connect/test_herd_cluster.py::test_herd_every_worker_does_what_is_asked_of_any",
        "tests/connect/test_standalone_worker.py::test_standalone_worker_runs_its_files_and_goes_on_where_it_was",
        "tests/connect/test_rest_access.py::test_nobody_unknown_comes_in",
        "tests/connect/test_rest_access.py::test_tokens",
        "tests/connect/test_rest_dry_run.py",
        "tests/connect/test_secrets_rest.py::test_rest_a_connector_with_references_runs_and_only_they_are_shown",
        "tests/connect/test_rest_contract.py::test_answers_fit_the_document",
        "tests/cli/test_cli_connector.py::test_a_connector_from_json_to_deletion",
        "tests/cli/test_cli_up.py::test_up_serves_and_leaves_nothing_behind",
    ),
    "Tasks": (
        "tests/connect/test_runtime_supervisor.py::test_failures_show_their_trace_and_are_restarted_by_class",
        "tests/connect/test_runtime_driver.py::test_a_driver_runs_pauses_stops_and_goes_on_from_its_offset",
        "tests/connect/test_runtime_broker.py::test_kill_9_of_a_source_task_under_load_loses_nothing",
        "tests/connect/test_runtime_broker.py::test_a_sink_delivers_in_order_commits_on_stop_and_goes_on_there",
        "tests/connect/test_task_dlq.py::test_replay_sends_each_record_once_as_it_was",
        "tests/connect/test_eos_broker.py::test_records_without_keys_are_spread_and_each_partition_is_in_order",
    ),
    "Plugins": (
        "tests/plugins/test_plugin_example.py::test_the_package_is_found",
        "tests/connect/test_env_fork_servers.py::test_a_server_starts_when_needed_and_ends_when_idle",
        "tests/connect/test_transforms_worker.py",
        "tests/connect/test_converters_worker.py",
    ),
    "Schema registry": (
        "tests/registry/test_registry_clients.py::test_serializers_of_python",
        "tests/registry/test_registry_clients.py::test_nothing_acknowledged_is_lost_by_kill_9",
    ),
    "REST proxy": (
        "tests/restproxy/test_restproxy_formats.py::test_avro_with_confluents_serializers",
        "tests/restproxy/test_restproxy_api.py::test_nothing_acknowledged_is_lost_by_kill_9",
    ),
    "File source and sink": (
        "tests/connectors/test_connector_conformance.py::TestFileSink",
        "tests/connect/test_rest_lifecycle.py::test_rest_worker_that_was_stopped_goes_on_where_it_was",
    ),
    "Elasticsearch sink": (
        "tests/connectors/elasticsearch/test_elasticsearch_sink.py::test_a_topic_becomes_an_index",
    ),
    "MySQL and SQL": (
        "tests/connectors/mysql/test_mysql_pipeline.py::test_rows_come_back_from_topics_as_they_were",
        "tests/connectors/sql/test_sql_sink.py::test_mariadb_upserts_deletes_and_keys_that_differ_in_case",
    ),
    "Mirror": (
        "tests/mirror/test_mirror_dedicated.py::test_a_consumer_moves_and_goes_on_without_loss_and_nothing_goes_in_circles",
        "tests/mirror/test_mirror_source.py::test_records_arrive_as_they_are_and_none_is_decoded",
    ),
    "Backup": ("tests/backup/test_backup_commands.py::test_there_and_back",),
    "Log agent": (
        "tests/agent/test_agent_delivery.py::test_rotation_under_load_and_kills_lose_nothing",
        "tests/agent/test_agent_files.py::test_traces_containers_and_wide_text_in_one_agent",
        "tests/agent/test_agent_parse.py::test_documents_dead_letters_and_counted_drops",
        "tests/agent/test_agent_spool.py::test_lines_are_safe_on_disk_while_the_broker_is_away",
        "tests/agent/test_agent_stdin.py",
        "tests/agent/test_agent_syslog_senders.py::test_logger",
        "tests/agent/test_agent_syslog_senders.py::test_rsyslog_forwards",
        "tests/agent/test_agent_journald.py::test_entries_are_followed_and_a_restart_goes_on_behind_the_last",
    ),
    "`klamm.logging.KafkaHandler`": (
        "tests/agent/test_agent_handler.py::test_records_arrive_as_documents",
        "tests/agent/test_agent_handler_structlog.py::test_events_are_documents",
    ),
    "Lag": (
        "tests/lag/test_lag_server.py::test_a_consumer_stalls_goes_back_and_stops_and_each_is_told_once",
    ),
    "Spark": (
        "tests/spark/test_spark_datasource.py::test_a_batch_reads_what_is_in_the_topic",
        "tests/spark/test_spark_datasource.py::test_what_a_stream_writes_is_in_the_topic",
        "tests/spark/test_spark_commands.py::test_a_schema_is_shown_and_what_came_since_is_taken_in",
        "tests/spark/test_spark_driver.py::test_the_command_runs_a_job_and_drains_on_ctrl_c",
        "tests/spark/test_spark_reset.py::test_the_command_shows_and_then_sets_where_the_job_begins",
    ),
    "The log pipeline": (
        "tests/pipeline/test_reconcile_command.py::test_equal_sides_end_with_0_and_a_difference_with_1_and_its_place",
        "tests/pipeline/test_reconcile_targets.py::test_a_topic_is_read_to_where_committed_records_ended",
    ),
    # No capability, but what the README's commands and the project itself promise.
    "project": (
        "tests/project/test_project_dev.py",
        "tests/project/test_project_layout.py",
        "tests/project/test_project_wheel.py",
        "tests/project/test_project_running.py",
    ),
}
PROCESSES: Final[dict[str, tuple[str, ...]]] = {
    "broker": ("tests/broker/test_server_kill.py::test_nothing_acknowledged_is_lost[False]",),
    "cleaner of the broker": ("tests/broker/test_cleaner_server.py::test_the_cleaner_process_is_killed",),
    "distributed worker": (
        "tests/connect/test_herd_cluster.py::test_herd_workers_that_start_at_once_share_the_tasks",
        "tests/connect/test_rest_lifecycle.py::test_rest_worker_that_was_stopped_goes_on_where_it_was",
    ),
    "standalone worker": (
        "tests/connect/test_standalone_worker.py::test_standalone_worker_runs_its_files_and_goes_on_where_it_was",
    ),
    "fork server": (
        "tests/connect/test_env_fork_servers.py::test_a_server_starts_when_needed_and_ends_when_idle",
    ),
    "child of a task": (
        "tests/connect/test_runtime_supervisor.py::test_failures_show_their_trace_and_are_restarted_by_class",
        "tests/connect/test_runtime_broker.py::test_kill_9_of_a_source_task_under_load_loses_nothing",
    ),
    "child of a driver": (
        "tests/connect/test_runtime_driver.py::test_a_driver_runs_pauses_stops_and_goes_on_from_its_offset",
    ),
    "mirror": (
        "tests/mirror/test_mirror_dedicated.py::test_a_consumer_moves_and_goes_on_without_loss_and_nothing_goes_in_circles",
    ),
    "agent": ("tests/agent/test_agent_delivery.py::test_rotation_under_load_and_kills_lose_nothing",),
    "lag server": (
        "tests/lag/test_lag_server.py::test_a_consumer_stalls_goes_back_and_stops_and_each_is_told_once",
    ),
    "Spark driver": ("tests/spark/test_spark_driver.py::test_the_command_runs_a_job_and_drains_on_ctrl_c",),
    "`klamm up`": ("tests/cli/test_cli_up.py::test_up_serves_and_leaves_nothing_behind",),
    "console tool": ("tests/cli/test_console_tools.py::test_there_and_back",),
    "other command": ("tests/cli/test_cli_connector.py::test_a_connector_from_json_to_deletion",),
}
"""The essential tests in which a process of each kind runs."""
NAMES: Final = frozenset(name for names in ESSENTIAL.values() for name in names)


def is_essential(nodeid: str) -> bool:
    """Decides whether the table names a test, its function, its class or its file."""
    function = nodeid.partition("[")[0]
    parts = function.split("::")
    return nodeid in NAMES or any("::".join(parts[:n]) in NAMES for n in range(1, len(parts) + 1))


def mark(items: list[pytest.Item]) -> None:
    """Gives the tests of the table the marker `essential`."""
    for item in items:
        if is_essential(item.nodeid):
            item.add_marker("essential")
