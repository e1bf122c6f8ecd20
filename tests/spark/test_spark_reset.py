"""`klamm spark reset`: where a job stands, what a reset removes, and where the job then begins."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.broker import new_topic
from support.klamm import klamm
from support.spark import produce, require_spark, to_the_end

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_spark import reset
from klamm_spark.datasource.options import read_options
from klamm_spark.lock import locked
from klamm_spark.pipeline import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(directory: Path, bootstrap: str, topic: str) -> Path:
    path = directory / "job.toml"
    path.write_text(
        f"""
        [job]
        name = "numbers"
        checkpoint = "{directory}/checkpoint"
        [source]
        bootstrap_servers = "{bootstrap}"
        topics = ["{topic}"]
        starting_offsets = "earliest"
        [[outputs]]
        name = "files"
        format = "json"
        options = {{ path = "{directory}/out" }}
        """
    )
    return path


def write_checkpoint(
    directory: Path, output: str, batches: list[str], committed: int, query: str = "q-1"
) -> None:
    """Writes a checkpoint as Spark 4 does: a version line, the metadata line, then a line for each source."""
    place = directory / output
    for name in ("offsets", "commits", "state"):
        (place / name).mkdir(parents=True)
    (place / "metadata").write_text(json.dumps({"id": query}))
    for number, offsets in enumerate(batches):
        (place / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
        if number <= committed:
            (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def ours(**offsets: int) -> str:
    return json.dumps({"partitions": {"t": {k.removeprefix("p"): v for k, v in offsets.items()}}, "lost": 0})


def test_a_checkpoint_says_what_was_committed_last(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "a", [ours(p0=5, p1=1), ours(p0=9, p1=3), ours(p0=20, p1=20)], committed=1)
    write_checkpoint(tmp_path, "b", ['{"t":{"0":7,"1":8}}'], committed=0, query="q-2")
    write_checkpoint(tmp_path, "c", [ours(p0=1)], committed=-1)
    found = reset.standings(tmp_path)
    assert [(s.output, s.query, s.batch, dict(s.next)) for s in found] == [
        ("a", "q-1", 1, {("t", 0): 9, ("t", 1): 3}),
        ("b", "q-2", 0, {("t", 0): 7, ("t", 1): 8}),
        ("c", "q-1", None, {}),
    ]
    assert reset.current(found) == {("t", 0): 7, ("t", 1): 3}
    (tmp_path / "a" / "metadata").write_text("{")
    with pytest.raises(ConfigError, match=r"the checkpoint .*/a cannot be read"):
        reset.standings(tmp_path)


def test_a_reset_removes_what_belongs_to_the_position_and_leaves_the_rest(tmp_path: Path) -> None:
    job = load(pipeline(tmp_path, "127.0.0.1:9", "t"))
    checkpoint = tmp_path / "checkpoint"
    write_checkpoint(checkpoint, "files", [ours(p0=5)], committed=0)
    (checkpoint / ".files.removed.1").mkdir()
    (checkpoint / "klamm-schema.json").write_text("{}")
    (checkpoint / "klamm-plan.json").write_text("{}")
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "out" / "part-0.json").write_text("{}")
    planned = reset.plan(job, reset.standings(checkpoint), {("t", 0): 2})
    with (
        locked(checkpoint, threading.Event()),
        pytest.raises(ConfigError, match="is in use by another process"),
    ):
        reset.carry_out(planned)
    assert (checkpoint / "files").is_dir()
    assert reset.begun(job) == job
    reset.carry_out(planned)
    assert {p.name for p in checkpoint.iterdir()} == {"klamm-start.json", "klamm-schema.json", ".lock"}
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["part-0.json"]
    assert reset.begun(job).source.starting_offsets == '{"t": {"0": 2}}'
    reset.carry_out(reset.plan(job, (), {("t", 0): 3}))
    assert reset.begun(job).source.starting_offsets == '{"t": {"0": 3}}'
    (checkpoint / "klamm-start.json").write_text("[")
    with pytest.raises(ConfigError, match="remove it to begin at starting_offsets"):
        reset.begun(job)


@pytest.mark.usefixtures("processes")
def test_a_checkpoint_elsewhere_is_not_touched(tmp_path: Path) -> None:
    path = pipeline(tmp_path, "127.0.0.1:9", "t")
    path.write_text(path.read_text().replace(f"{tmp_path}/checkpoint", "s3a://bucket/cp"))
    done = klamm("spark", "reset", path)
    assert done.returncode == 2
    assert "s3a://bucket/cp is not on this machine" in done.stderr


def test_the_command_shows_and_then_sets_where_the_job_begins(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker, 2)
    produce(broker.bootstrap, topic, range(40))
    path = pipeline(tmp_path, broker.bootstrap, topic)
    checkpoint = tmp_path / "checkpoint"
    write_checkpoint(checkpoint, "files", [ours(p0=9, p1=8).replace('"t"', f'"{topic}"')], committed=0)

    def run(*arguments: object) -> tuple[int, list[dict[str, int]], str]:
        done = klamm("spark", "reset", path, "-o", "json", *map(str, arguments))
        return done.returncode, json.loads(done.stdout or "[]"), done.stderr

    code, rows, said = run("--shift-by", -3)
    assert (code, [(r["partition"], r["offset"], r["new_offset"]) for r in rows]) == (
        0,
        [(0, 9, 6), (1, 8, 5)],
    ), said
    assert "would be removed" in said
    assert "dry run: 2 offsets would be set (--execute does it)" in said
    assert (checkpoint / "files").is_dir()

    code, rows, said = run("--input-topics", f"{topic}:1", "--to-offset", 1000, "--execute")
    assert code == 0, said
    assert "higher than latest" in said, "a place outside the log is put at its end"
    assert rows[0]["new_offset"] == 9, "what was not named goes on where it was"
    assert not (checkpoint / "files").exists()
    start = json.loads((checkpoint / "klamm-start.json").read_text())
    assert start == {topic: {"0": 9, "1": rows[1]["new_offset"]}}

    code, rows, said = run("--execute")
    assert (code, [r["new_offset"] for r in rows]) == (0, [0, 0]), said
    code, _, said = run("--shift-by", 1)
    assert (code, "no current committed offset" in said) == (1, True), said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--application-id", "other"), "the job is called numbers, not other"),
        (("--to-latest", "--to-earliest"), "give exactly one place"),
        (("--input-topics", "x"), "the job does not read x"),
        (("--internal-topics", "no-such"), "there is no topic no-such"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_said(
    broker: EmbeddedBroker, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    topic = new_topic(broker)
    done = klamm("spark", "reset", pipeline(tmp_path, broker.bootstrap, topic), *arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_groups_and_topics_of_the_job_go_with_it_and_inputs_stay(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, between = new_topic(broker), new_topic(broker)
    path = pipeline(tmp_path, broker.bootstrap, topic)
    write_checkpoint(
        tmp_path / "checkpoint", "files", [ours(p0=0).replace('"t"', f'"{topic}"')], 0, query="abc"
    )
    for group in ("klamm-spark-abc-0", "klamm-spark-abcd-0"):
        done = klamm(
            "group", "reset", group, "--topic", topic, "--to-earliest", "--execute", "-b", broker.bootstrap
        )
        assert done.returncode == 0, done.stderr
    done = klamm("spark", "reset", path, "--internal-topics", between, "--execute")
    assert done.returncode == 0, done.stderr
    assert "deleted: group klamm-spark-abc-0\n" in done.stderr
    assert f"deleted: topic {between}\n" in done.stderr
    groups = klamm("group", "list", "-b", broker.bootstrap).stdout
    assert "klamm-spark-abcd-0" in groups
    assert "klamm-spark-abc-0" not in groups
    topics = klamm("topic", "list", "-b", broker.bootstrap).stdout
    assert between not in topics
    assert topic in topics
    done = klamm("spark", "reset", path, "--internal-topics", topic)
    assert (done.returncode, "is an input of the job" in done.stderr) == (2, True)


def test_a_file_url_is_a_place_of_this_machine(tmp_path: Path) -> None:
    """A reset that is set and not read would pass over records in silence."""
    path = pipeline(tmp_path, "127.0.0.1:9", "t")
    for scheme in ("file:", "file://"):
        job = dataclasses.replace(load(path), checkpoint=f"{scheme}{tmp_path}/checkpoint")
        assert reset.place(job) == tmp_path / "checkpoint"
        reset.carry_out(reset.plan(job, (), {("t", 0): 7}))
        assert reset.begun(job).source.starting_offsets == '{"t": {"0": 7}}'


def test_a_job_may_begin_at_a_time_until_it_is_reset(tmp_path: Path) -> None:
    path = pipeline(tmp_path, "127.0.0.1:9", "t")
    path.write_text(
        path.read_text().replace(
            'starting_offsets = "earliest"', 'options = { startingTimestamp = "1700000000000" }'
        )
    )
    job = load(path)
    asked = read_options(job.source.reader_options())
    assert (asked.starting_timestamp, asked.starting) == (1700000000000, None)
    reset.carry_out(reset.plan(job, (), {("t", 0): 7}))
    asked = read_options(reset.begun(job).source.reader_options())
    assert (asked.starting_timestamp, asked.starting) == (None, {("t", 0): 7})


def test_partitions_that_came_since_a_reset_begin_with_their_first_record(tmp_path: Path) -> None:
    job = load(pipeline(tmp_path, "127.0.0.1:9", "t"))
    reset.carry_out(reset.plan(job, (), {("t", 0): 7, ("gone", 0): 3}))
    found = reset.fitting(reset.begun(job), [("t", 0), ("t", 1), ("u", 0)])
    assert json.loads(found.source.starting_offsets) == {"t": {"0": 7, "1": -2}, "u": {"0": -2}}


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(300)
def test_the_command_begins_where_a_reset_has_put_it(broker: EmbeddedBroker, tmp_path: Path) -> None:
    require_spark()
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, range(20))
    path = pipeline(tmp_path, broker.bootstrap, topic)
    path.write_text(path.read_text().replace('"earliest"', '"latest"'))
    done = klamm("spark", "reset", path, "--to-offset", "15", "--execute")
    assert done.returncode == 0, done.stderr
    done = klamm(
        "kafka-topics",
        "--bootstrap-server",
        broker.bootstrap,
        "--alter",
        "--topic",
        topic,
        "--partitions",
        "2",
    )
    assert done.returncode == 0, done.stderr
    produce(broker.bootstrap, topic, range(3), partition=1)
    done = klamm("spark", "run", path, "--available-now", timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert "stopped: 8 records read" in done.stderr


@pytest.mark.timeout(900)
def test_a_job_that_was_reset_reads_from_there_and_its_files_have_the_batch(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    from klamm_spark import job as jobs

    topic = new_topic(broker)
    produce(broker.bootstrap, topic, range(20))
    path = pipeline(tmp_path, broker.bootstrap, topic)
    job = dataclasses.replace(load(path), available_now=True)

    def run() -> None:
        to_the_end(lambda: jobs.start(job, jobs.frames(job, spark)))

    def rows() -> list[int]:
        """Returns the rows of all files, whatever Spark's list says of them."""
        lines = [x for f in (tmp_path / "out").glob("part-*.json") for x in f.read_text().splitlines()]
        return sorted(json.loads(x)["offset"] for x in lines)

    run()
    assert rows() == list(range(20))
    done = klamm("spark", "reset", path, "--shift-by", "-5", "--execute")
    assert done.returncode == 0, done.stderr
    run()
    assert rows() == sorted([*range(20), *range(15, 20)])
    produce(broker.bootstrap, topic, range(3))
    run()
    assert rows()[-3:] == [20, 21, 22], "with a checkpoint again, the start no longer counts"
    assert len(rows()) == 28
