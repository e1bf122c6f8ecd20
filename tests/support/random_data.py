"""Random schemas with values of theirs, as envelopes of the JsonConverter, and random questions for transforms.

Made by a `random.Random`, so that a seed repeats them; `payload` is what JSON holds, as `support.transforms` reads it.
"""

from __future__ import annotations

import base64
import random
import struct
from typing import Any

from support.transforms import TRANSFORMS, Question

LOGICAL = "org.apache.kafka.connect.data."
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_WORDS = ("a", "b", "c", "id", "name", "x.y", "ü", "with space", "`", "ts")
_TEXTS = (
    "",
    "a",
    "5",
    "-12",
    "1.5",
    "true",
    "ä€😀",
    'quo"te\\',
    "2020-01-02",
    "2020-02-29 13:05:09.250",
    "NaN",
    " 7 ",
    "x" * 40,
)
_DOUBLES = (
    0.0,
    1.0,
    -1.5,
    0.1,
    1e7,
    1e-3,
    1e10,
    123456.789,
    5e-324,
    1.7976931348623157e308,
    -2.2250738585072014e-308,
)

Data = dict[str, Any]


class RandomData:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def envelope(self, depth: int = 3) -> Data:
        schema = self.schema(depth)
        return {"schema": schema, "payload": self.payload(schema)}

    def struct_envelope(self) -> Data:
        schema = self.struct(2) | {"optional": self.rng.random() < 0.2}
        return {"schema": schema, "payload": self.payload(schema)}

    def plain(self, depth: int = 2) -> Any:
        """Returns a value without a schema."""
        kind = self.rng.randrange(8 if depth else 6)
        match kind:
            case 0:
                return None
            case 1:
                return self.rng.random() < 0.5
            case 2:
                return self.rng.choice([0, 1, -1, 300, 2**31, -(2**63), self.rng.getrandbits(62)])
            case 3:
                return self.rng.choice(_DOUBLES)
            case 6:
                return [self.plain(depth - 1) for _ in range(self.rng.randrange(3))]
            case 7:
                return self.plain_map(depth - 1)
            case _:
                return self.rng.choice(_TEXTS)

    def plain_map(self, depth: int = 2) -> dict[str, Any]:
        return {name: self.plain(depth) for name in self.rng.sample(_WORDS, self.rng.randrange(5))}

    def schema(self, depth: int) -> Data:
        kinds = [
            *BITS,
            "float",
            "double",
            "boolean",
            "string",
            "bytes",
            "Decimal",
            "Date",
            "Time",
            "Timestamp",
        ]
        if depth:
            kinds += ["array", "map", "struct", "struct"]
        kind = self.rng.choice(kinds)
        match kind:
            case "Decimal":
                scale = self.rng.choice([0, 1, 2, 9, 30, -3])
                made = self._logical("bytes", kind, parameters={"scale": str(scale)})
            case "Date" | "Time":
                made = self._logical("int32", kind)
            case "Timestamp":
                made = self._logical("int64", kind)
            case "array":
                made = {"type": kind, "items": self.schema(depth - 1)}
            case "map":
                keys = {"type": "string"} if self.rng.random() < 0.7 else self.schema(0)
                made = {"type": kind, "keys": keys | {"optional": False}, "values": self.schema(depth - 1)}
            case "struct":
                made = self.struct(depth)
            case _:
                made = {"type": kind}
        if kind not in {"Decimal", "Date", "Time", "Timestamp"}:
            made |= self._decoration()
        made["optional"] = self.rng.random() < 0.4
        # A default of a map or a float has more than one way to be written.
        if kind in {*BITS, "string", "boolean", "bytes", "Date"} and self.rng.random() < 0.25:
            made["default"] = self.payload({**made, "optional": False})
        return made

    def struct(self, depth: int) -> Data:
        names = self.rng.sample(_WORDS, self.rng.randrange(5))
        return {
            "type": "struct",
            "optional": False,
            "fields": [{"field": n, **self.schema(depth - 1)} for n in names],
        }

    def _logical(self, base: str, name: str, **more: Any) -> Data:
        return {"type": base, "name": LOGICAL + name, "version": 1, **more}

    def _decoration(self) -> Data:
        some: Data = {}
        if self.rng.random() < 0.15:
            some["name"] = self.rng.choice(["acme.Thing", "n", "ns.Ü"])
        if self.rng.random() < 0.15:
            some["version"] = self.rng.choice([1, 2, 2**31 - 1])
        if self.rng.random() < 0.1:
            some["doc"] = "what it is"
        if self.rng.random() < 0.1:
            some["parameters"] = {"k": "v", "m": ""}
        return some

    def payload(self, schema: Data) -> Any:
        if schema["optional"] and self.rng.random() < 0.3:
            return None
        name = schema.get("name", "")
        if name.startswith(LOGICAL):
            return self._logical_payload(name.removeprefix(LOGICAL))
        match schema["type"]:
            case "int8" | "int16" | "int32" | "int64":
                limit = 1 << (BITS[schema["type"]] - 1)
                return self.rng.choice([0, 1, -1, limit - 1, -limit, self.rng.randrange(-limit, limit)])
            case "float":
                return struct.unpack(
                    "f", struct.pack("f", self.rng.choice([0.0, 0.5, -1.5, 0.1, 3e38, 1e-40, 1e7]))
                )[0]
            case "double":
                return self.rng.choice(_DOUBLES)
            case "boolean":
                return self.rng.random() < 0.5
            case "string":
                return self.rng.choice(_TEXTS)
            case "bytes":
                return base64.b64encode(self.rng.randbytes(self.rng.randrange(4))).decode()
            case "array":
                return [self.payload(schema["items"]) for _ in range(self.rng.randrange(3))]
            case "map":
                return self._map(schema)
            case _:
                return {f["field"]: self.payload(f) for f in schema["fields"]}

    def _map(self, schema: Data) -> Any:
        pairs = {}
        for _ in range(self.rng.randrange(3)):
            key = self.payload(schema["keys"])
            pairs[repr(key)] = (key, self.payload(schema["values"]))
        if schema["keys"]["type"] == "string":
            return dict(pairs.values())
        return [list(pair) for pair in pairs.values()]

    def _logical_payload(self, name: str) -> Any:
        match name:
            case "Decimal":
                unscaled = self.rng.choice([0, 1, -1, 127, 128, -128, -129, 10**40, self.rng.getrandbits(70)])
                bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
                return base64.b64encode(unscaled.to_bytes(bits // 8 + 1, "big", signed=True)).decode()
            case "Date":
                return self.rng.choice([0, 1, -1, 18_000, -141_427, 2_932_896])
            case "Time":
                return self.rng.choice([0, 1, 86_399_999, 3_661_001])
            case _:
                return self.rng.choice(
                    [0, 1, -1, 1_600_000_000_123, -12_219_292_800_000, 253_402_300_799_999]
                )

    def question(self) -> Question:
        """Returns a transform with a configuration, and a record that may or may not fit."""
        name, config = self._transform()
        record: Data = {
            "topic": self.rng.choice(["orders", "a-b", "x"]),
            "timestamp": self.rng.choice([None, 0, 1_600_000_000_123]),
        }
        for part in ("key", "value"):
            kind = self.rng.random()
            if kind < 0.45:
                record[part] = self.struct_envelope()
            elif kind < 0.75:
                record[part] = {"schema": None, "payload": self.plain_map()}
            elif kind < 0.9:
                record[part] = self.envelope(1)
        if self.rng.random() < 0.5:
            record |= {"offset": self.rng.randrange(100), "partition": self.rng.randrange(4)}
        record["headers"] = [[self.rng.choice("hij"), self.envelope(1)] for _ in range(self.rng.randrange(3))]
        return {"transform": TRANSFORMS + name, "config": config, "record": record}

    def _transform(self) -> tuple[str, dict[str, str]]:
        pick, some = (
            self.rng.choice,
            lambda n=3: ",".join(
                self.rng.sample(("a", "b", "c", "id", "name", "ts"), self.rng.randrange(1, n + 1))
            ),
        )
        part = pick(("$Key", "$Value"))
        fill = {} if self.rng.random() < 0.5 else {"replace.null.with.default": pick(("true", "false"))}
        kinds = ("int8", "int16", "int32", "int64", "float64", "boolean", "string")
        match self.rng.randrange(14):
            case 0:
                spec = ",".join(f"{name}:{pick(kinds)}" for name in some().split(","))
                return "Cast" + part, {"spec": spec, **fill}
            case 1:
                return "Cast" + part, {"spec": pick(kinds), **fill}
            case 2:
                return "ExtractField" + part, {
                    "field": pick(("a", "id", "a.b", "name.a", "`x.y`.a")),
                    "field.syntax.version": pick(("V1", "V2")),
                    **fill,
                }
            case 3:
                return "Flatten" + part, {"delimiter": pick((".", "_"))}
            case 4:
                fields = some()
                headers = ",".join(f"h{i}" for i in range(len(fields.split(","))))
                return "HeaderFrom" + part, {
                    "fields": fields,
                    "headers": headers,
                    "operation": pick(("move", "copy")),
                    **fill,
                }
            case 5:
                return "HoistField" + part, {"field": pick(("a", "h"))}
            case 6:
                return "InsertField" + part, {
                    "topic.field": pick(("t!", "a", "t?")),
                    "timestamp.field": "tt",
                    "partition.field": "p",
                    **fill,
                }
            case 7:
                return "MaskField" + part, {"fields": some(), **fill}
            case 8:
                return "MaskField" + part, {
                    "fields": some(1),
                    "replacement": pick(("5", "300", "x", "1.5")),
                    **fill,
                }
            case 9:
                return "ReplaceField" + part, {"exclude": some(2), **fill}
            case 10:
                return "ReplaceField" + part, {"include": some(), "renames": "id:key,name:b2", **fill}
            case 11:
                return "ValueToKey", {"fields": some(2), **fill}
            case 12:
                return "DropHeaders", {"headers": pick(("h", "i,j"))}
            case _:
                target = pick(("unix", "Timestamp", "Date", "Time", "string"))
                return "TimestampConverter" + part, {
                    "field": pick(("", "ts", "a")),
                    "target.type": target,
                    "format": "yyyy-MM-dd HH:mm:ss.SSS",
                    **fill,
                }
