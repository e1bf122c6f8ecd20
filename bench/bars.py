"""The figures that were asked of each hot path, and where docs/performance.md or docs/reliability.md says how it stands."""

from __future__ import annotations

from dataclasses import dataclass

from bench import tables


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure of a job: its place on the page, and what it should be.

    `table` is the beginning of the table's title (empty: the first that has the row). `ours` and `peer` are columns; with
    `pair` one column holds both, with `peer_row` the peer is another row. `most` and `least` bound our figure, or with
    `ratio` ours divided by the peer's.
    """

    job: str
    figure: str
    section: str
    row: str
    ours: str = "klamm"
    peer: str = ""
    peer_name: str = ""
    table: str = ""
    pair: bool = False
    peer_row: str = ""
    ratio: bool = False
    most: float | None = None
    least: float | None = None

    @property
    def asked(self) -> str:
        """The bound in words; empty when nothing was asked."""
        of = ""
        if self.ratio:
            of = f" of that {self.peer_name}" if self.peer_row else f" of {self.peer_name}'s"
        if self.most is not None:
            return f"≤ {self.most:g}{of}"
        return f"≥ {self.least:g}{of}" if self.least is not None else ""


@dataclass(frozen=True, slots=True)
class Standing:
    """A bar, and the figures that the page has for it."""

    bar: Bar
    ours: float
    peer: float | None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer if self.peer else None

    @property
    def met(self) -> bool | None:
        """True when the figure is as it was asked; None when nothing was."""
        value = self.ratio if self.bar.ratio else self.ours
        if value is None or not self.bar.asked:
            return None
        if self.bar.most is not None:
            return value <= self.bar.most
        return self.bar.least is not None and value >= self.bar.least


def standing(bar: Bar, page: str) -> Standing:
    """Looks the bar's figures up. Raises KeyError when the page does not have them, ValueError when they are no numbers."""
    for table in tables.tables(tables.section(page, bar.section)):
        if not table.title.startswith(bar.table):
            continue
        try:
            ours = tables.numbers(table.cell(bar.row, bar.ours))
            peer = tables.numbers(table.cell(bar.peer_row or bar.row, bar.peer)) if bar.peer else []
        except KeyError:
            continue
        if not ours:
            raise ValueError(f"{bar.section}: {bar.row} has no figure")
        if bar.pair:
            return Standing(bar, ours[0], ours[1])
        return Standing(bar, ours[0], peer[0] if peer else None)
    raise KeyError(f"{bar.section}: no table with {bar.row} and {bar.ours}")


def _broker(row: str, job: str, cpu: float | None = None, rate: float | None = None) -> list[Bar]:
    place = {"section": "bench/broker", "row": row, "pair": True, "peer_name": "Kafka", "ratio": True}
    return [
        Bar(job, "CPU s/GB", ours="broker CPU", most=cpu, **place),  # type: ignore[arg-type]
        Bar(job, "MB/s", ours="MB/s", least=rate, **place),  # type: ignore[arg-type]
    ]


def _mirror(section: str, where: str, codec: str) -> list[Bar]:
    place = {"section": section, "table": f"{codec}:", "peer": "MirrorMaker 2", "peer_name": "MirrorMaker 2"}
    job = f"mirror, {where}, {codec}"
    return [
        Bar(job, "MB/s", row="copy, MB/s", **place),
        Bar(job, "CPU s, start included", row="CPU s of the mirror", ratio=True, most=0.10, **place),  # type: ignore[arg-type]
        Bar(job, "s to first record", row="launch to first", most=2, **place),  # type: ignore[arg-type]
    ]


def _path(name: str, most: float) -> Bar:
    return Bar(
        name,
        "µs of CPU a record",
        "bench/paths",
        name,
        ours="now",
        peer="limit",
        peer_name="limit",
        most=most,
    )


def _growth(section: str, units: str, few: str, many: str, *, idle: float | None = 10) -> list[Bar]:
    """Flat: one more of many costs at most twice what one more of few does, and nothing happens in a tenth of a core."""
    place = {"section": f"bench/growth/{section}", "row": many}
    one = "KB for one more"
    return [
        Bar(f"{many} {units}", one, ours=one, peer=one, peer_row=few, peer_name=f"at {few}", ratio=True, most=2, **place),  # type: ignore[arg-type]
        Bar(f"{many} {units}", "idle, % of a core", ours="idle", most=idle, **place),  # type: ignore[arg-type]
    ]  # fmt: skip


def _soak(row: str, *, most: float | None = None, least: float | None = None) -> Bar:
    return Bar("agent and broker killed", row, "soak/agent", row, ours="number", most=most, least=least)


def _worker(row: str, job: str, figure: str) -> Bar:
    return Bar(job, figure, "bench/connect", row, peer="kafka", peer_name="Kafka Connect")


BARS: list[Bar] = [
    *_broker("produce-1k", "broker: produce 1 KB", 0.5, 1.5),
    *_broker("consume-1k", "broker: consume 1 KB", 0.5, 1.1),
    *_broker("tail-1k", "broker: consume while it is produced", 0.5),
    Bar("broker: small message, acknowledged", "p50, µs", "bench/broker", "ping-100b", ours="p50", pair=True, peer_name="Kafka", ratio=True, most=0.6),
    Bar("broker: start", "s", "bench/broker", "start to first", peer="kafka", peer_name="Kafka", most=0.3),
    Bar("broker: idle", "MB", "bench/broker", "RSS idle", peer="kafka", peer_name="Kafka", most=40),
    _worker("file source, records/s", "worker: file to topic", "records/s"),
    _worker("file source, worker CPU", "worker: file to topic", "CPU s per million records"),
    _worker("file sink, records/s", "worker: topic to file", "records/s"),
    _worker("worker's memory idle", "worker: idle", "MB"),
    _path("topic → Elasticsearch", 6),
    Bar("topic → Elasticsearch", "documents/s", "bench/sinks", "records/s", ours="sink", peer="raw bulk", peer_name="raw bulk", table="### To Elasticsearch", ratio=True, least=0.9),
    _path("topic → MariaDB, upserts", 6),
    _path("topic → PostgreSQL, upserts", 5),
    _path("binlog → topic", 25),
    _path("snapshot → topic", 15),
    _path("envelope → JSON", 8),
    _path("file → topic", 1),
    _path("topic → file", 1),
    *_mirror("bench/mirror", "Klamm's brokers", "none"),
    *_mirror("bench/mirror", "Klamm's brokers", "zstd"),
    *_mirror("bench/mirror/kafka", "Apache's brokers", "none"),
    Bar("mirror: single record, 8 partitions", "p50, ms", "bench/mirror/many", "single record, p50", table="8 partitions", peer="MirrorMaker 2", peer_name="MirrorMaker 2", most=5),
    Bar("mirror: single record, 1,000 partitions", "p50, ms", "bench/mirror/many", "single record, p50", table="1,000 partitions", peer="MirrorMaker 2", peer_name="MirrorMaker 2", ratio=True, most=1),
    Bar("mirror: a line of 50 MB/s, 100 ms", "share of the line", "bench/mirror/distance", "share of the line", table="A line of 50 ", peer="MirrorMaker 2", peer_name="MirrorMaker 2", least=0.9),
    Bar("mirror: a line of 500 MB/s, 100 ms", "share of the line", "bench/mirror/distance", "share of the line", table="A line of 500 ", peer="MirrorMaker 2", peer_name="MirrorMaker 2", least=0.9),
    Bar("agent: file to topic, raw", "MB/s", "bench/agent/raw", "file to topic", peer="rsyslog", peer_name="rsyslog", ratio=True, least=2),
    Bar("agent: file to topic, raw", "CPU s/GB", "bench/agent/raw", "CPU s per GB", peer="rsyslog", peer_name="rsyslog"),
    Bar("agent: file to topic, JSON", "MB/s", "bench/agent/json", "file to topic", peer="rsyslog", peer_name="rsyslog"),
    _soak("kills of agent and broker", least=200),
    _soak("lines missing", most=0),
    _soak("lines that came twice", most=0),
    _soak("start after a kill: most for the write-ahead log, ms", most=1000),
    *_growth("partitions", "partitions", "1,000", "10,000"),
    Bar("10,000 partitions", "start, s", "bench/growth/partitions", "10,000", ours="start with them", most=3),
    *_growth("connections", "connections", "1,000", "5,000"),
    *_growth("groups", "consumer groups", "100", "1,000"),
    *_growth("files", "followed files", "1,000", "5,000"),
    *_growth("shared-connectors", "connectors of four tasks in one process", "100", "500", idle=None),
    Bar("all parts under mixed load", "parts that have grown", "soak/mixed", "60", ours="parts that have grown", most=0),
    Bar("lines through Spark into nothing", "CPU s per million", "bench/pipeline/throughput", "noop", ours="CPU s per million", most=22),
    Bar("lines through Spark into nothing", "lines/s", "bench/pipeline/throughput", "noop", ours="lines/s", least=80_000),
    Bar("lines through Spark into nothing", "MB of Spark", "bench/pipeline/throughput", "noop", ours="most memory", most=1500),
    Bar("line → searchable, 5,000 lines/s", "p99, s", "bench/pipeline/latency", "line → searchable, p99", ours="5,000 lines/s", most=3),
    Bar("line → searchable, 5,000 lines/s", "MB of Spark", "bench/pipeline/latency", "most memory, MB: Spark", ours="5,000 lines/s", most=1500),
    Bar("schema registry", "reads/s", "bench/registry", "schemas read by id, a second", least=2_000),
    Bar("schema registry", "registrations/s", "bench/registry", "registrations of new schemas, a second", least=300),
    Bar("Spark: topic to topic", "p50, ms", "spark-latency", "p50", peer="kafka", peer_name="Spark's own connector", most=150),
]  # fmt: skip


def told(section: str, text: str) -> str:
    """Returns a line for each bar of a section that was measured just now, and says whether it is met."""
    page = f"<!-- {section} -->\n{text}\n<!-- end {section} -->"
    lines = []
    for bar in BARS:
        if bar.section != section or not bar.asked:
            continue
        try:
            at = standing(bar, page)
        except KeyError:  # this run left the row out
            continue
        peer = "" if at.peer is None else f", {bar.peer_name} {at.peer:,g}"
        met = {True: "met", False: "MISSED", None: "no peer"}[at.met]
        lines.append(f"{bar.job}, {bar.figure}: {at.ours:,g}{peer}, asked {bar.asked}: {met}")
    return "\n".join(lines)
