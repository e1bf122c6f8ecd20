"""`klamm log`: the files of partitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import reported

app = typer.Typer(help="Look into the files of partitions.", no_args_is_help=True)
_STRING = "org.apache.kafka.tools.api.StringDecoder"


@app.callback()
def _log() -> None:
    """Keeps `dump` a sub-command while it is the only one."""


@app.command()
def dump(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help=".log, .index, .timeindex, .snapshot and .txnindex files."),
    ] = None,
    files_option: Annotated[
        str | None, typer.Option("--files", metavar="FILE,...", help="The same, by commas.")
    ] = None,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print keys and values; any decoder option does too.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Print records, not only batches.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Compare indexes with their log, print no entries.")
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option("--index-sanity-check", help="Only check what decides whether an index is rebuilt."),
    ] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Records are those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Records are those of __transaction_state.")
    ] = False,
    value_decoder: Annotated[
        str | None,
        typer.Option(
            "--value-decoder-class",
            help="StringDecoder (the default), IntegerDecoder, LongDecoder, DefaultDecoder (hex).",
        ),
    ] = None,
    key_decoder: Annotated[str | None, typer.Option("--key-decoder-class", help="The same for keys.")] = None,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=0, help="Read no further than this.")] = 2**31
    - 1,
    max_message_size: Annotated[
        int, typer.Option("--max-message-size", min=0, help="The largest batch, in bytes.")
    ] = 5 * 1024 * 1024,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Print contents only, and no control records.")
    ] = False,
) -> None:
    """Print batches, records, index entries, producers, aborted transactions (Kafka's DumpLogSegments).

    Memory does not grow with the files; those of a running broker may be read.
    """
    names = [*map(str, files or []), *(files_option.split(",") if files_option else [])]
    if not names:
        raise typer.BadParameter("name at least one file", param_hint="FILE")
    if offsets_decoder and transaction_log_decoder:
        raise typer.BadParameter("give one decoder", param_hint="--transaction-log-decoder")
    with reported():
        from klamm.logdump.decoders import offsets, plain, transaction_log
        from klamm.logdump.errors import DumpError
        from klamm.logdump.indexes import Mode
        from klamm.logdump.run import DumpOptions
        from klamm.logdump.run import dump as dump_files

        decoder = None
        if offsets_decoder:
            decoder = offsets()
        elif transaction_log_decoder:
            decoder = transaction_log()
        elif print_data_log or value_decoder or key_decoder:
            try:
                decoder = plain(key_decoder or _STRING, value_decoder or _STRING)
            except DumpError as e:
                raise typer.BadParameter(str(e)) from None
        options = DumpOptions(
            deep=deep_iteration or decoder is not None,
            decoder=decoder,
            skip_metadata=skip_record_metadata,
            mode=Mode(verify=verify_index_only, sanity=index_sanity_check),
            max_message_size=max_message_size,
            max_bytes=max_bytes,
        )
        code = dump_files(names, options, sys.stdout, sys.stderr)
    raise typer.Exit(code)
