"""`kafka-delete-records`: delete the records before the offsets of a JSON file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.records import delete_records
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

SUMMARY = "delete the records of partitions that are before an offset."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option(
        "offset-json-file",
        'REQUIRED: A file like {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}; '
        "an offset of -1 deletes all.",
        "FILE",
    ),
)


def run(options: Options) -> int:
    options.require("bootstrap-server", "offset-json-file")
    before = read_plan(Path(options.text("offset-json-file")))

    async def act(admin: Admin) -> None:
        sys.stdout.write("Executing records delete operation\n")
        found = await delete_records(admin, before)
        sys.stdout.write("Records delete operation completed:\n")
        for tp in sorted(found):
            low = found[tp]
            said = f"error: {with_class(low)}" if isinstance(low, AdminError) else f"low_watermark: {low}"
            sys.stdout.write(f"partition: {tp}\t{said}\n")

    with_admin(options, act)
    return 0


def read_plan(path: Path) -> dict[TopicPartition, int]:
    """Return offsets by partition. Raises KlammError naming what is wrong with the file."""
    try:
        document = json.loads(path.read_text())
    except OSError as e:
        raise KlammError(f"Unable to read file {path}: {e.strerror}") from None
    except ValueError as e:
        raise KlammError(f"The input string is not a valid JSON: {path}: {e}") from None
    if not isinstance(document, dict):
        raise KlammError(f"{path}: expected a JSON object, received {json.dumps(document)[:80]}")
    if document.get("version", 1) != 1:
        raise KlammError(f"Not supported version field value {document['version']}")
    if not isinstance(document.get("partitions"), list):
        raise KlammError("Missing partitions field")
    result: dict[TopicPartition, int] = {}
    doubles: list[TopicPartition] = []
    for row in document["partitions"]:
        tp, offset = _row(path, row)
        if tp in result:
            doubles.append(tp)
        result[tp] = offset
    if doubles:
        said = ",".join(map(str, dict.fromkeys(doubles)))
        raise KlammError(f"Offset json file contains duplicate topic partitions: {said}")
    return result


def _row(path: Path, row: Any) -> tuple[TopicPartition, int]:
    fields = row if isinstance(row, dict) else {}
    topic, partition, offset = (fields.get(k) for k in ("topic", "partition", "offset"))
    if not (isinstance(topic, str) and type(partition) is int and type(offset) is int):
        raise KlammError(
            f"{path}: {json.dumps(row)[:120]} must have a topic (text), a partition and an offset (whole numbers)"
        )
    return TopicPartition(topic, partition), offset
