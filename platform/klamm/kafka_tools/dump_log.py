"""`kafka-dump-log`: print log segments, indexes and snapshots."""

from __future__ import annotations

import sys
from typing import Final

from klamm.kafka_tools.options import Option, Options, UsageError
from klamm.logdump.decoders import ABSENT, Decoder, offsets, plain, share_group_state, transaction_log
from klamm.logdump.errors import DumpError
from klamm.logdump.indexes import Mode
from klamm.logdump.log_file import WHOLE
from klamm.logdump.run import MAX_MESSAGE_SIZE, DumpOptions, dump

SUMMARY = "print what is in the files of a partition."
_STRING: Final = "org.apache.kafka.tools.api.StringDecoder"
OPTIONS = (
    Option("files", "REQUIRED: The files, by commas.", "FILE,..."),
    Option("print-data-log", "Print keys and values; any decoder option does too."),
    Option("deep-iteration", "Print records, not only batches; --print-data-log does too."),
    Option("verify-index-only", "Compare indexes with their log, print no entries."),
    Option("index-sanity-check", "Only check what decides at a start whether an index is rebuilt."),
    Option("max-message-size", "The largest batch.", "BYTES", default=str(MAX_MESSAGE_SIZE)),
    Option("max-bytes", "Read no further than this.", "BYTES", default=str(WHOLE)),
    Option("value-decoder-class", "How values are shown.", "CLASS", optional=True, default=_STRING),
    Option("key-decoder-class", "How keys are shown.", "CLASS", optional=True, default=_STRING),
    Option("offsets-decoder", "Records are those of __consumer_offsets."),
    Option("transaction-log-decoder", "Records are those of __transaction_state."),
    Option("cluster-metadata-decoder", "Not here: Klamm has no log of cluster metadata."),
    Option("remote-log-metadata-decoder", "Not here: Klamm has no tiered storage."),
    Option("share-group-state-decoder", "Records are those of __share_group_state."),
    Option("skip-record-metadata", "Print contents without the records' metadata, and no control records."),
)
_PRINTING: Final = (
    "print-data-log", "offsets-decoder", "transaction-log-decoder", "share-group-state-decoder", "value-decoder-class", "key-decoder-class",
)  # fmt: skip


def run(options: Options) -> int:
    options.require("files")
    for name, why in ABSENT.items():
        if options.has(name):
            raise UsageError(f"--{name}: {why}")
    printing = any(options.has(name) for name in _PRINTING)
    return dump(
        options.text("files").split(","),
        DumpOptions(
            deep=printing or options.has("deep-iteration"),
            decoder=_decoder(options) if printing else None,
            skip_metadata=options.has("skip-record-metadata"),
            mode=Mode(verify=options.has("verify-index-only"), sanity=options.has("index-sanity-check")),
            max_message_size=options.number("max-message-size") or 0,
            max_bytes=options.number("max-bytes") or 0,
        ),
        sys.stdout,
        sys.stderr,
    )


def _decoder(options: Options) -> Decoder:
    if options.has("offsets-decoder"):
        return offsets()
    if options.has("transaction-log-decoder"):
        return transaction_log()
    if options.has("share-group-state-decoder"):
        return share_group_state()
    try:
        return plain(options.text("key-decoder-class"), options.text("value-decoder-class"))
    except DumpError as e:
        raise UsageError(str(e)) from None
