"""`klamm log`: the files of partitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klamm.cli.common import fail, reported
from klamm.cli.context import Commands

if TYPE_CHECKING:
    from klamm.logdump.decoders import Decoder

app = Commands(help="Look into the files of partitions.", no_args_is_help=True)
PrintDataLog = Annotated[
    bool, typer.Option("--print-data-log", help="Print keys and values; any decoder option does too.")
]
DeepIteration = Annotated[bool, typer.Option("--deep-iteration", help="Print records, not only batches.")]
VerifyIndexOnly = Annotated[
    bool, typer.Option("--verify-index-only", help="Compare indexes with their log, print no entries.")
]
IndexSanityCheck = Annotated[
    bool, typer.Option("--index-sanity-check", help="Only check what decides whether an index is rebuilt.")
]
OffsetsDecoder = Annotated[
    bool, typer.Option("--offsets-decoder", help="Records are those of __consumer_offsets.")
]
TransactionLogDecoder = Annotated[
    bool, typer.Option("--transaction-log-decoder", help="Records are those of __transaction_state.")
]
SkipRecordMetadata = Annotated[
    bool, typer.Option("--skip-record-metadata", help="Print contents only, and no control records.")
]
_STRING = "org.apache.kafka.tools.api.StringDecoder"


def _absent(given: bool, param: typer.CallbackParam) -> bool:
    from klamm.logdump.decoders import ABSENT

    option = param.opts[0].removeprefix("--")
    if given:
        raise typer.BadParameter(ABSENT[option])
    return given


ClusterMetadataDecoder = Annotated[
    bool, typer.Option("--cluster-metadata-decoder", callback=_absent, help="Not there.")
]
RemoteLogMetadataDecoder = Annotated[
    bool, typer.Option("--remote-log-metadata-decoder", callback=_absent, help="Not there.")
]
ShareGroupStateDecoder = Annotated[
    bool, typer.Option("--share-group-state-decoder", help="Records are those of __share_group_state.")
]


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
    print_data_log: PrintDataLog = False,
    deep_iteration: DeepIteration = False,
    verify_index_only: VerifyIndexOnly = False,
    index_sanity_check: IndexSanityCheck = False,
    offsets_decoder: OffsetsDecoder = False,
    transaction_log_decoder: TransactionLogDecoder = False,
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
    skip_record_metadata: SkipRecordMetadata = False,
    cluster_metadata_decoder: ClusterMetadataDecoder = False,
    remote_log_metadata_decoder: RemoteLogMetadataDecoder = False,
    share_group_state_decoder: ShareGroupStateDecoder = False,
) -> None:
    """Print what the files of a partition hold.

    Prints batches, records, index entries, producers and aborted transactions, as Kafka's DumpLogSegments does.
    Memory does not grow with the files; those of a running broker may be read.
    """
    names = [*map(str, files or []), *(files_option.split(",") if files_option else [])]
    if not names:
        raise typer.BadParameter("name at least one file", param_hint="FILE")
    with reported():
        from klamm.logdump.indexes import Mode
        from klamm.logdump.run import DumpOptions, why_not
        from klamm.logdump.run import dump as dump_files

        plain = (key_decoder, value_decoder) if print_data_log or key_decoder or value_decoder else None
        decoder = _decoder(
            plain,
            offsets=offsets_decoder,
            transactions=transaction_log_decoder,
            shares=share_group_state_decoder,
        )
        options = DumpOptions(
            deep=deep_iteration or decoder is not None,
            decoder=decoder,
            skip_metadata=skip_record_metadata,
            mode=Mode(verify=verify_index_only, sanity=index_sanity_check),
            max_message_size=max_message_size,
            max_bytes=max_bytes,
        )
        reasons = {name: why_not(Path(name)) for name in names}
        code = dump_files([name for name in names if not reasons[name]], options, sys.stdout, sys.stderr)
        if wrong := [f"{name}: {why}" for name, why in reasons.items() if why]:
            fail("\nklamm: ".join(wrong))
    raise typer.Exit(code)


def _decoder(
    plain_classes: tuple[str | None, str | None] | None, *, offsets: bool, transactions: bool, shares: bool
) -> Decoder | None:
    """Return the decoder that prints contents, None to leave them out.

    Raises BadParameter for two decoders at once, or an unknown class.
    """
    from klamm.logdump import decoders
    from klamm.logdump.errors import DumpError

    if offsets + transactions + shares > 1:
        hint = "--transaction-log-decoder" if transactions else "--share-group-state-decoder"
        raise typer.BadParameter("give one decoder", param_hint=hint)
    if offsets:
        return decoders.offsets()
    if transactions:
        return decoders.transaction_log()
    if shares:
        return decoders.share_group_state()
    if plain_classes is None:
        return None
    try:
        return decoders.plain(plain_classes[0] or _STRING, plain_classes[1] or _STRING)
    except DumpError as e:
        raise typer.BadParameter(str(e)) from None
