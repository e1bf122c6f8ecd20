"""The whole pipeline under random kills and pauses of every stage, and with Elasticsearch away: line by line exact.

The million lines are `./dev soak pipeline`'s.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.elasticsearch import require
from support.pipeline.memory import Watch
from support.pipeline.round import Plan, Round
from support.spark import require_spark

MOST_MB = {"agent": 300, "broker": 600, "Spark": 4000, "Elasticsearch": 2500}
"""Far above what each needs, far below what the lines of an outage would take."""


@pytest.mark.usefixtures("elasticsearch", "apache_spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1])
def test_every_line_is_in_the_target_once_after_faults_of_all_stages(tmp_path, seed):
    require_spark()
    require()
    result = Round(tmp_path, Plan(seed=seed, rate=400, total=24_000, outage_s=20)).run()
    assert result.said == []
    assert result.found is not None
    assert result.found.complete, json.dumps(result.found.as_dict(), indent=1)
    assert result.found.comparison.source_lines == 24_000
    assert result.faults.total() >= 3
    for stage, most in MOST_MB.items():
        assert result.usage[stage].most_mb < most, f"{stage}: {result.usage}"


@pytest.mark.usefixtures("processes")
def test_memory_and_cpu_of_a_stage_count_all_its_processes():
    """A process with a child that holds 60 MB and works; what a child used that has ended still counts."""
    child = "x = bytearray(60 << 20); sum(range(3_000_000)); print('ready', flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('gone', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        watch = Watch(lambda: {"stage": process.pid, "down": None})
        assert process.stdout.readline() == "ready\n"
        watch.look()
        usage = watch.usage["stage"]
        assert 60 < usage.last_mb < 60 + 200
        busy = usage.cpu_s
        assert busy > 0.05
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "gone\n"
        watch.look()
        assert usage.last_mb < 60 < usage.most_mb
        assert usage.cpu_s >= busy
        assert set(watch.usage) == {"stage"}
        process.stdin.write("\n")
        process.stdin.close()
    watch.look()
    assert watch.usage["stage"].cpu_s >= busy
