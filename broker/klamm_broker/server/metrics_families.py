"""The broker's metrics as Prometheus families, under the names that dashboards of Apache Kafka ask for.

The names are those of jmx_exporter's lower-case rules (Strimzi's boards), of kafka_exporter (`kafka_topic_*`,
`kafka_consumergroup_*`) and of Prometheus' process metrics; `klamm_*` are ours alone. Everything is read from the
objects at the moment of asking. The broker serves requests between two families, so one answer may cover some
milliseconds; each family works on a list of the objects that existed when it began.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm_base.metrics_text import Family, Number, Sample
from klamm_base.version import __version__
from klamm_broker.server import metrics_quotas, metrics_share
from klamm_broker.server.metrics import LATENCY_BUCKETS_S, ApiMetrics, TopicMetrics
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.listener import Server
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.topics import Partition

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

_TOPIC_COUNTERS: Final[dict[str, tuple[str, str]]] = {
    "bytesin": ("bytes_in", "Bytes of record batches appended."),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers."),
    "messagesin": ("messages_in", "Records appended."),
    "totalproducerequests": ("produces", "Appends of clients that were asked for, by partition."),
    "totalfetchrequests": ("fetches", "Partitions that were read for fetches."),
    "failedproducerequests": ("failed_produces", "Appends of clients that failed, by partition."),
    "failedfetchrequests": ("failed_fetches", "Partitions whose fetch failed."),
}


def families(broker: BrokerState, server: Server) -> Iterator[Family]:
    """Yields all families, in order of kind."""
    yield from _process(broker)
    yield from _connections(broker, server)
    yield from _requests(sorted(server.metrics.apis.items()))
    yield from _topics(broker)
    yield from _controller(broker)
    yield from _partitions(broker)
    yield from _groups(broker)
    yield from _upkeep(broker)
    yield from metrics_quotas.families(broker, server)
    yield from broker.telemetry.families(broker.mono_ms())


def _gauge(name: str, help: str, value: Number, **labels: str | int) -> Family:
    return Family(name, "gauge", help, [Sample(labels, value)])


def _counter(name: str, help: str, value: Number, **labels: str | int) -> Family:
    return Family(name, "counter", help, [Sample(labels, value)])


# ---- process


def _process(broker: BrokerState) -> Iterator[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield _gauge("klamm_build_info", "Version of Klamm, as a label.", 1, version=__version__)
    yield _counter(
        "process_cpu_seconds_total", "User and system CPU time, s.", usage.ru_utime + usage.ru_stime
    )
    yield _gauge("process_start_time_seconds", "Start of the process, s since the epoch.", broker.started_s)
    files = Path("/proc/self/fd")
    if not files.is_dir():  # not Linux: only other programs could tell the rest
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    yield _gauge("process_resident_memory_bytes", "Resident memory.", pages * resource.getpagesize())
    yield _gauge("process_open_fds", "Open file descriptors.", len(os.listdir(files)))  # noqa: PTH208 - a name each
    yield _gauge(
        "process_max_fds", "Limit of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )
    io = dict(
        line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").strip().split("\n")
    )
    for name, key in (("read", "read_bytes"), ("write", "write_bytes")):
        yield _counter(
            f"kafka_server_kafkaserver_linux_disk_{name}_bytes",
            f"Bytes of this process that the disk had to {name}.",
            int(io[key]),
        )


def _connections(broker: BrokerState, server: Server) -> Iterator[Family]:
    counts = Counter(dict.fromkeys(broker.listeners, 0))
    counts.update(connection.listener for connection in server.connections)
    yield Family(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Connections that are open.",
        [Sample({"listener": name}, count) for name, count in counts.items()],
    )
    metrics = server.metrics
    name = "kafka_server_socket_server_metrics_connection"
    yield _counter(f"{name}_creation_total", "Connections that were accepted.", metrics.connections_made)
    yield _counter(f"{name}_close_total", "Connections that were closed.", metrics.connections_closed)
    yield _counter(
        "klamm_connections_refused_total", "Refused by max.connections[.per.ip].", metrics.connections_refused
    )
    of_logins = "kafka_server_socket_server_metrics_{}_authentication_total"
    yield _counter(of_logins.format("successful"), "Logins, renewals included.", metrics.logins)
    yield _counter(of_logins.format("failed"), "Logins that were refused.", metrics.logins_failed)
    yield _counter("klamm_tls_handshakes_total", "TLS handshakes that were completed.", metrics.handshakes)
    yield _counter(
        "klamm_tls_handshakes_failed_total",
        "TLS handshakes that failed or took too long.",
        metrics.handshakes_failed,
    )
    if broker.denials is not None:
        yield _counter(
            "klamm_denials_total", "Requests, or parts of them, that ACLs forbid.", broker.denials.total
        )
    idle = broker.idle.share()
    for pool in ("network_socketserver_networkprocessor", "server_kafkarequesthandlerpool_requesthandler"):
        yield _gauge(
            f"kafka_{pool}avgidle_percent",
            "Share of the time (0 to 1) since the last scrape in which the event loop's process used no CPU.",
            idle,
        )


# ---- requests


def _requests(apis: list[tuple[int, ApiMetrics]]) -> Iterator[Family]:
    yield Family(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        "Requests by API and version.",
        [
            Sample({"request": name, "version": version}, count)
            for _, api in apis
            for name in _names(api)
            for version, count in sorted(api.requests.items())
        ],
    )
    yield Family(
        "kafka_network_requestmetrics_errors_total",
        "counter",
        "Answers that are an error as a whole, by API and error code.",
        [
            Sample({"request": api.name, "error": _error_name(code)}, count)
            for _, api in apis
            for code, count in sorted(api.errors.items())
        ],
    )
    yield Family(
        "kafka_network_requestmetrics_totaltimems",
        "summary",
        "Milliseconds from a request to its answer since the start, long polls included; quantiles by interpolation.",
        (sample for _, api in apis for name in _names(api) for sample in _summary(name, api)),
    )
    yield Family(
        "klamm_request_duration_seconds",
        "histogram",
        "Seconds from a request to its answer, long polls included.",
        (sample for _, api in apis for sample in _histogram(api)),
    )


def _names(api: ApiMetrics) -> tuple[str, ...]:
    """Returns the names under which Kafka counts an API. A consumer's fetch counts twice: as Fetch and as FetchConsumer."""
    return ("Fetch", "FetchConsumer") if api.name == "Fetch" else (api.name,)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _summary(name: str, api: ApiMetrics) -> Iterator[Sample]:
    latency = api.latency
    for q in QUANTILES:
        yield Sample({"request": name, "quantile": f"{q:g}"}, latency.quantile(q) * 1e3)
    yield Sample({"request": name}, latency.total * 1e3, "_sum")
    yield Sample({"request": name}, latency.count, "_count")


def _histogram(api: ApiMetrics) -> Iterator[Sample]:
    below = 0
    for bound, count in zip((*LATENCY_BUCKETS_S, None), api.latency.counts, strict=True):
        below += count
        yield Sample({"request": api.name, "le": "+Inf" if bound is None else f"{bound:g}"}, below, "_bucket")
    yield Sample({"request": api.name}, api.latency.total, "_sum")
    yield Sample({"request": api.name}, below, "_count")


# ---- topics and partitions


def _topics(broker: BrokerState) -> Iterator[Family]:
    topics = [(topic.name, topic.metrics) for topic in broker.topics]
    everything = TopicMetrics()
    everything.add(broker.topics.gone)
    for _, metrics in topics:
        everything.add(metrics)
    for name, (field, about) in _TOPIC_COUNTERS.items():
        yield Family(
            f"kafka_server_brokertopicmetrics_{name}_total",
            "counter",
            f"{about} Without a topic: of all, also of deleted ones.",
            [
                Sample({}, getattr(everything, field)),
                *(Sample({"topic": topic}, getattr(metrics, field)) for topic, metrics in topics),
            ],
        )


def _controller(broker: BrokerState) -> Iterator[Family]:
    partitions = sum(len(topic.partitions) for topic in broker.topics)
    manager, controller = "kafka_server_replicamanager", "kafka_controller_kafkacontroller"
    for name, about, value in (
        (f"{manager}_partitioncount", "Partitions on this broker.", partitions),
        (f"{manager}_leadercount", "Partitions that this broker leads.", partitions),
        (
            f"{manager}_underreplicatedpartitions",
            "Partitions with replicas that are behind: there is one replica.",
            0,
        ),
        (
            f"{manager}_underminisrpartitioncount",
            "Partitions with min.insync.replicas above one.",
            _under_min_isr(broker),
        ),
        (f"{controller}_activecontrollercount", "This node decides alone.", 1),
        (f"{controller}_globaltopiccount", "Topics.", len(broker.topics)),
        (f"{controller}_globalpartitioncount", "Partitions.", partitions),
        (
            f"{controller}_offlinepartitionscount",
            "Partitions whose log directory has failed.",
            _offline(broker),
        ),
        (
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that have failed.",
            len(broker.logs.unusable),
        ),
    ):
        yield _gauge(name, about, value)
    yield _counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Never: one replica cannot be elected.",
        0,
    )
    yield _gauge("kafka_brokers", "Brokers of the cluster.", 1)
    listener = next(iter(broker.listeners.values()), None)
    if listener is not None:
        yield _gauge(
            "kafka_broker_info",
            "Address of a broker.",
            1,
            id=broker.node_id,
            address=f"{listener.host}:{listener.port}",
        )
    yield Family(
        "kafka_topic_partitions",
        "gauge",
        "Partitions of a topic.",
        [Sample({"topic": topic.name}, len(topic.partitions)) for topic in broker.topics],
    )


def _under_min_isr(broker: BrokerState) -> int:
    return sum(
        len(topic.partitions)
        for topic in broker.topics
        if topic.partitions and topic.config.min_insync_replicas > 1
    )


def _offline(broker: BrokerState) -> int:
    return sum(p.log.offline for topic in broker.topics for p in topic.partitions)


_PARTITION_GAUGES: Final[list[tuple[str, str, Callable[[Partition], int]]]] = [
    ("kafka_log_log_size", "Bytes of a partition's segments.", lambda p: p.log.size),
    ("kafka_log_log_numlogsegments", "Segments.", lambda p: len(p.log.segment_base_offsets)),
    ("kafka_log_log_logstartoffset", "First offset.", lambda p: p.log.log_start_offset),
    ("kafka_log_log_logendoffset", "Offset of the next record.", lambda p: p.log.log_end_offset),
    ("kafka_cluster_partition_laststableoffsetlag", "Records behind the last stable offset.",
     lambda p: p.log.high_watermark - p.log.last_stable_offset),
    ("kafka_cluster_partition_replicascount", "Replicas.", lambda p: 1),
    ("kafka_cluster_partition_insyncreplicascount", "Replicas in sync.", lambda p: 1),
    ("kafka_cluster_partition_underreplicated", "Replicas are behind.", lambda p: 0),
    ("kafka_cluster_partition_underminisr", "Fewer replicas in sync than min.insync.replicas.",
     lambda p: int(p.log.config.min_insync_replicas > 1)),
    ("kafka_cluster_partition_atminisr", "As many replicas in sync as min.insync.replicas.",
     lambda p: int(p.log.config.min_insync_replicas == 1)),
    ("kafka_topic_partition_current_offset", "High watermark.", lambda p: p.log.high_watermark),
    ("kafka_topic_partition_oldest_offset", "First offset.", lambda p: p.log.log_start_offset),
    ("kafka_topic_partition_leader", "The leader's node id.", lambda p: -1),
    ("kafka_topic_partition_replicas", "Replicas.", lambda p: 1),
    ("kafka_topic_partition_in_sync_replica", "Replicas in sync.", lambda p: 1),
    ("kafka_topic_partition_leader_is_preferred", "The first replica leads.", lambda p: 1),
    ("kafka_topic_partition_under_replicated_partition", "Replicas are behind.", lambda p: 0),
]  # fmt: skip


def _partitions(broker: BrokerState) -> Iterator[Family]:
    partitions = [(p.topic.name, p.index, p) for topic in broker.topics for p in topic.partitions]
    for name, about, read in _PARTITION_GAUGES:
        leader = name == "kafka_topic_partition_leader"
        yield Family(
            name,
            "gauge",
            about,
            (
                Sample({"topic": topic, "partition": index}, broker.node_id if leader else read(partition))
                for topic, index, partition in partitions
            ),
        )


# ---- groups


def _groups(broker: BrokerState) -> Iterator[Family]:
    coordinator = broker.groups.coordinator
    _, listed = coordinator.list_groups()
    yield Family(
        "kafka_server_group_coordinator_metrics_group_count",
        "gauge",
        "Groups by protocol and state.",
        [
            Sample({"protocol": protocol, "state": state}, count)
            for (protocol, state), count in sorted(Counter((g.type, g.state) for g in listed).items())
        ],
    )
    for protocol in ("consumer", "share", "streams"):
        states = Counter(g.state for g in listed if g.type.lower() == protocol)
        yield Family(
            f"kafka_server_group_coordinator_metrics_{protocol}_group_count",
            "gauge",
            "Groups of this protocol by state.",
            [Sample({"state": state}, count) for state, count in sorted(states.items())],
        )
    ids = [group.group_id for group in listed]
    epochs = ((g, getattr(coordinator.groups.get(g.group_id), "epoch", None)) for g in listed)
    yield Family(
        "klamm_group_epoch",
        "gauge",
        "Epoch of a group, which rises with every rebalance; classic groups have none.",
        [
            Sample({"group": g.group_id, "protocol": g.type}, epoch)
            for g, epoch in epochs
            if epoch is not None
        ],
    )
    yield Family(
        "kafka_consumergroup_members",
        "gauge",
        "Members of a group.",
        [
            Sample({"consumergroup": group_id}, len(group.members))
            for group_id in ids
            if (group := coordinator.groups.get(group_id)) is not None
        ],
    )
    yield from _group_offsets(broker, ids)


def _group_offsets(broker: BrokerState, ids: Iterable[str]) -> Iterator[Family]:
    """Yields committed offsets and lag; a partition that is gone has no lag."""
    rows: list[tuple[str, str, int, int, int]] = []
    for group_id in ids:
        for at, committed in broker.groups.coordinator.fetch(group_id).offsets.items():
            partition = broker.partition(at.topic, at.partition)
            if partition is not None:
                lag = max(0, partition.log.high_watermark - committed.offset)
                rows.append((group_id, at.topic, at.partition, committed.offset, lag))
    for position, name, about in (
        (3, "current_offset", "Committed offset of a group."),
        (4, "lag", "Records between a group's committed offset and the high watermark."),
    ):
        yield Family(
            f"kafka_consumergroup_{name}",
            "gauge",
            about,
            [
                Sample({"consumergroup": r[0], "topic": r[1], "partition": r[2]}, int(r[position]))
                for r in rows
            ],
        )
        sums: Counter[tuple[str, str]] = Counter()
        for row in rows:
            sums[row[0], row[1]] += int(row[position])
        yield Family(
            f"kafka_consumergroup_{name}_sum",
            "gauge",
            f"{about} Summed over a topic's partitions.",
            [Sample({"consumergroup": g, "topic": t}, value) for (g, t), value in sums.items()],
        )


# ---- cleaner, transactions, fetch sessions, group commit


def _upkeep(broker: BrokerState) -> Iterator[Family]:
    stats, cleaner = broker.cleaner.stats, "kafka_log_logcleaner"
    yield _gauge(
        f"{cleaner}_cleaner_recopy_percent",
        "Share of the last round's bytes that were written again.",
        stats.cleaner_recopy_percent,
    )
    yield _gauge(
        f"{cleaner}_max_buffer_utilization_percent",
        "How full the map of keys was.",
        stats.max_buffer_utilization_percent,
    )
    yield _gauge(f"{cleaner}_max_clean_time_secs", "Duration of the last round, s.", stats.last_duration_s)
    yield _gauge(
        f"{cleaner}manager_max_dirty_percent", "Uncleaned share of the dirtiest log.", stats.max_dirty_percent
    )
    yield _gauge(
        f"{cleaner}manager_uncleanable_partitions_count",
        "Partitions that cannot be cleaned.",
        len(broker.cleaner.uncleanable),
    )
    for name, about in (
        ("runs", "Rounds of the cleaner."),
        ("aborted", "Rounds whose result was thrown away."),
        ("crashes", "Times the cleaner's process died."),
        ("bytes_read", "Bytes that the cleaner read."),
        ("bytes_written", "Bytes that the cleaner wrote."),
    ):
        yield _counter(f"klamm_log_cleaner_{name}_total", about, getattr(stats, name))
    transactions = broker.transactions
    yield Family(
        "klamm_transactions",
        "gauge",
        "Transactional ids by the state of their transaction.",
        [Sample({"state": state}, count) for state, count in transactions.coordinator.statistics().items()],
    )
    yield _counter(
        "klamm_transaction_markers_written_total", "Control records written.", transactions.markers_written
    )
    yield from metrics_share.families(broker)
    sessions, cache = broker.fetch_sessions, "kafka_server_fetchsessioncache"
    yield _gauge(f"{cache}_numincrementalfetchsessions", "Fetch sessions.", len(sessions))
    yield _gauge(
        f"{cache}_numincrementalfetchpartitionscached", "Partitions in fetch sessions.", sessions.partitions
    )
    yield _counter(
        f"{cache}_incrementalfetchsessionevictions_total",
        "Fetch sessions that made room.",
        sessions.evictions,
    )
