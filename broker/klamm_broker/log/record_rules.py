"""Looks at the records of a batch, for the rules that its header cannot answer: keys of compacted topics, timestamps out of range.

6 KB of a batch can be 200 MB of records. What is small is looked at at once; what is not is unpacked in a job and looked at
in steps. Nothing of the records is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from klamm_broker.log.errors import CorruptMessage, InvalidRecordBatch, InvalidTimestamp, LogError
from klamm_broker.log.steps import Steps, finish
from klamm_kafka.wire.batch import COMPRESSION_MASK, NO_TIMESTAMP, BatchHeader, sights, unpacked
from klamm_kafka.wire.compression import give_back
from klamm_kafka.wire.errors import CorruptRecord, InvalidRecord, UnpackedTooLarge
from klamm_kafka.wire.varint import Buffer

if TYPE_CHECKING:
    from klamm_broker.log.config import LogConfig

_R = TypeVar("_R")
SMALL_BYTES: Final = 64 * 1024
"""Records of this size together take some milliseconds at worst, to look at or to pack."""
UNPACKED_AT_ONCE_BYTES: Final = 256 * 1024
"""Records that are unpacked without a thread: a millisecond, or less."""
PACKED_AT_ONCE_BYTES: Final = 64 * 1024
"""A larger compressed batch is not tried at once."""
NAMED_MAX: Final = 1_000
"""Faulty records that a refusal names: a batch could have millions of them."""


class Rules(NamedTuple):
    """The rules for the records of one batch. Its header says that records are later than `latest`, if that is given."""

    config: LogConfig
    now_ms: int
    latest: int | None
    where: str


def unpacked_at_once(data: Buffer, position: int, header: BatchHeader) -> Buffer | None:
    """Returns a batch's decompressed records; None if to unpack them could take long."""
    if not header.attributes & COMPRESSION_MASK:
        return unpacked(data, position, header)
    if header.size > PACKED_AT_ONCE_BYTES:
        return None
    try:
        return unpacked(data, position, header, limit=UNPACKED_AT_ONCE_BYTES)
    except UnpackedTooLarge:
        return None


def looking_inside(
    data: Buffer, position: int, header: BatchHeader, look: Callable[[Buffer], Steps[_R]]
) -> Steps[_R]:
    """Does what `look` does with a batch's decompressed records, in steps. `data` must stay as it is.

    Jobs unpack much, and free it: the system takes 30 ms for 100 MB.
    """
    body = unpacked_at_once(data, position, header)
    if body is not None:
        return (yield from look(body))
    found: list[Buffer] = []
    yield lambda: found.append(unpacked(data, position, header))
    body = found.pop()
    try:
        result = yield from look(body)
    except Exception:
        yield partial(give_back, body)
        raise
    yield partial(give_back, body)
    return result


def check(data: Buffer, position: int, header: BatchHeader, rules: Rules) -> tuple[bool, Buffer | None]:
    """Checks the records of a batch if they are small. Returns whether that is done, and the decompressed ones if there are some already.

    Raises a LogError.
    """
    if header.size > SMALL_BYTES:
        return False, None
    try:
        body = unpacked_at_once(data, position, header)
        if body is None or len(body) > SMALL_BYTES:
            return False, body
        finish(_judging(body, header, rules))
    except (CorruptRecord, InvalidRecord) as e:
        raise _unreadable(e, rules.where) from e
    return True, None


def checking(
    data: Buffer, position: int, header: BatchHeader, rules: Rules, body: Buffer | None = None
) -> Steps[None]:
    """Checks the records of a batch in steps. `data` must stay as it is. Raises a LogError."""
    try:
        if body is not None:
            yield from _judging(body, header, rules)
        else:
            yield from looking_inside(data, position, header, lambda body: _judging(body, header, rules))
    except (CorruptRecord, InvalidRecord) as e:
        raise _unreadable(e, rules.where) from e


def _unreadable(error: CorruptRecord | InvalidRecord, where: str) -> LogError:
    kind = CorruptMessage if isinstance(error, CorruptRecord) else InvalidRecordBatch
    return kind(f"{where}: {error}")


def _judging(body: Buffer, header: BatchHeader, rules: Rules) -> Steps[None]:
    config, latest = rules.config, rules.latest
    compact = config.compact
    oldest = rules.now_ms - config.message_timestamp_before_max_ms
    keyless: list[int] = []
    early: list[tuple[int, int]] = []
    late: list[tuple[int, int]] = []
    index = 0
    for seen in sights(body, header):
        rows = enumerate(seen, index)
        if latest is not None:
            late += [(n, timestamp) for n, (_, timestamp, _) in rows if timestamp > latest]
        else:
            if compact:
                keyless += [n for n, (_, _, keyed) in rows if not keyed]
                rows = enumerate(seen, index)
            if not config.log_append_time and len(early) < NAMED_MAX:
                early += [
                    (n, timestamp) for n, (_, timestamp, _) in rows if NO_TIMESTAMP < timestamp < oldest
                ]
        if len(late) >= NAMED_MAX or len(keyless) >= NAMED_MAX:
            break
        index += len(seen)
        yield None
    if latest is not None:
        raise _too_late(header, late, latest, rules.where)
    if keyless:
        raise _without_key(keyless, rules.where)
    if early:
        raise _too_early(early, rules)


def _too_late(header: BatchHeader, late: list[tuple[int, int]], latest: int, where: str) -> LogError:
    error = InvalidTimestamp(
        f"{where}: timestamp {max(header.max_timestamp, header.base_timestamp)} is after {latest}, the broker's clock "
        "and message.timestamp.after.max.ms"
    )
    error.records = tuple(
        (index, f"timestamp {timestamp} is after {latest}") for index, timestamp in late[:NAMED_MAX]
    )
    return error


def _without_key(keyless: list[int], where: str) -> LogError:
    why = f"{where}: compacted topic cannot accept message without key"
    error = InvalidRecordBatch(f"{why} (record {keyless[0]})")
    error.records = tuple((index, why) for index in keyless[:NAMED_MAX])
    return error


def _too_early(early: list[tuple[int, int]], rules: Rules) -> LogError:
    most = rules.config.message_timestamp_before_max_ms
    oldest = rules.now_ms - most
    error = InvalidTimestamp(
        f"{rules.where}: timestamp {early[0][1]} is behind the broker's clock ({rules.now_ms}) by more than "
        f"message.timestamp.before.max.ms={most}"
    )
    error.records = tuple(
        (index, f"timestamp {timestamp} is before {oldest}") for index, timestamp in early[:NAMED_MAX]
    )
    return error
