"""Command lines as Kafka's tools read them: long options, `--name value` or `--name=value`, never abbreviated.

One hyphen does as well as two, an option may be given several times, and words that belong to no option are ignored.
The parser of Kafka's tools does this, and scripts rely on it. Messages are Kafka's where Kafka has a message.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from klamm_base.version import __version__

KAFKA_VERSION: Final = "4.3.1"
GONE: Final = {
    "zookeeper": "--zookeeper is gone: since Kafka 4.0 no ZooKeeper keeps the cluster's metadata."
    " Ask a broker: --bootstrap-server HOST:PORT",
    "broker-list": "--broker-list is gone since Kafka 4.0: use --bootstrap-server HOST:PORT",
    "new-consumer": "--new-consumer is gone: there is no other consumer any more, leave it out",
    "force": "--force is gone since Kafka 4.0: leave it out",
    "disable-rack-aware": "--disable-rack-aware is gone since Kafka 4.0: leave it out",
}
"""Options of older Kafkas that runbooks still have, and what to do instead."""


class UsageError(Exception):
    """A command line cannot be carried out. Kafka's tools then end with exit code 1."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `value` names its argument (None: a flag); `optional`: the argument may be left out.

    `only_with`: the option makes sense only beside one of these.
    """

    name: str
    help: str
    value: str | None = None
    optional: bool = False
    default: str | None = None
    only_with: tuple[str, ...] = ()


COMMAND_CONFIG: Final = Option("command-config", "A .properties file with client settings.", "FILE")


class Options:
    """The options that a command line gave."""

    def __init__(
        self, tool: str, given: dict[str, list[str]], specs: dict[str, Option], order: Sequence[str] = ()
    ) -> None:
        self.tool = tool
        self._given = given
        self._specs = specs
        self._order = order

    def has(self, name: str) -> bool:
        return name in self._given

    def all(self, name: str) -> list[str]:
        """Return every argument of an option, or its default."""
        if self._given.get(name):
            return self._given[name]
        default = self._specs[name].default
        return [] if default is None else [default]

    def get(self, name: str) -> str | None:
        """Return the argument of an option. Raises UsageError when it was given several times."""
        values = self.all(name)
        if len(values) > 1:
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else None

    def text(self, name: str) -> str:
        """Return the argument of an option that must have one."""
        value = self.get(name)
        if value is None:
            raise UsageError(f'Missing required argument "[{name}]"')
        return value

    def number(self, name: str) -> int | None:
        """Return the argument as a whole number. Raises UsageError."""
        value = self.get(name)
        if value is None:
            return None
        if not value.removeprefix("-").removeprefix("+").isdecimal():
            raise UsageError(f"Cannot parse argument '{value}' of option {name}")
        return int(value)

    def named_in_order(self, name: str, flag: str) -> list[str]:
        """Return arguments of `name` in the order of the command line, with "" wherever `flag` stood between them."""
        values = iter(self.all(name))
        return [next(values) if n == name else "" for n in self._order if n in (name, flag)]

    def require(self, *names: str) -> None:
        """Raise UsageError for the first that is missing."""
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"')

    def exclude(self, name: str, others: Sequence[str]) -> None:
        """Raise UsageError when `name` stands beside one of the others."""
        if self.has(name):
            for other in others:
                if self.has(other):
                    raise UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"')


def parse(tool: str, specs: Sequence[Option], args: Sequence[str]) -> Options:
    """Read a command line. Raises UsageError."""
    known = {s.name: s for s in (*specs, *COMMON)}
    given: dict[str, list[str]] = {}
    order: list[str] = []
    words = iter(args)
    pending: list[str] = []
    for word in _rest(pending, words):
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            continue
        name, equals, value = word.lstrip("-").partition("=")
        spec = known[_full_name(name, known)]
        order.append(spec.name)
        values = given.setdefault(spec.name, [])
        if spec.value is None:
            if equals:
                raise UsageError(f"Option {spec.name} takes no argument")
            continue
        argument = _argument(spec, value if equals else None, pending, words)
        if argument is not None:
            values.append(argument)
    options = Options(tool, given, known, order)
    _check_company(options, known)
    return options


COMMON: Final = (
    Option("help", "Print usage information."),
    Option("version", "Display the version of Kafka whose command this is, and Klamm's."),
)


def _rest(pending: list[str], words: Iterator[str]) -> Iterator[str]:
    """Yield the words in order; what was looked at and put back into `pending` comes first."""
    while True:
        if pending:
            yield pending.pop()
        else:
            try:
                yield next(words)
            except StopIteration:
                return


def _full_name(name: str, known: dict[str, Option]) -> str:
    if name in known:
        return name
    if name in GONE:
        raise UsageError(GONE[name])
    raise UsageError(f"{name} is not a recognized option")


def _argument(spec: Option, given: str | None, pending: list[str], words: Iterator[str]) -> str | None:
    value = given
    if value is None:
        value = next(_rest(pending, words), None)
        if spec.optional and value is not None and value.startswith("-"):
            pending.append(value)
            value = None
    if value is None:
        if spec.optional:
            return None
        raise UsageError(f"Option {spec.name} requires an argument")
    return value


def _check_company(options: Options, known: dict[str, Option]) -> None:
    alone = [
        s.name
        for s in known.values()
        if s.only_with and options.has(s.name) and not any(options.has(o) for o in s.only_with)
    ]
    if alone and not options.has("help"):
        raise UsageError(
            f"Option(s) [{', '.join(alone)}] are unavailable given other options on the command line"
        )


def version_line() -> str:
    return f"{KAFKA_VERSION} (klamm {__version__})"


def help_text(tool: str, summary: str, specs: Sequence[Option]) -> str:
    """Return the usage for a terminal, at most 100 columns wide."""
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    rows = sorted((*specs, *COMMON), key=lambda s: s.name)
    left = [left_column(s) for s in rows]
    column = min(max(map(len, left)), 40) + 2
    lines = [f"klamm {tool}: {summary}", ""]
    for head, spec in zip(left, rows, strict=True):
        body = textwrap.wrap(described(spec), max(width - column, 20), break_on_hyphens=False)
        first = f"{head:<{column}}" if len(head) < column - 1 else f"{head}\n{' ' * column}"
        lines.append((first + f"\n{' ' * column}".join(body)).rstrip())
    return "\n".join(lines)


def described(spec: Option) -> str:
    """Return the option's meaning, with its default."""
    return spec.help + (f" (default: {spec.default})" if spec.default is not None else "")


def left_column(spec: Option) -> str:
    """Return the option as it is written."""
    if spec.value is None:
        return f"--{spec.name}"
    return f"--{spec.name} [{spec.value}]" if spec.optional else f"--{spec.name} <{spec.value}>"


def say(text: str = "") -> None:
    """Print a line on standard error."""
    sys.stderr.write(text + "\n")
