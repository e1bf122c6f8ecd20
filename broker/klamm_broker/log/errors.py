"""The refusals of a log, each with the error code that goes on the wire."""

from __future__ import annotations

from typing import ClassVar

from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode


class LogError(KlammError):
    """A request that a log refuses, or a log that cannot serve.

    `records` names the faulty records, by their index in the batch, each with a sentence (KIP-467).
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    records: tuple[tuple[int, str], ...] = ()


class CorruptMessage(LogError):
    """Bytes that are not an intact record batch."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecordBatch(LogError):
    """An intact batch whose content breaks a rule."""

    code = ErrorCode.INVALID_RECORD


class UnsupportedMessageFormat(LogError):
    """A message set of magic 0 or 1."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class RecordTooLarge(LogError):
    """A batch over `max.message.bytes`."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLarge(LogError):
    """A record set that does not fit into one segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTimestamp(LogError):
    """A record timestamp too far from the broker's clock."""

    code = ErrorCode.INVALID_TIMESTAMP


class PolicyViolation(LogError):
    """Records that the topic's state does not permit. Clients take it as final."""

    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequence(LogError):
    """A gap in the sequence numbers of an idempotent producer."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(LogError):
    """A producer that a newer instance with the same id has replaced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(LogError):
    """A batch outside of its producer's open transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionalIdMissing(LogError):
    """A transactional batch in a request without a transactional id: nobody could check its producer."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class TransactionCoordinatorFenced(LogError):
    """A transaction marker of a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnknownDirectory(LogError):
    """A path that is not one of the broker's log directories."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class OffsetOutOfRange(LogError):
    """An offset below the log start offset or above the log end offset."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class StorageError(LogError):
    """The disk failed an operation; the log refuses appends until it succeeds."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DirectoryError(KlammError):
    """A log directory that cannot be used: locked, of another cluster, or damaged. The message says what to do."""


class UnusableDirectory(DirectoryError):
    """A log directory that the operating system does not let us use: missing, read-only, or its disk has failed."""


class CorruptFile(KlammError):
    """A checkpoint, index or snapshot with untrustworthy content. It is rebuilt, or named to the user."""
