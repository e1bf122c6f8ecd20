"""Apache Kafka's command-line tools, run by a JVM that lives as long as the test session.

A JVM for each command would cost one to two seconds of both cores; here a command takes 0.1 to 0.5 s. The tools'
own `main` methods run, with their exit codes, output and input (see KafkaTools.java). One command at a time.
VerifiableProducer is not among them: it closes itself in a hook of the JVM's end, so it needs a JVM of its own.
"""

from __future__ import annotations

import base64
import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from support.kafka_oracle import KafkaOracle, write_log4j

_TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "kafka-acls": _TOOLS + "AclCommand",
    "kafka-broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "kafka-client-metrics": _TOOLS + "ClientMetricsCommand",
    "kafka-cluster": _TOOLS + "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "kafka-console-producer": _TOOLS + "ConsoleProducer",
    "kafka-console-share-consumer": _TOOLS + "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-streams-groups": _TOOLS + "streams.StreamsGroupCommand",
    "kafka-consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "kafka-delete-records": _TOOLS + "DeleteRecordsCommand",
    "kafka-dump-log": _TOOLS + "DumpLogSegments",
    "kafka-features": _TOOLS + "FeatureCommand",
    "kafka-get-offsets": _TOOLS + "GetOffsetShell",
    "kafka-groups": _TOOLS + "GroupsCommand",
    "kafka-leader-election": _TOOLS + "LeaderElectionCommand",
    "kafka-log-dirs": _TOOLS + "LogDirsCommand",
    "kafka-delegation-tokens": _TOOLS + "DelegationTokenCommand",
    "kafka-metadata-quorum": _TOOLS + "MetadataQuorumCommand",
    "kafka-producer-perf-test": _TOOLS + "ProducerPerformance",
    "kafka-reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-share-groups": _TOOLS + "consumer.group.ShareGroupCommand",
    "kafka-topics": _TOOLS + "TopicCommand",
    "kafka-transactions": _TOOLS + "TransactionsCommand",
    "kafka-verifiable-consumer": _TOOLS + "VerifiableConsumer",
}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of a tool. `lines` are those of standard output that are not empty."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.strip()]

    def ok(self) -> ToolResult:
        """Returns itself; fails the test, with what the tool said, when it exits with an error or logs one.

        Some tools exit with 0 after an error, so its log line counts as well.
        """
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        assert "] ERROR " not in self.err, f"{self.out}\n{self.err}"
        return self


class KafkaTools:
    """Starts its JVM at the first command, and again after one that did not end in time."""

    def __init__(self, oracle: KafkaOracle, work: Path) -> None:
        self._oracle = oracle
        self._work = work
        self._jvm: subprocess.Popen[bytes] | None = None

    def run(self, tool: str, *args: str, stdin: str = "", timeout_s: float = 60) -> ToolResult:
        """Run a tool by its script's name (`kafka-topics`). Does not judge the exit code: see `ToolResult.ok`."""
        if self._jvm is None or self._jvm.poll() is not None:
            self._jvm = self._start()
        assert self._jvm.stdin is not None
        words = (CLASSES[tool], stdin, *args)
        self._jvm.stdin.write(b" ".join(base64.b64encode(w.encode()) for w in words) + b"\n")
        self._jvm.stdin.flush()
        code, out, err = self._answer(self._jvm, f"{tool} {' '.join(args)}", timeout_s).split(b" ")
        return ToolResult(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def close(self) -> None:
        """End the JVM."""
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm.wait()
            for stream in (self._jvm.stdin, self._jvm.stdout):
                if stream is not None:
                    stream.close()
            self._jvm = None

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        source = Path(__file__).with_name("KafkaTools.java")
        command = self._oracle.command(str(source), heap="-Xmx256M", log4j=write_log4j(self._work))
        with (self._work / "tools.log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def _answer(self, jvm: subprocess.Popen[bytes], what: str, timeout_s: float) -> bytes:
        assert jvm.stdout is not None
        fd, data, deadline = jvm.stdout.fileno(), b"", time.monotonic() + timeout_s
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            part = os.read(fd, 1 << 16) if left > 0 and select.select([fd], [], [], left)[0] else None
            if not part:
                self.close()
                log = (self._work / "tools.log").read_text(errors="replace")[-3000:]
                raise AssertionError(f"{what}: {'the JVM ended' if part == b'' else 'no end in time'}\n{log}")
            data += part
        return data[:-1]
