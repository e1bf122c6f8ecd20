"""Writes the field tables of `klamm_kafka.wire.messages` from Kafka's published message definitions.

    python broker/codegen/generate.py [--output DIRECTORY] SOURCE...

SOURCE is a jar (kafka-clients-*.jar, kafka-group-coordinator-*.jar, kafka-share-coordinator-*.jar,
kafka-transaction-coordinator-*.jar) or a directory that holds the definitions as *.json. This is a development tool: the tables are checked in, and they take
over facts only (names, types, versions, tags, defaults), not Kafka's sentences.

Rules: names become snake_case. If both messages of a module use a struct's name, the message's name goes in front.
Secret values (see SECRETS and SECRETS_OF) are marked, so that repr hides them.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent.parent / "klamm_kafka" / "wire" / "messages"
API_KEYS = {
    *range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, 74, 75, *range(76, 80), 88, 89, 90, 91, 92,
}  # fmt: skip
RECORDS = {  # module: messages, other than requests and responses
    "header": ("RequestHeader", "ResponseHeader"),
    "group_records": ("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"),
    "consumer_group_records": (
        "ConsumerGroupMetadataKey",
        "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataKey",
        "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataValue",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupCurrentMemberAssignmentValue",
        "ConsumerGroupRegularExpressionKey",
        "ConsumerGroupRegularExpressionValue",
    ),
    "share_group_records": (
        "ShareGroupMemberMetadataKey",
        "ShareGroupMemberMetadataValue",
        "ShareGroupMetadataKey",
        "ShareGroupMetadataValue",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupTargetAssignmentMetadataValue",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMemberValue",
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupCurrentMemberAssignmentValue",
        "ShareGroupStatePartitionMetadataKey",
        "ShareGroupStatePartitionMetadataValue",
    ),
    "share_state_records": ("ShareSnapshotKey", "ShareSnapshotValue", "ShareUpdateKey", "ShareUpdateValue"),
    "streams_group_records": (
        "StreamsGroupMetadataKey",
        "StreamsGroupMetadataValue",
        "StreamsGroupMemberMetadataKey",
        "StreamsGroupMemberMetadataValue",
        "StreamsGroupTargetAssignmentMetadataKey",
        "StreamsGroupTargetAssignmentMetadataValue",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupTargetAssignmentMemberValue",
        "StreamsGroupCurrentMemberAssignmentKey",
        "StreamsGroupCurrentMemberAssignmentValue",
        "StreamsGroupTopologyKey",
        "StreamsGroupTopologyValue",
    ),
    "transaction_records": ("TransactionLogKey", "TransactionLogValue"),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "end_txn_marker": ("EndTxnMarker",),
}
BRIEFS = {
    "header": "Headers in front of every request and response.",
    "group_records": "Records of `__consumer_offsets`.",
    "consumer_group_records": "Records of `__consumer_offsets` that hold groups of the consumer protocol (KIP-848).",
    "share_group_records": "Records of `__consumer_offsets` that hold share groups (KIP-932).",
    "share_state_records": "Records of `__share_group_state`: the state of share groups' partitions (KIP-932).",
    "streams_group_records": "Records of `__consumer_offsets` that hold Streams groups (KIP-1071).",
    "transaction_records": "Records of `__transaction_state`.",
    "consumer_protocol": "What consumers put into the metadata and assignments of classic groups.",
    "end_txn_marker": "The value of the control record that ends a transaction.",
}
SECRETS = {"auth_bytes", "salted_password", "hmac", "password"}
SECRETS_OF = {  # values that may hold anything, passwords too
    "AlterConfigsRequest": {"value"},
    "IncrementalAlterConfigsRequest": {"value"},
}
PYTHON_TYPES = {
    "bool": "bool",
    "string": "str",
    "float64": "float",
    "uuid": "bytes",
    "bytes": "bytes",
    "records": "bytes | bytearray | memoryview",
}
WIDTH = 110
Document = dict[str, Any]


def read_definitions(source: Path) -> Iterator[Document]:
    """Yields every definition in a jar or a directory; they are JSON with // comments."""
    if source.is_dir():
        texts = [path.read_text() for path in sorted(source.rglob("*.json"))]
    else:
        with zipfile.ZipFile(source) as jar:
            names = [n for n in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", n)]
            texts = [jar.read(name).decode() for name in sorted(names)]
    for text in texts:
        yield json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def snake_case(name: str) -> str:
    """Turns `IsrNodes` into `isr_nodes`, `throttleTimeMs` into `throttle_time_ms`."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return snake + "_" if keyword.iskeyword(snake) else snake


class Table:
    """The source of one message: its structs, innermost first, then itself."""

    def __init__(self, document: Document, renamed: dict[str, str]) -> None:
        self.document = document
        self.renamed = renamed
        self.blocks: list[str] = []
        self.written: set[str] = set()
        self.common = {struct["name"]: struct for struct in document.get("commonStructs", [])}
        body = self._body(document["fields"])
        self.blocks.append(f"{self._head()}\n{body}")

    def _head(self) -> str:
        doc = self.document
        options = {"api_key": doc.get("apiKey"), "kind": doc["type"], "versions": doc["validVersions"]}
        if doc["type"] not in {"request", "response"}:
            options["kind"] = doc["type"].removeprefix("coordinator-")
        if doc["type"] == "data":
            del options["api_key"]
        if doc["flexibleVersions"] != "none":
            options["flexible"] = doc["flexibleVersions"]
        if doc.get("latestVersionUnstable"):
            options["unstable"] = True
        text = ", ".join(f"{k}={quoted(v)}" for k, v in options.items() if v is not None)
        head = f"class {doc['name']}(Message, {text}):"
        return head if len(head) <= WIDTH else f"class {doc['name']}(\n    Message, {text}\n):"

    def _struct(self, name: str, fields: list[Document]) -> None:
        if name not in self.written:
            self.written.add(name)
            body = self._body(fields)
            self.blocks.append(f"class {self.renamed.get(name, name)}(Struct):\n{body}")

    def _body(self, fields: list[Document]) -> str:
        return "\n".join(self._field(item) for item in fields) or "    pass"

    def _field(self, item: Document) -> str:
        array = item["type"].startswith("[]")
        base = item["type"].removeprefix("[]")
        if base[0].isupper():
            self._struct(base, item.get("fields") or self.common[base]["fields"])
            base = self.renamed.get(base, base)
            wire = python = base
        else:
            wire, python = quoted(base), PYTHON_TYPES.get(base, "int")
        if array:
            wire, python = f"[{wire}]", f"list[{python}]"
        name = snake_case(item["name"])
        nullable = item.get("nullableVersions")
        versions = item.get("versions") or item["taggedVersions"]
        options = {"nullable": nullable, "tag": item.get("tag")}
        if "default" in item:
            options["default"] = default_of(base, item["default"])
            if options["default"] in (0, "", False) and options["default"] is not None:
                del options["default"]
        optional = nullable or ("default" in options and options["default"] is None)
        annotation = f"{python} | None" if optional else python
        arguments = [wire, quoted(versions)]
        arguments += [f"{k}={quoted(v)}" for k, v in options.items() if v is not None or k == "default"]
        arguments += ["ignorable=True"] if item.get("ignorable") else []
        arguments += ["compact=False"] if item.get("flexibleVersions") == "none" else []
        secrets = SECRETS | SECRETS_OF.get(self.document["name"], set())
        arguments += ["secret=True"] if name in secrets else []
        line = f"    {name}: {annotation} = field({', '.join(arguments)})"
        if len(line) > WIDTH:
            line = f"    {name}: {annotation} = field(\n        {', '.join(arguments)}\n    )"
        return line


def quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def default_of(base: str, value: Any) -> object:
    """Returns a default as a value. The JSONs write it as a string or as itself: `"-1"`, `-1`, `"0x7fffffff"`, `"null"`."""
    if value in ("null", None):
        return None
    if base == "bool":
        return value in (True, "true")
    if base.startswith(("int", "uint")):
        return int(str(value), 0)
    return value


def struct_names(document: Document) -> set[str]:
    def walk(fields: list[Document]) -> Iterator[str]:
        for item in fields:
            if item["type"].removeprefix("[]")[0].isupper():
                yield item["type"].removeprefix("[]")
            yield from walk(item.get("fields", []))

    return {*walk(document["fields"]), *(s["name"] for s in document.get("commonStructs", []))}


def versions_text(document: Document) -> str:
    flexible = document["flexibleVersions"]
    kind = f"{document['type']} {document['validVersions']}"
    return kind if flexible == "none" else f"{kind} (flexible {flexible})"


def module_source(brief: str, documents: list[Document]) -> str:
    names = [struct_names(document) for document in documents]
    shared = {n for i, one in enumerate(names) for n in one if any(n in other for other in names[i + 1 :])}
    blocks = []
    for document, own in zip(documents, names, strict=True):
        renamed = {name: document["name"] + name for name in own & shared}
        blocks += Table(document, renamed).blocks
    uses = "Message, Struct, field" if any("(Struct)" in block for block in blocks) else "Message, field"
    head = f'"""{brief}\n\nGenerated by broker/codegen/generate.py.\n"""\n\nfrom __future__ import annotations\n\n'
    return head + f"from klamm_kafka.wire.struct import {uses}\n\n\n" + "\n\n\n".join(blocks) + "\n"


def modules_of(documents: dict[str, Document]) -> dict[str, str]:
    """Returns the source by module name, for all client-facing APIs and the records in RECORDS."""
    modules: dict[str, str] = {}
    for doc in documents.values():
        if doc["type"] == "request" and doc["apiKey"] in API_KEYS:
            name = doc["name"].removesuffix("Request")
            pair = [doc, documents[f"{name}Response"]]
            brief = f"{name}, API key {doc['apiKey']}: {', '.join(versions_text(d) for d in pair)}."
            modules[snake_case(name)] = module_source(brief, pair)
    for module, names in RECORDS.items():
        modules[module] = module_source(BRIEFS[module], [documents[name] for name in names])
    return modules


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    options = parser.parse_args(arguments)
    documents = {doc["name"]: doc for source in options.sources for doc in read_definitions(source)}
    missing = [name for names in RECORDS.values() for name in names if name not in documents]
    if missing:
        parser.error(f"no definition of {', '.join(missing)} in the sources")
    modules = modules_of(documents)
    for module, text in modules.items():
        (options.output / f"{module}.py").write_text(text)
    print(f"{len(modules)} modules written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
