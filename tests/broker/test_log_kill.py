"""kill -9 in the middle of appends: what was acknowledged is there, and the directory can be used at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from klamm_broker.log.log_manager import LogManager
from klamm_kafka.wire.batch import Record, encode_batch, iter_headers

pytestmark = pytest.mark.usefixtures("processes")

NOW = 1_800_000_000_000

WRITER = """
import sys
from pathlib import Path
from klamm_broker.log.config import LogConfig
from klamm_broker.log.log_manager import LogManager
from klamm_kafka.wire.batch import Record, encode_batch

now = int(sys.argv[2])
manager = LogManager(Path(sys.argv[1]), now_ms=now)
if "t" not in manager.topics:
    manager.create_topic("t", 1, now_ms=now)
log = manager.get("t", 0)
log.config = LogConfig(segment_bytes=20_000, index_interval_bytes=500, flush_messages=97, retention_ms=-1)
n = log.log_end_offset
while True:
    batch = encode_batch(
        [Record(timestamp=now, value=b"%d " % n * (n % 50))], producer_id=1, producer_epoch=0, base_sequence=n
    )
    acknowledged = log.append(batch, now_ms=now)
    manager.tick_flush(now)
    n += 1
    sys.stdout.write(f"{acknowledged.last_offset}\\n")
    sys.stdout.flush()
    if n % 300 == 0:
        manager.tick_checkpoints()
"""


def test_acknowledged_records_survive(tmp_path):
    chance = random.Random(7)
    last = -1
    for life in range(1, 6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(NOW)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert writer.stdout is not None
            last = int(writer.stdout.readline())
            stop = time.monotonic() + chance.uniform(0.01, 0.3)
            while time.monotonic() < stop or last < 100 * life:
                last = int(writer.stdout.readline())
        finally:
            writer.send_signal(signal.SIGKILL)
            rest, _ = writer.communicate(timeout=60)
        complete = rest.rpartition("\n")[0].splitlines()
        last = int(complete[-1]) if complete else last
    manager = LogManager(tmp_path, now_ms=NOW)
    log = manager.get("t", 0)
    assert log.log_end_offset > last > 100
    assert len(log.segment_base_offsets) > 2
    offset = 0
    while piece := log.read(offset, 10_000, up_to=log.high_watermark):
        for _, header in iter_headers(os.pread(piece.fd, piece.size, piece.position)):
            assert header.base_offset == header.base_sequence == offset
            offset = header.next_offset
    assert offset == log.log_end_offset
    again = encode_batch(
        [Record(timestamp=NOW, value=b"retry")], producer_id=1, producer_epoch=0, base_sequence=offset - 1
    )
    assert log.append(again, now_ms=NOW).duplicate, (
        "a producer that retries after the crash writes nothing twice"
    )
    manager.close()
