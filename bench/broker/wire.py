"""Encoding and decoding the metadata of 1,000 partitions: our compiled codecs against kio's.

    python bench/broker/wire.py [--rounds 40]

Both in one process, alternating; the best round counts, and the ratio is what to read: kio's encoder is
Python as ours is, its decoder is native code. Also prints what one record batch costs. Last numbers (2 shared
cores, Python 3.11, kio 0.6.5):

    metadata v12, 1,000 partitions     ours        kio    ratio
    encode                            0.54 ms    4.82 ms     8.9
    decode                            0.74 ms    0.31 ms     0.4
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Callable

from kio.schema.metadata.v12.response import MetadataResponse as KioResponse
from kio.serial import entity_reader, entity_writer

from klamm_kafka.wire.batch import Record, check_crc, decode_records, encode_batch, read_header
from klamm_kafka.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSION = 12


def metadata(partitions: int) -> MetadataResponse:
    nodes = [1, 2, 3]
    return MetadataResponse(
        cluster_id="cluster",
        controller_id=1,
        brokers=[MetadataResponseBroker(node_id=i, host=f"broker-{i}.example", port=9092) for i in nodes],
        topics=[
            MetadataResponseTopic(
                name="topic",
                topic_id=bytes(range(16)),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=i, leader_id=1, leader_epoch=3, replica_nodes=nodes, isr_nodes=nodes
                    )
                    for i in range(partitions)
                ],
            )
        ],
    )


def best_ms(rounds: int, *functions: Callable[[], object]) -> list[float]:
    """The best time of each function, called in turn."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return [seconds * 1e3 for seconds in best]


def compare_with_kio(rounds: int) -> None:
    message = metadata(1000)
    encoded = message.encode(VERSION)
    read, write = entity_reader(KioResponse), entity_writer(KioResponse)
    theirs = kio_decode(read, encoded)
    assert kio_encode(write, theirs) == encoded
    rows = {
        "encode": best_ms(rounds, lambda: message.encode(VERSION), lambda: kio_encode(write, theirs)),
        "decode": best_ms(
            rounds, lambda: MetadataResponse.decode(encoded, VERSION), lambda: kio_decode(read, encoded)
        ),
    }
    print(f"metadata v{VERSION}, 1,000 partitions     ours        kio    ratio")
    for name, (ours, kio) in rows.items():
        print(f"{name:<30}{ours:8.2f} ms{kio:8.2f} ms{kio / ours:8.1f}")


def kio_encode(write: Callable[[io.BytesIO, object], None], entity: object) -> bytes:
    buffer = io.BytesIO()
    write(buffer, entity)
    return buffer.getvalue()


def kio_decode(read: Callable[[bytes, int], tuple[object, int]], encoded: bytes) -> object:
    return read(encoded, 0)[0]


def batches(rounds: int) -> None:
    rows = [Record(timestamp=1_700_000_000_000 + i, key=b"key-%d" % i, value=b"v" * 100) for i in range(1000)]
    batch = encode_batch(rows)
    header = read_header(batch)
    names = ("encode 1,000 records", "decode 1,000 records", f"check the CRC of {len(batch)} bytes")
    times = best_ms(
        rounds, lambda: encode_batch(rows), lambda: decode_records(batch), lambda: check_crc(batch, 0, header)
    )
    print("\nrecord batch")
    for name, took in zip(names, times, strict=True):
        print(f"{name:<34}{took:8.3f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    compare_with_kio(rounds)
    batches(rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
