"""The options that several benches have in common."""

from __future__ import annotations

import argparse


def parser(about: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the module's text as its help, and `--write`."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--write", action="store_true", help="put the figures into docs/performance.md")
    return made


def add_volume(to: argparse.ArgumentParser) -> None:
    """Adds `--runs`, `--mb` and `--size`."""
    to.add_argument("--runs", type=int, default=3)
    to.add_argument("--mb", type=int, default=1000, help="how much the topic holds")
    to.add_argument("--size", type=int, default=1000, help="bytes of a record's value")


def add_broker(to: argparse.ArgumentParser, what: str) -> None:
    to.add_argument("--broker", choices=["klamm", "kafka"], default="klamm", help=what)
