"""Every alert begins and ends: promtool evaluates the rules over an hour of made-up series."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).parents[2] / "compose/prometheus/rules.yml"
GOOD_AT, BAD_AT, AGAIN_AT = 4, 29, 64
"""Minutes: nothing is wrong up to the first; something is wrong up to the second; all is well long before the third."""


@dataclass(frozen=True)
class Course:
    """Series by name, with their values by minute."""

    series: dict[str, str]
    bad_at: int = BAD_AT


def gauge(name: str, bad: float = 1e9, good: float = 0) -> Course:
    return Course({name: f"{good}x4 {bad}x24 {good}x40"})


def counter(name: str, step: int = 1) -> Course:
    return Course({name: f"0x4 0+{step}x24 {24 * step}x40"})


def still(lag: str, at: str) -> Course:
    """Returns a lag, and a time that stands still for half an hour and moves again then."""
    return Course({lag: "5x70", at: "0x29 1800+60x40"})


MIRROR = '{source="A",target="B"}'
COURSES = {
    "KlammDown": gauge('up{job="agent",instance="i"}', bad=0, good=1),
    "ConnectTaskFailed": gauge('kafka_connect_worker_connector_failed_task_count{connector="c"}'),
    "ConnectTaskStalled": still(
        'klamm_connect_task_lag{connector="c",task="0"}',
        'klamm_connect_task_last_ack_timestamp_seconds{connector="c",task="0"}',
    ),
    "AgentBehind": gauge('klamm_agent_lag_bytes{instance="i"}'),
    "AgentLeavesLinesOut": counter("klamm_agent_gaps_total"),
    "SparkStalled": still(
        'klamm_spark_lag{instance="i",query="q",topic="t"}',
        'klamm_spark_last_progress_timestamp_seconds{instance="i",query="q"}',
    ),
    "GroupBehind": gauge('kafka_consumergroup_lag{consumergroup="g"}'),
    "MirrorFlowDown": gauge('klamm_mirror_flow_up{flow="A->B"}', bad=0, good=1),
    "MirrorBehind": gauge('klamm_mirror_partition_lag_seconds{source="A",target="B",topic="t"}'),
    "MirrorPartitionsStopped": gauge(f"klamm_mirror_partitions_stopped{MIRROR}"),
    "MirrorGap": Course(
        {'klamm_mirror_gap_records_total{source="A",target="B",topic="t",partition="0"}': "0x4 5x64"},
        bad_at=9,
    ),
    "MirrorGroupOffsetsOld": gauge(f"klamm_mirror_group_offset_age_seconds{MIRROR}"),
    "MirrorCheckpointsOld": gauge(f"klamm_mirror_checkpoint_age_seconds{MIRROR}"),
    "MirrorHeartbeatsOld": gauge(f"klamm_mirror_heartbeat_age_seconds{MIRROR}"),
    "MirrorSchemasConflict": gauge(f"klamm_mirror_schemas_conflicts{MIRROR}"),
    "MirrorSchemasOld": gauge(f"klamm_mirror_schemas_age_seconds{MIRROR}"),
    "MirrorQuotasConflict": gauge(f"klamm_mirror_quotas_conflicts{MIRROR}"),
    "MirrorQuotasOld": gauge(f"klamm_mirror_quotas_age_seconds{MIRROR}"),
    "MirrorUsersMissing": gauge(f"klamm_mirror_users_missing{MIRROR}"),
    "MirrorUsersOld": gauge(f"klamm_mirror_users_age_seconds{MIRROR}"),
    "BrokerLogDirectoryOffline": gauge("kafka_log_logmanager_offlinelogdirectorycount"),
    "BrokerPartitionsOffline": gauge("kafka_controller_kafkacontroller_offlinepartitionscount"),
    "BrokerUncleanablePartitions": gauge("kafka_log_logcleanermanager_uncleanable_partitions_count"),
    "BrokerFailedLogins": counter("kafka_server_socket_server_metrics_failed_authentication_total", step=10),
    "DescriptorsNearlyUsedUp": Course({"process_open_fds": "5x4 95x24 5x40", "process_max_fds": "100x70"}),
    "LagGroupInError": gauge('burrow_kafka_consumer_status{consumer_group="g"}', bad=3, good=1),
    "LagGroupFallsBehind": gauge('burrow_kafka_consumer_status{consumer_group="g"}', bad=2, good=1),
    "LagGroupLate": gauge('klamm_lag_group_seconds{consumer_group="g"}'),
    "LagClusterSilent": gauge('klamm_lag_cluster_up{cluster="c"}', bad=0, good=1),
    "LagNoticesFail": counter('klamm_lag_notices_total{notifier="n",event="open",result="failed"}'),
    "LagHistoryFails": gauge("klamm_lag_history_failing"),
    "RegistryUnreadableRecords": gauge("klamm_registry_unreadable_records"),
    "RegistryErrors": counter('klamm_registry_requests_total{status="500"}', step=5),
    "ConsoleErrors": counter('klamm_console_requests_total{status="502"}', step=5),
    "RestProxyErrors": counter('klamm_rest_proxy_requests_total{status="503"}', step=5),
    "RestProxyRecordsFail": counter("klamm_rest_proxy_produce_errors_total", step=10),
    "RestProxyRefuses": counter("klamm_rest_proxy_produce_refused_total", step=10),
    "ConsoleGuessedLogins": counter('klamm_console_logins_total{result="wrong"}', step=10),
}


def case(name: str, course: Course) -> dict[str, Any]:
    """Returns promtool's test of one alert: silent, firing, silent again."""

    def asks(minute: int, samples: list[dict[str, Any]]) -> dict[str, Any]:
        expr = f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})'
        return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": samples}

    fires = [{"labels": f'{{alertname="{name}"}}', "value": 1}]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in course.series.items()],
        "promql_expr_test": [asks(GOOD_AT, []), asks(course.bad_at, fires), asks(AGAIN_AT, [])],
    }


def test_every_alert_has_a_course_and_is_on_the_page():
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert set(COURSES) == {rule["alert"] for rule in rules}
    page = (RULES.parents[2] / "docs/monitoring.md").read_text()
    for rule in rules:
        row = f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', '')} |".replace(
            "|  |", "| |"
        )
        assert row in page, rule["alert"]


FIRED_BY = ("compose/test_watched_system.py", "compose/test_loaded_system.py", "compose/test_broker_alerts.py", "lag/test_lag_all_kinds.py")  # fmt: skip
"""Tests in which a part fails and a real Prometheus tells. All of the mirror's: `mirror/test_mirror_alerts.py`."""


def test_every_alert_also_fires_because_a_part_fails():
    texts = "".join((Path(__file__).parents[1] / file).read_text() for file in FIRED_BY)
    silent = {name for name in COURSES if not name.startswith("Mirror") and f'"{name}"' not in texts}
    assert not silent


@pytest.mark.usefixtures("prometheus_server")
def test_every_alert_begins_and_ends(tmp_path):
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [case(name, course) for name, course in COURSES.items()],
    }
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
