"""Commands beside `klamm`'s own: a package that is installed beside Klamm adds `klamm NAME`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command `klamm NAME`. `help` is one line for `klamm --help`.

    `target` (`module:name`) is the code to run, and is imported only then: a typer or click application, or a
    function that takes the words behind NAME (a list of strings) and returns the exit code (None is 0). A KlammError
    that it raises is shown as a sentence, with exit code 1; a ConfigError ends with 2.
    """

    name: str
    help: str
    target: str
