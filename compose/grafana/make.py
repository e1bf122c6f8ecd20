# ruff: noqa: INP001 - a script, not a package
"""Writes `dashboards/*.json` for Grafana from the tables below: `python compose/grafana/make.py`.

A panel is a title, a unit and its queries with their legends; two stand side by side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Query = tuple[str, str]
Panel = tuple[str, str, list[Query]]

RATE = "[$__rate_interval]"

BROKER: list[Panel] = [
    (
        "Bytes in",
        "Bps",
        [
            (
                f'sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total{{topic!=""}}{RATE}))',
                "{{topic}}",
            )
        ],
    ),
    (
        "Bytes out",
        "Bps",
        [
            (
                f'sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesout_total{{topic!=""}}{RATE}))',
                "{{topic}}",
            )
        ],
    ),
    (
        "Records in",
        "ops",
        [
            (
                f'sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total{{topic!=""}}{RATE}))',
                "{{topic}}",
            )
        ],
    ),
    (
        "Requests",
        "reqps",
        [(f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{RATE}))", "{{request}}")],
    ),
    (
        "Time of requests, p99",
        "s",
        [
            (
                f"histogram_quantile(0.99, sum by (request, le) (rate(klamm_request_duration_seconds_bucket{RATE})))",
                "{{request}}",
            )
        ],
    ),
    (
        "Errors",
        "ops",
        [
            (
                f"sum by (request, error) (rate(kafka_network_requestmetrics_errors_total{RATE}))",
                "{{request}} {{error}}",
            )
        ],
    ),
    ("Lag of groups", "short", [("sum by (consumergroup) (kafka_consumergroup_lag)", "{{consumergroup}}")]),
    ("Size of logs", "bytes", [("sum by (topic) (kafka_log_log_size)", "{{topic}}")]),
    (
        "Connections",
        "short",
        [("sum by (listener) (kafka_server_socket_server_metrics_connection_count)", "{{listener}}")],
    ),
    (
        "Not as it should be",
        "short",
        [
            ("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under-replicated partitions"),
            ("sum(kafka_controller_kafkacontroller_offlinepartitionscount)", "offline partitions"),
            ("sum(kafka_log_logmanager_offlinelogdirectorycount)", "offline log directories"),
        ],
    ),
    ("Memory", "bytes", [("process_resident_memory_bytes", "{{job}} {{instance}}")]),
    ("CPU", "percentunit", [(f"rate(process_cpu_seconds_total{RATE})", "{{job}} {{instance}}")]),
]

CONNECT: list[Panel] = [
    (
        "Connectors and tasks",
        "short",
        [
            ("kafka_connect_worker_connector_count", "connectors {{instance}}"),
            ("kafka_connect_worker_task_count", "tasks {{instance}}"),
        ],
    ),
    (
        "Tasks that do not run",
        "short",
        [
            ("sum by (connector) (kafka_connect_worker_connector_failed_task_count)", "failed {{connector}}"),
            (
                "sum by (connector) (kafka_connect_worker_connector_restarting_task_count)",
                "restarting {{connector}}",
            ),
            (
                "sum by (connector) (kafka_connect_worker_connector_unassigned_task_count)",
                "unassigned {{connector}}",
            ),
        ],
    ),
    (
        "Records",
        "ops",
        [(f"sum by (connector) (rate(klamm_connect_task_records_total{RATE}))", "{{connector}}")],
    ),
    ("Bytes", "Bps", [(f"sum by (connector) (rate(klamm_connect_task_bytes_total{RATE}))", "{{connector}}")]),
    ("Lag", "short", [("sum by (connector) (klamm_connect_task_lag)", "{{connector}}")]),
    (
        "Since the last acknowledgement",
        "s",
        [
            (
                "time() - max by (connector) (klamm_connect_task_last_ack_timestamp_seconds > 0)",
                "{{connector}}",
            )
        ],
    ),
    (
        "CPU of tasks",
        "percentunit",
        [(f"sum by (connector) (rate(klamm_connect_task_cpu_seconds_total{RATE}))", "{{connector}}")],
    ),
    (
        "Memory of tasks",
        "bytes",
        [("sum by (connector) (klamm_connect_task_resident_bytes)", "{{connector}}")],
    ),
    (
        "Errors",
        "short",
        [
            ("sum by (connector) (kafka_connect_task_error_total_record_errors)", "errors {{connector}}"),
            ("sum by (connector) (kafka_connect_task_error_total_records_skipped)", "skipped {{connector}}"),
            (
                "sum by (connector) (kafka_connect_task_error_deadletterqueue_produce_requests)",
                "dead letters {{connector}}",
            ),
        ],
    ),
    (
        "Rebalances",
        "short",
        [
            ("kafka_connect_worker_rebalance_completed_rebalances_total", "{{instance}}"),
            ("kafka_connect_worker_rebalance_rebalancing", "now {{instance}}"),
        ],
    ),
]

PIPELINE: list[Panel] = [
    (
        "Lines read by agents",
        "ops",
        [(f"sum by (instance, input) (rate(klamm_agent_lines_total{RATE}))", "{{instance}} {{input}}")],
    ),
    (
        "Behind: agents",
        "bytes",
        [
            ("klamm_agent_lag_bytes", "not acknowledged {{instance}}"),
            ("klamm_agent_spool_bytes", "in the spool {{instance}}"),
        ],
    ),
    (
        "Lines that were left out",
        "short",
        [
            ("sum by (reason) (klamm_agent_dropped_lines_total)", "{{reason}}"),
            ("sum(klamm_agent_gaps_total)", "entries of the gap ledger"),
            ("sum(klamm_agent_parse_failures_total)", "not parsed"),
        ],
    ),
    (
        "Records into topics",
        "ops",
        [
            (
                f'sum by (topic) (rate(kafka_topic_partition_current_offset{{topic!~"__.*"}}{RATE}))',
                "{{topic}}",
            )
        ],
    ),
    (
        "Spark: rows",
        "ops",
        [
            ("klamm_spark_input_rows_per_second", "in {{query}}"),
            ("klamm_spark_processed_rows_per_second", "processed {{query}}"),
        ],
    ),
    ("Spark: lag", "short", [("sum by (query, topic) (klamm_spark_lag)", "{{query}} {{topic}}")]),
    ("Spark: time of a batch", "s", [("klamm_spark_batch_duration_seconds", "{{query}}")]),
    ("Spark: state", "short", [("klamm_spark_state_rows", "rows {{query}}")]),
    (
        "Spark: behind the clock",
        "s",
        [("time() - (klamm_spark_watermark_timestamp_seconds > 0)", "watermark {{query}}")],
    ),
    (
        "Documents",
        "ops",
        [
            (f"rate(klamm_spark_sink_documents_total{RATE})", "written {{query}}"),
            (f"rate(klamm_spark_sink_refused_total{RATE})", "refused {{query}}"),
            (f"rate(klamm_spark_sink_throttled_total{RATE})", "429 {{query}}"),
        ],
    ),
    ("Lag of groups", "short", [("sum by (consumergroup) (kafka_consumergroup_lag)", "{{consumergroup}}")]),
    (
        "Memory of agents and drivers",
        "bytes",
        [('process_resident_memory_bytes{job=~"agent|spark"}', "{{job}} {{instance}}")],
    ),
]

MIRROR: list[Panel] = [
    (
        "Records",
        "ops",
        [
            (
                "sum by (source, target, topic) (kafka_connect_mirror_mirrorsourceconnector_record_rate)",
                "{{source}}→{{target}} {{topic}}",
            )
        ],
    ),
    (
        "Bytes",
        "Bps",
        [
            (
                "sum by (source, target, topic) (kafka_connect_mirror_mirrorsourceconnector_byte_rate)",
                "{{source}}→{{target}} {{topic}}",
            )
        ],
    ),
    (
        "Replication latency",
        "ms",
        [
            (
                "max by (source, target, topic) (kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_max)",
                "{{source}}→{{target}} {{topic}}",
            )
        ],
    ),
    (
        "Age of records",
        "ms",
        [
            (
                "max by (source, target, topic) (kafka_connect_mirror_mirrorsourceconnector_record_age_ms_max)",
                "{{source}}→{{target}} {{topic}}",
            )
        ],
    ),
    (
        "Checkpoint latency",
        "ms",
        [
            (
                "max by (source, target, group) (kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms_max)",
                "{{source}}→{{target}} {{group}}",
            )
        ],
    ),
    (
        "Behind",
        "s",
        [
            (
                "max by (source, target, topic) (klamm_mirror_partition_lag_seconds)",
                "{{source}}→{{target}} {{topic}}",
            )
        ],
    ),
    (
        "Records behind",
        "short",
        [
            (
                "sum by (source, target, topic) (klamm_mirror_partition_lag)",
                "{{source}}→{{target}} {{topic}}",
            )
        ],
    ),
    (
        "Stopped partitions, records in gaps",
        "short",
        [
            (
                "sum by (source, target) (klamm_mirror_partitions_stopped)",
                "{{source}}→{{target}} stopped",
            ),
            (
                "sum by (source, target) (klamm_mirror_gap_records_total)",
                "{{source}}→{{target}} in gaps",
            ),
        ],
    ),
    (
        "Age of checkpoints, group offsets, heartbeats",
        "s",
        [
            (
                "max by (source, target) (klamm_mirror_checkpoint_age_seconds)",
                "{{source}}→{{target}} checkpoints",
            ),
            (
                "max by (source, target) (klamm_mirror_group_offset_age_seconds)",
                "{{source}}→{{target}} group offsets",
            ),
            (
                "max by (source, target) (klamm_mirror_heartbeat_age_seconds)",
                "{{source}}→{{target}} heartbeats",
            ),
        ],
    ),
    ("Flows that answer", "short", [("klamm_mirror_flow_up", "{{flow}}")]),
    (
        "Schemas, quotas, users: what is not at the target",
        "short",
        [
            (
                "max by (source, target) (klamm_mirror_schemas_conflicts)",
                "{{source}}→{{target}} subjects in conflict",
            ),
            (
                "max by (source, target) (klamm_mirror_quotas_conflicts)",
                "{{source}}→{{target}} quotas refused",
            ),
            ("max by (source, target) (klamm_mirror_users_missing)", "{{source}}→{{target}} users missing"),
        ],
    ),
    (
        "Schemas, quotas, users: since the last look",
        "s",
        [
            ("max by (source, target) (klamm_mirror_schemas_age_seconds)", "{{source}}→{{target}} schemas"),
            ("max by (source, target) (klamm_mirror_quotas_age_seconds)", "{{source}}→{{target}} quotas"),
            ("max by (source, target) (klamm_mirror_users_age_seconds)", "{{source}}→{{target}} users"),
        ],
    ),
    (
        "Schemas: copied",
        "short",
        [
            ("max by (source, target) (klamm_mirror_schemas_subjects)", "{{source}}→{{target}} subjects"),
            (
                "max by (source, target) (klamm_mirror_schemas_registered)",
                "{{source}}→{{target}} versions since the start",
            ),
        ],
    ),
]

LAG: list[Panel] = [
    (
        "Status of groups: 1 OK, 2 WARN, 3 ERR",
        "short",
        [("burrow_kafka_consumer_status", "{{cluster}} {{consumer_group}}")],
    ),
    ("Time lag", "s", [("klamm_lag_group_seconds", "{{cluster}} {{consumer_group}}")]),
    ("Lag", "short", [("burrow_kafka_consumer_lag_total", "{{cluster}} {{consumer_group}}")]),
    (
        "Time lag by topic",
        "s",
        [("max by (cluster, consumer_group, topic) (klamm_lag_seconds)", "{{consumer_group}} {{topic}}")],
    ),
    (
        "Read",
        "ops",
        [
            (
                f"sum by (cluster, consumer_group) (rate(burrow_kafka_consumer_current_offset{RATE}))",
                "{{cluster}} {{consumer_group}}",
            )
        ],
    ),
    (
        "Written, where somebody reads",
        "ops",
        [
            (
                f"sum by (cluster, topic) (rate(burrow_kafka_topic_partition_offset{RATE}))",
                "{{cluster}} {{topic}}",
            )
        ],
    ),
    (
        "Partitions by state: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND",
        "short",
        [('count_values("state", burrow_kafka_topic_partition_status)', "{{state}}")],
    ),
    (
        "The watch itself",
        "short",
        [
            ("klamm_lag_cluster_up", "{{cluster}} answers"),
            ("klamm_lag_incidents", "incidents"),
            ("klamm_lag_history_failing", "history fails"),
        ],
    ),
]

REGISTRY: list[Panel] = [
    (
        "Requests",
        "reqps",
        [(f"sum by (method, status) (rate(klamm_registry_requests_total{RATE}))", "{{method}} {{status}}")],
    ),
    (
        "Time of requests, mean",
        "s",
        [
            (
                f"sum by (path) (rate(klamm_registry_request_seconds_total{RATE})) / sum by (path) (rate(klamm_registry_requests_total{RATE}))",
                "{{path}}",
            )
        ],
    ),
    (
        "Subjects and versions",
        "short",
        [
            ("klamm_registry_subjects", "subjects {{instance}}"),
            ("klamm_registry_versions", "versions {{instance}}"),
            ("klamm_registry_deleted_versions", "deleted {{instance}}"),
            ("klamm_registry_schemas", "schemas {{instance}}"),
        ],
    ),
    (
        "Writes",
        "ops",
        [(f"rate(klamm_registry_records_written_total{RATE})", "{{instance}}")],
    ),
    (
        "Not as it should be",
        "short",
        [
            ("klamm_registry_unreadable_records", "unreadable records {{instance}}"),
            ("sum(klamm_registry_leads)", "registries that write"),
        ],
    ),
    ("Memory", "bytes", [('process_resident_memory_bytes{job="registry"}', "{{instance}}")]),
]

DASHBOARDS: dict[str, tuple[str, list[Panel]]] = {
    "broker": ("Klamm broker", BROKER),
    "connect": ("Klamm Connect", CONNECT),
    "lag": ("Klamm lag", LAG),
    "mirror": ("Klamm mirror", MIRROR),
    "pipeline": ("Klamm log pipeline", PIPELINE),
    "registry": ("Klamm schema registry", REGISTRY),
}


def panel(number: int, title: str, unit: str, queries: list[Query]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "prometheus"}
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": source, "expr": expr, "legendFormat": legend}
            for i, (expr, legend) in enumerate(queries)
        ],
    }


def dashboard(name: str) -> dict[str, Any]:
    title, panels = DASHBOARDS[name]
    return {
        "uid": f"klamm-{name}",
        "title": title,
        "tags": ["klamm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "panels": [panel(i, *each) for i, each in enumerate(panels)],
    }


def text(name: str) -> str:
    """The file's content."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (HERE / "dashboards" / f"{each}.json").write_text(text(each))
