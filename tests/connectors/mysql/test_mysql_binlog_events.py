"""Events of the binlog from their bytes: packets however they are cut, and what mysql-replication reads out of the same stream."""

import contextlib
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.mysql import binlog_events as ours
from klamm_connectors.mysql.position import Gtids, add_gtid
from klamm_plugins.errors import DataError, RetriableError

MB16 = 0xFFFFFF
SID = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


def framed(payloads, number=1):
    """Returns payloads as the server sends them."""
    found = b""
    for payload in payloads:
        parts = [payload[at : at + MB16] for at in range(0, len(payload) + 1, MB16)]
        for part in parts:
            found += len(part).to_bytes(3, "little") + bytes([number % 256]) + part
            number += 1
    return found


@given(st.lists(st.binary(max_size=40), max_size=300), st.data())
def test_packets_come_whole_however_they_are_received(payloads, data):
    stream = framed(payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    splitter, found = ours.PacketSplitter(1), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.packets(stream[begin:end])
    assert found == payloads


@pytest.mark.parametrize("size", [MB16 - 1, MB16, 2 * MB16 + 5])
def test_packets_of_16_mib_are_put_together(size):
    payloads = [bytes(size), b"next"]
    stream, splitter, found = framed(payloads), ours.PacketSplitter(1), []
    for at in range(0, len(stream), 1 << 16):
        found += splitter.packets(stream[at : at + (1 << 16)])
    assert found == payloads


def test_a_packet_out_of_turn_ends_the_stream():
    splitter = ours.PacketSplitter(255)
    assert splitter.packets(framed([b"a", b"b"], 255)) == [b"a", b"b"]
    with pytest.raises(EOFError, match="packet 0 instead of 1"):
        splitter.packets(framed([b"shutdown"], 0))


GTID = st.builds("{}-{}-{}".format, st.integers(0, 11), st.integers(1, 2), st.integers(1, 20))
SETS = st.builds("{}:{}".format, st.sampled_from([str(SID), str(uuid.UUID(int=7))]), st.integers(1, 12))


@given(st.lists(GTID, max_size=30) | st.lists(SETS, max_size=30), st.booleans())
def test_transactions_are_added_quickly_as_they_are_slowly(added, in_order):
    quick = slow = ""
    gtids = Gtids()
    for gtid in sorted(added, key=lambda g: (len(g), g)) if in_order else added:
        quick, slow = gtids.add(quick, gtid), add_gtid(slow, gtid)
        assert quick == slow


def event(kind, body, *, timestamp=1_700_000_000, server_id=9, log_pos=777, checksum=b"sum!"):
    size = 19 + len(body) + len(checksum)
    return struct.pack("<xIBIIIH", timestamp, kind, server_id, size, log_pos, 0) + body + checksum


def description(lengths, algorithm=1):
    return event(15, struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(lengths) + bytes([algorithm]))


def parser(lengths=(0,) * 40, algorithm=1):
    made = ours.EventParser()
    assert made.is_foreign(description(lengths, algorithm))
    return made


def mysql_gtid(times):
    return event(33, bytes([0]) + SID.bytes + struct.pack("<QBQQ", 42, 2, 1, 2) + times)


@pytest.mark.parametrize(
    ("times", "committed_us"),
    [
        (b"", 1_700_000_000_000_000),  # MySQL 5.7
        ((1_700_000_000_123_456).to_bytes(7, "little") + b"\xfc\x20\x01", 1_700_000_000_123_456),
        (
            (1_700_000_009_000_000 | 1 << 55).to_bytes(7, "little") + (1_700_000_000_654_321).to_bytes(7, "little"),
            1_700_000_000_654_321,
        ),
    ],
)  # fmt: skip
def test_a_gtid_of_mysql_has_the_time_of_the_commit_at_the_first_server(times, committed_us):
    found = parser().event(mysql_gtid(times))
    assert found == ours.GtidEvent(1_700_000_000, 9, 777, f"{SID}:42", False, False, committed_us)


def lengths_of_rows(more=0):
    return [8 + more if k in {23, 24, 25} else 10 + more if k in {30, 31, 32} else 0 for k in range(1, 41)]


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("algorithm", [0, 1])
@pytest.mark.parametrize(("kind", "op"), [(23, "c"), (24, "u"), (25, "d"), (30, "c"), (31, "u"), (32, "d")])
def test_rows_of_both_versions(kind, op, more, algorithm):
    checksum = b"sum!" if algorithm else b""
    body = (71).to_bytes(6, "little") + b"\1\0"
    body += (b"\x05\0" + bytes(more) + b"abc") if kind >= 30 else bytes(more)
    body += b"\xfc\x2c\x01"  # 300 columns
    bitmaps = (b"\xff" * 38, b"\xfe" * 38)[: 2 if op == "u" else 1]
    made = parser(lengths_of_rows(more), algorithm)
    data = event(kind, body + b"".join(bitmaps) + b"images", checksum=checksum)
    assert made.event(data) == ours.RowsEvent(1_700_000_000, 9, 777, op, 71, bitmaps, b"images")


def test_an_event_that_is_cut_off_is_told():
    with pytest.raises(DataError, match="type 23 before position 777 is cut off"):
        parser().event(event(23, b"", checksum=b""))


def test_what_tells_nothing_is_left_out_and_the_unknown_is_named():
    made = parser()
    assert made.event(event(27, b"f")) is None
    assert made.event(event(40, b"f")) == ours.OtherEvent(1_700_000_000, 9, 777, 40)


def test_a_table_map_is_read_once_for_each_id_and_file():
    made, one, other = parser(), event(19, bytes(6) + b"one"), event(19, bytes(6) + b"other")
    assert [made.is_foreign(e) for e in (one, one, other, one, one)] == [True, False, True, True, False]
    assert made.is_foreign(event(4, bytes(8) + b"file.2"))
    assert made.is_foreign(one)


STATEMENTS = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(300)) COMMENT 'é'",
    "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
    "UPDATE t SET v = REPEAT('x', 300) WHERE id = 1",
    "FLUSH BINARY LOGS",
    "DELETE FROM t",
    "XA START 'a', 'b'",
    "INSERT INTO t VALUES (4, 'x')",
    "XA END 'a', 'b'",
    "XA PREPARE 'a', 'b'",
    "XA COMMIT 'a', 'b'",
)


@pytest.mark.usefixtures("mariadb_server")
@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
def test_events_of_a_real_server_are_those_that_the_library_reads(source, mariadb, connect):
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication import event as theirs
    from pymysqlreplication import row_event as rows

    reader, gtid = binlog_reader(source, mariadb)
    with connect.cursor() as cursor:
        cursor.execute("SET autocommit = 1")
        for statement in STATEMENTS:
            cursor.execute(statement)
    ((end,),) = source.sql("SELECT @@gtid_binlog_pos")
    wanted = [
        theirs.MariadbGtidEvent, theirs.QueryEvent, theirs.XidEvent, theirs.XAPrepareEvent, rows.WriteRowsEvent,
        rows.UpdateRowsEvent, rows.DeleteRowsEvent, rows.TableMapEvent, theirs.RotateEvent,
    ]  # fmt: skip
    address = {"host": "127.0.0.1", "port": mariadb.port, "user": "root"}
    stream = BinLogStreamReader(
        address, 4712, is_mariadb=True, auto_position=gtid, only_events=wanted, enable_logging=False, blocking=True
    )  # fmt: skip
    expected, found, last = [], [], ""
    while last != end or not isinstance(expected[-1][0], ours.QueryEvent):
        one = stream.fetchone()
        last = getattr(one, "gtid", last)
        expected.append(of_library(one))
    stream.close()
    expected = list(without_known(expected))
    while len(found) < len(expected):
        one = reader.next(30)
        assert one is not None, found
        found.append(of_library(one.found)[0] if isinstance(one, ours.TableMapEvent) else one)
    reader.close()
    assert found == expected
    assert {type(e).__name__ for e in found} == {
        "GtidEvent", "QueryEvent", "CommitEvent", "PreparedEvent", "RowsEvent", "TableMapEvent", "RotateEvent",
    }  # fmt: skip


def without_known(events):
    """Leaves out table maps that were described before in their file."""
    known = set()
    for event, body in events:
        if isinstance(event, ours.RotateEvent):
            known.clear()
        if body not in known:
            yield event
        if body is not None:
            known.add(body)


def of_library(event):
    """Returns an event of the library as ours; and for table maps what makes them the same."""
    from pymysqlreplication import event as theirs
    from pymysqlreplication import row_event as rows

    packet = event.packet
    head = (event.timestamp, packet.server_id, packet.log_pos)
    match event:
        case theirs.MariadbGtidEvent():
            return ours.GtidEvent(*head, event.gtid, not event.flags & 1, bool(event.flags & 64), 0), None
        case theirs.QueryEvent():
            return ours.QueryEvent(*head, event.schema.decode(), event.query), None
        case theirs.XidEvent():
            return ours.CommitEvent(*head), None
        case theirs.XAPrepareEvent():
            name = f"x'{event.xid_gtrid.hex()}',x'{event.xid_bqual.hex()}',{event.xid_format_id}"
            return ours.PreparedEvent(*head, event.one_phase, name), None
        case theirs.RotateEvent():
            return ours.RotateEvent(*head, event.next_binlog), None
        case rows.TableMapEvent():
            body = bytes(packet.packet.get_all_data()[20 : 20 + int(event.event_size)])
            return ours.TableMapEvent(*head, event.table_id, body, None), body
    op = {"WriteRowsEvent": "c", "UpdateRowsEvent": "u", "DeleteRowsEvent": "d"}[type(event).__name__]
    present = (event.columns_present_bitmap,)
    if op == "u":
        present += (event.columns_present_bitmap2,)
    images = packet.read(int(event.event_size) - packet.read_bytes)
    return ours.RowsEvent(*head, op, event.table_id, present, images), None


def binlog_reader(source, mariadb, queue_size=256):
    """Returns a reader from the binlog's end on, and the GTID there."""
    from klamm_connectors.mysql import server
    from klamm_connectors.mysql.binlog import BinlogReader
    from klamm_connectors.mysql.config import parse
    from klamm_connectors.mysql.position import Position

    ((gtid,),) = source.sql("SELECT @@gtid_binlog_pos")
    settings = parse(
        {"database.hostname": "127.0.0.1", "database.port": str(mariadb.port), "database.user": "root", "topic.prefix": "p"}
    )  # fmt: skip
    asked = server.Server(settings.connection)
    with asked.connect() as connection:
        facts = asked.facts(connection)
    return BinlogReader(asked, facts, 4713, Position(gtid, "", 4), queue_size), gtid


@pytest.mark.usefixtures("mariadb_server")
def test_what_came_before_a_broken_connection_is_given_out(source, mariadb):
    reader, _ = binlog_reader(source, mariadb, queue_size=2)  # the reader waits for room
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    for number in range(20):
        source.sql("INSERT INTO t VALUES (%s)", number)
    rows = []
    while not rows:
        one = reader.next(30)
        rows += [one] if isinstance(one, ours.RowsEvent) else []
    ((dump,),) = source.sql("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'")
    source.sql(f"KILL {dump}")
    with contextlib.suppress(RetriableError):
        while (one := reader.next(30)) is not None:
            rows += [one] if isinstance(one, ours.RowsEvent) else []
    assert len({r.log_pos for r in rows}) == len(rows)
    with pytest.raises(RetriableError, match=r"binlog of 127\.0\.0\.1"):
        reader.next(0)
    reader.close()
    assert reader.waiting == 0


@pytest.mark.usefixtures("mariadb_server")
def test_a_reader_that_waits_for_room_is_closed_at_once(source, mariadb):
    reader, _ = binlog_reader(source, mariadb, queue_size=1)
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t VALUES (1)")
    assert reader.next(30) is not None
    reader.close()
    assert not reader._thread.is_alive()
