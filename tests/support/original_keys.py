"""The tables of keys of the connectors whose names ours take, made from the originals' jars.

    python tests/support/original_keys.py [mirror|file|debezium|debezium-transforms|jdbc|elasticsearch ...]

Writes the tables anew, of all originals whose jars are here: new keys get no verdict, gone keys are left out. Verdicts, reasons and
values that are fine are kept. `klamm_plugins.original_keys` cannot read a key without a verdict: write one.

Jars: `tests/peers/fetch_kafka.sh` (mirror, file), `tests/peers/fetch_debezium.sh`; Confluent's from its hub, unpacked into
`~/.cache/klamm-confluent` (their `lib` folders).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
JAVA: Final = Path(__file__).with_name("OriginalKeys.java")
CACHE: Final = Path.home() / ".cache"
COMMON: Final = "common"

_MIRROR: Final = "org.apache.kafka.connect.mirror."
_RUNTIME: Final = "org.apache.kafka.connect.runtime."
_CLIENTS: Final = "org.apache.kafka.clients."
_DEBEZIUM: Final = "io.debezium."
_GROUP: Final = re.compile(r"\([^()]*\)")

Rows = dict[str, dict[str, list[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Classes with keys, as SPACE=CLASS, and where their jars are."""

    classes: Sequence[str]
    jars: Path = CACHE / "kafka-oracle"
    pattern: str = "libs/*.jar"

    def found(self) -> list[str]:
        """Returns the original's own jars; empty when they are not here."""
        return [str(path) for pattern in self.pattern.split() for path in sorted(self.jars.glob(pattern))]

    def rows(self) -> Rows:
        """Asks the jars for the keys, in a JVM."""
        from support import kafka_oracle

        oracle = kafka_oracle.require()
        command = oracle.command(str(JAVA), *self.classes)
        command[command.index("-cp") + 1] = ":".join([*self.found(), f"{oracle.home}/libs/*"])
        import subprocess

        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
        return of_lines(done.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """Releases of an original, of which the first that has a space counts, and our table of their keys."""

    table: str
    version: str
    releases: Sequence[Release]

    @property
    def path(self) -> Path:
        return ROOT / self.table

    def missing(self) -> list[str]:
        """Returns where jars should be that are not here."""
        return [f"{each.jars}/{each.pattern}" for each in self.releases if not each.found()]

    def rows(self) -> Rows:
        """Asks the jars for the keys, in a JVM for each release."""
        found: Rows = {}
        for each in self.releases:
            for space, keys in each.rows().items():
                found.setdefault(space, keys)
        return found


ORIGINALS: Final = {
    "mirror": Original(
        table="mirror/klamm_mirror/settings/mm2_keys.json",
        version="MirrorMaker 2 of Kafka 4.3.1",
        releases=[Release(classes=[
            *(f"connector={_MIRROR}{name}" for name in (
                "MirrorSourceConfig", "MirrorCheckpointConfig", "MirrorHeartbeatConfig",
                "DefaultTopicFilter$TopicFilterConfig", "DefaultGroupFilter$GroupFilterConfig",
                "DefaultConfigPropertyFilter$ConfigPropertyFilterConfig",
            )),
            f"connector={_RUNTIME}SourceConnectorConfig",
            f"file={_MIRROR}MirrorMakerConfig",
            f"worker={_RUNTIME}distributed.DistributedConfig",
            f"common={_MIRROR}MirrorClientConfig",
            f"consumer={_CLIENTS}consumer.ConsumerConfig",
            f"producer={_CLIENTS}producer.ProducerConfig",
            f"admin={_CLIENTS}admin.AdminClientConfig",
        ])],
    ),
    "file": Original(
        table="connectors/klamm_connectors/file/original_keys.json",
        version="Kafka 4.3.1",
        releases=[Release(
            classes=[f"{kind.lower()}=org.apache.kafka.connect.file.FileStream{kind}Connector" for kind in ("Source", "Sink")],
            pattern="plugins/connect-file/*.jar",
        )],
    ),
    "debezium": Original(
        table="connectors/klamm_connectors/mysql/original_keys.json",
        version="Debezium 3.6.1.Final, and of 3.5.0.Final what differs for MariaDB",
        releases=[
            Release(
                classes=[
                    f"common={_DEBEZIUM}connector.mysql.MySqlConnector",
                    *(f"common={_DEBEZIUM}{name}" for name in (
                        "config.CommonConnectorConfig",
                        "schema.AbstractTopicNamingStrategy", "schema.AbstractRegexTopicNamingStrategy",
                        "relational.history.SchemaHistory",
                        "storage.kafka.history.KafkaSchemaHistory", "storage.file.history.FileSchemaHistory",
                        "pipeline.signal.channels.KafkaSignalChannel", "pipeline.signal.channels.FileSignalChannel",
                    )),
                ],
                jars=CACHE / "klamm-debezium",
                pattern="mysql/*.jar",
            ),
            Release(
                classes=[
                    f"common={_DEBEZIUM}connector.mysql.MySqlConnector",
                    f"mariadb={_DEBEZIUM}connector.mariadb.MariaDbConnector",
                ],
                jars=CACHE / "klamm-debezium",
                pattern="mariadb/*.jar",
            ),
        ],
    ),
    "debezium-transforms": Original(
        table="plugins/klamm_plugins/transforms/debezium/original_keys.json",
        version="Debezium 3.6.1.Final, and 3.5.0.Final for Filter and ContentBasedRouter",
        releases=[
            Release(
                classes=[f"{space}={_DEBEZIUM}transforms.{name}" for space, name in (
                    ("ByLogicalTableRouter", "ByLogicalTableRouter"),
                    ("EventRouter", "outbox.EventRouterConfigDefinition"),
                    ("EventRouter", "tracing.ActivateTracingSpan"),
                    ("ExtractNewRecordState", "ExtractNewRecordState"),
                    ("ExtractNewRecordState", "ExtractNewRecordStateConfigDefinition"),
                )],
                jars=CACHE / "klamm-debezium",
                pattern="mysql/*.jar",
            ),
            Release(
                classes=[f"{name}={_DEBEZIUM}transforms.{name}" for name in ("ContentBasedRouter", "Filter")],
                jars=CACHE / "klamm-debezium",
                pattern="mariadb/*.jar scripting/*.jar",
            ),
        ],
    ),
    "jdbc": Original(
        table="connectors/klamm_connectors/sql/original_keys.json",
        version="Confluent's JDBC connector 10.9.7",
        releases=[Release(
            classes=["common=io.confluent.connect.jdbc.sink.JdbcSinkConfig"],
            jars=CACHE / "klamm-confluent",
            pattern="*kafka-connect-jdbc-*/lib/*.jar",
        )],
    ),
    "elasticsearch": Original(
        table="connectors/klamm_connectors/elasticsearch/original_keys.json",
        version="Confluent's Elasticsearch connector 15.1.3",
        releases=[Release(
            classes=["common=io.confluent.connect.elasticsearch.ElasticsearchSinkConnectorConfig"],
            jars=CACHE / "klamm-confluent",
            pattern="*kafka-connect-elasticsearch-*/lib/*.jar",
        )],
    ),
}  # fmt: skip


def of_lines(text: str) -> Rows:
    """Returns type and default of each key by space and name. A part that users name is `*`. Keys that a space has as
    `common` has them are in `common` alone.
    """
    rows: Rows = {}
    for line in text.splitlines():
        space, name, kind, default = line.split("\t")
        rows.setdefault(space, {}).setdefault(_GROUP.sub("*", name), [kind, default])
    common = rows.get(COMMON, {})
    return {
        space: {n: row for n, row in sorted(keys.items()) if space == COMMON or common.get(n) != row}
        for space, keys in rows.items()
    }


def merged(found: Rows, table: Rows) -> Rows:
    """Returns the original's keys with the verdicts of the table, and the table's spaces that are written by hand."""
    made = {
        space: {name: [*row, *table.get(space, {}).get(name, [])[2:]] for name, row in keys.items()}
        for space, keys in found.items()
    }
    return made | {space: keys for space, keys in table.items() if space not in found}


def as_text(table: Rows) -> str:
    """Returns JSON with a line for each key."""
    spaces = [
        f"{json.dumps(space)}: {{\n"
        + ",\n".join(f"  {json.dumps(n)}: {json.dumps(row, ensure_ascii=False)}" for n, row in keys.items())
        + "\n}"
        for space, keys in table.items()
    ]
    return "{\n" + ",\n".join(spaces) + "\n}\n"


def written(original: Original) -> Rows:
    """Returns the table as it stands in the repository."""
    return json.loads(original.path.read_text("utf-8")) if original.path.exists() else {}  # type: ignore[no-any-return]


def main(names: Sequence[str]) -> None:
    for name in names or ORIGINALS:
        original = ORIGINALS[name]
        if missing := original.missing():
            print(f"{name}: no jars of {original.version} in {', '.join(missing)}")
            continue
        original.path.write_text(as_text(merged(original.rows(), written(original))), "utf-8")
        print(f"{name}: {original.path}")


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    main(sys.argv[1:])
