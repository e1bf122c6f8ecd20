"""Command lines with sub-commands, as those of Kafka's tools that do not use its usual parser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from klamm.kafka_tools.options import GONE, UsageError


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError, and takes no abbreviated options."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: error: {message}")


def parsed(parser: Parser, args: Sequence[str], *, help_code: int = 1) -> argparse.Namespace | int:
    """Return what a command line gives, or the exit code where it only asks for help. Raises UsageError."""
    for word in args:
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name in GONE:
            raise UsageError(GONE[name])
    if not args:
        sys.stderr.write(parser.format_usage())
        raise UsageError(f"{parser.prog}: error: too few arguments")
    try:
        return parser.parse_args(list(args))
    except SystemExit:  # --help and --version have printed what was asked for
        return 0 if {"-v", "--version"} & set(args) else help_code
