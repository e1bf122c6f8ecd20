"""Converters with schemas: CPU per record beside the library alone, and beside an earlier version, alternating in one process.

    python -m bench.codecs.compare [--rounds 9] [--records 2000] [--before CHECKOUT] [--write]

A record has ten fields: texts, integers, a double, a Boolean, a decimal, a timestamp and a struct of three, some null. The library alone
writes prepared dicts of primitives (fastavro, orjson), or makes and writes a message of them (protobuf), one by one. It reads into dicts of
primitives, or a message of which nobody takes a field. So it does not check, and makes no decimal, timestamp or struct. `--before` takes
the plugins of another checkout of this repository into the same process.
"""

from __future__ import annotations

import gc
import io
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import fastavro
import orjson
from bench import arguments, report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.schema_registry import SchemaRegistry

FORMATS = {
    "Avro": ("avro", "AvroConverter"),
    "Protobuf": ("protobuf", "ProtobufConverter"),
    "JSON Schema": ("json_schema_registry", "JsonSchemaConverter"),
    "JSON with schemas": ("json", "JsonConverter"),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OURS, LIBRARY, BEFORE = "klamm", "library", "before"
Way = Callable[[], object]


@contextmanager
def plugins_of(checkout: Path) -> Iterator[None]:
    """Imports `klamm_plugins` from another checkout meanwhile."""
    mine = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("klamm_plugins")}
    sys.path.insert(0, str(checkout / "plugins"))
    try:
        yield
    finally:
        sys.path.remove(str(checkout / "plugins"))
        for name in [name for name in sys.modules if name.startswith("klamm_plugins")]:
            del sys.modules[name]
        sys.modules.update(mine)


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "customer": f"customer {n % 100}",
            "state": "ordered",
            "note": None if n % 3 else "a note of some words",
            "count": n % 7,
            "weight": n * 0.5,
            "price": Decimal(n * 100 + 99).scaleb(-2),
            "at": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(milliseconds=n * 1234),
            "paid": n % 2 == 0,
            "place": {"street": "Main street 5", "zip": 12345, "city": "Bern"},
        }
        for n in range(count)
    ]


def records(count: int) -> tuple[Any, list[Any]]:
    """Returns schema and structs, of the plugins that are imported just now."""
    schema, logical = import_module("klamm_plugins.schema"), import_module("klamm_plugins.logical")
    place = schema.SchemaBuilder.struct("acme.Place").field("street", schema.STRING)
    inner = place.field("zip", schema.INT32).field("city", schema.OPTIONAL_STRING).optional().build()
    builder = schema.SchemaBuilder.struct("acme.Order")
    fields = {
        "id": schema.INT64,
        "customer": schema.STRING,
        "state": schema.STRING,
        "note": schema.OPTIONAL_STRING,
        "count": schema.INT32,
        "weight": schema.FLOAT64,
        "price": logical.decimal_builder(2).build(),
        "at": logical.timestamp_builder().build(),
        "paid": schema.BOOLEAN,
        "place": inner,
    }
    for name, each in fields.items():
        builder.field(name, each)
    made = builder.build()
    found = rows(count)
    places = [row.pop("place") for row in found]
    return made, [
        schema.Struct(made, **row, place=schema.Struct(inner, **place))
        for row, place in zip(found, places, strict=True)
    ]


def converter_ways(name: str, registry: str, count: int) -> tuple[Way, Way, list[bytes]]:
    """Returns the ways to write and to read, and what is written, of the plugins that are imported just now."""
    module, cls = FORMATS[name]
    converter = getattr(import_module(f"klamm_plugins.converters.{module}"), cls)()
    converter.configure({} if module == "json" else {"schema.registry.url": registry}, is_key=False)
    schema, structs = records(count)
    raw = converter.from_connect_data_many("orders", schema, structs)
    converter.to_connect_columns("orders", raw)
    return (
        lambda: converter.from_connect_data_many("orders", schema, structs),
        lambda: converter.to_connect_columns("orders", raw),
        raw,
    )


def library_ways(name: str, raw: list[bytes], count: int) -> tuple[Way, Way]:
    if name == "Avro":
        return avro_ways(raw, count)
    if name == "Protobuf":
        return protobuf_ways(raw, count)
    texts = [value[5:] for value in raw] if name == "JSON Schema" else raw
    values = [orjson.loads(text) for text in texts]
    return lambda: [orjson.dumps(value) for value in values], lambda: [orjson.loads(text) for text in texts]


def avro_ways(raw: list[bytes], count: int) -> tuple[Way, Way]:
    writing = import_module("klamm_plugins.converters.avro_write")
    schema, _ = records(1)
    parsed = fastavro.parse_schema(writing.bare(writing.AvroSchema(schema).json))
    values = [fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) for value in raw]
    return (
        lambda: [fastavro.schemaless_writer(io.BytesIO(), parsed, value) for value in values],
        lambda: [fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) for value in raw],
    )


def protobuf_ways(raw: list[bytes], count: int) -> tuple[Way, Way]:
    model, pool, names = (
        import_module(f"klamm_plugins.converters.protobuf_{part}") for part in ("model", "pool", "names")
    )
    schema, _ = records(1)
    text = model.proto_text(schema, names.Settings())
    cls = pool.message_class(pool.read(text.text, {}).find(text.message))
    values = []
    for row in rows(count):
        ms = (row["at"] - EPOCH) // timedelta(milliseconds=1)
        unscaled = int(row["price"].scaleb(2)).to_bytes(8, "big", signed=True)
        price = {"value": unscaled, "precision": 8, "scale": 2}
        values.append({**row, "at": {"seconds": ms // 1000, "nanos": ms % 1000 * 10**6}, "price": price})
    return (
        lambda: [cls(**value).SerializeToString() for value in values],
        lambda: [cls.FromString(value[6:]) for value in raw],
    )


def measure(ways: dict[str, dict[str, Way]], rounds: int, count: int) -> dict[str, dict[str, float]]:
    """Returns medians in µs of CPU per record."""
    spent: dict[str, dict[str, list[float]]] = {
        what: {who: [] for who in by_whom} for what, by_whom in ways.items()
    }
    for turn in range(rounds + 1):
        for what, by_whom in ways.items():
            for who in list(by_whom)[:: 1 if turn % 2 else -1]:
                gc.collect()
                begin = time.process_time()
                by_whom[who]()
                if turn:  # the first one warms up
                    spent[what][who].append((time.process_time() - begin) / count * 1e6)
    return {
        what: {who: statistics.median(each) for who, each in by_whom.items()}
        for what, by_whom in spent.items()
    }


def table(found: dict[str, dict[str, float]]) -> str:
    earlier = any(BEFORE in row for row in found.values())
    head = [
        "",
        "klamm",
        "library alone",
        "klamm / library",
        *(["before", "before / klamm"] if earlier else []),
    ]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1)]
    for what, row in found.items():
        cells = [f"{row[OURS]:.2f}", f"{row[LIBRARY]:.2f}", f"{row[OURS] / row[LIBRARY]:.2f}"]
        if earlier:
            cells += [f"{row[BEFORE]:.2f}", f"{row[BEFORE] / row[OURS]:.1f}"]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    args = parser.parse_args()
    ways: dict[str, dict[str, Way]] = {}
    with SchemaRegistry() as registry:
        for name in FORMATS:
            write, read, raw = converter_ways(name, registry.url, args.records)
            library_write, library_read = library_ways(name, raw, args.records)
            ways[f"{name}, write"] = {OURS: write, LIBRARY: library_write}
            ways[f"{name}, read"] = {OURS: read, LIBRARY: library_read}
            if args.before is not None:
                with plugins_of(args.before):
                    before_write, before_read, before_raw = converter_ways(name, registry.url, args.records)
                assert before_raw == raw
                ways[f"{name}, write"][BEFORE] = before_write
                ways[f"{name}, read"][BEFORE] = before_read
        found = measure(ways, args.rounds, args.records)
    print(table(found))
    if args.write:
        about = (
            f"`python -m bench.codecs.compare --rounds {args.rounds} --records {args.records}`, {report.machine()}; CPU in µs per record "
            "of ten fields, medians of rounds that alternate in one process."
        )
        more = "The library alone neither checks values nor makes decimals, timestamps and structs; Protobuf's reads no field of its message, orjson parses the schema of each envelope."
        report.write("bench/codecs", f"## Converters with schemas\n\n{about} {more}\n\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
