"""Every character of every character set of the server: a snapshot and the binlog give the same text."""

import pytest

from klamm_connectors.mysql.charsets import decoder

pytestmark = pytest.mark.usefixtures("mariadb_server")

BYTES = " UNION ALL ".join(["SELECT '00' AS h", *(f"SELECT '{byte:02X}'" for byte in range(1, 256))])
PAIRS = f"SELECT CONCAT(a.h, b.h) AS code FROM ({BYTES}) a CROSS JOIN ({BYTES}) b WHERE a.h >= '80'"
TRIPLES = f"SELECT CONCAT('8F', a.h, b.h) AS code FROM ({BYTES}) a CROSS JOIN ({BYTES}) b WHERE a.h >= '80' AND b.h >= '80'"
UNICODE = {"utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"}
CODES = {
    1: f"SELECT h AS code FROM ({BYTES}) a",
    2: PAIRS,
    3: TRIPLES,
}


def test_snapshot_and_binlog_read_every_character_alike(source):
    sets = [(name, size) for name, _, _, size in source.sql("SHOW CHARACTER SET") if name != "binary"]
    for name, size in sets:
        source.sql(f"CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT CHARACTER SET {name}, c CHAR(2) CHARACTER SET {name})")  # fmt: skip
        rows = ", ".join(f"({text}, 'ab')" for text in texts(source, name, size))
        source.sql(f"INSERT INTO {name} (v, c) VALUES {rows}")
    count = sum(source.sql(f"SELECT COUNT(*) FROM {name}")[0][0] for name, _ in sets)
    started = source()
    snapshot = started.read(count)
    for name, _ in sets:
        source.sql(f"INSERT INTO {name} SELECT id + 10000, v, c FROM {name}")
    binlog = started.read(count)
    found = [{}, {}]
    for place, records in enumerate((snapshot, binlog)):
        for record in records:
            row = record.value["after"]
            found[place][record.topic.rpartition(".")[2], row["id"] % 10_000] = (row["v"], row["c"])
    different = {key for key, text in found[0].items() if found[1][key] != text}
    assert not different, sorted({name for name, _ in different})
    assert len({name for name, _ in found[0]}) == len(sets) > 30


def texts(source, name, size):
    """Returns expressions for texts that together have all characters."""
    if name in UNICODE:
        blocks = [*range(0, 0x10000, 256), *([0x1F600] if size == 4 else [])]
        blocks = ["".join(chr(c) for c in range(b, b + 256) if not 0xD800 <= c < 0xE000) for b in blocks]
        return [f"CONVERT(X'{block.encode().hex()}' USING utf8mb4)" for block in blocks if block]
    codes = []
    for length in range(1, size + 1):
        raw = f"CONVERT(UNHEX(code) USING {name})"
        codes += [c for (c,) in source.sql(f"SELECT code FROM ({CODES[length]}) c WHERE HEX({raw}) = code")]
    assert len(codes) >= 128
    return [f"CONVERT(X'{''.join(codes[i : i + 200])}' USING {name})" for i in range(0, len(codes), 200)]


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("euckr", b"\x8c\x63", "똠"),
        ("eucjpms", b"\xad\xa1", "①"),
        ("eucjpms", b"\xa1\xc1", "～"),  # noqa: RUF001
        ("dec8", b"\xd7", "Œ"),
    ],
)
def test_characters_that_python_lacks_or_reads_otherwise(source, charset, raw, text):
    source.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET {charset})")
    started = source(snapshot__mode="no_data")
    started.task.poll()
    source.sql(f"INSERT INTO t VALUES (1, CONVERT(X'{raw.hex()}' USING {charset}))")
    assert started.read(1)[0].value["after"]["v"] == text


def test_bytes_that_are_no_character_are_question_marks():
    decode = decoder({b"a": "a", b"\n": "\n", b"\x81\x40": "ー", b"\x8f\xa1\xa1": "丂"})
    assert decode(b"a\x81\x40\n\x8f\xa1\xa1\x8f\xa1\xa2\xff\x81") == "aー\n丂???"
