"""`kafka-features`: levels of a cluster's features, and which release has which."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.nodes import Features, describe_features, update_features
from klamm.kafka_tools.failures import reason
from klamm.kafka_tools.feature_levels import (
    METADATA,
    dependencies,
    latest,
    levels_of_release,
    metadata_level,
    metadata_name,
)
from klamm.kafka_tools.options import Option, Options, UsageError, say
from klamm.kafka_tools.run import connected
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm_base.errors import KlammError

SUMMARY = "show and change levels of features."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "--bootstrap-server <host:port> describe": "Describe the features and their levels (also --command-config).",
    "… upgrade": "Raise levels: --feature NAME=LEVEL, or all to --release-version (--dry-run).",
    "… downgrade": "Lower levels: the same, and --unsafe.",
    "… disable": "Lower the level of --feature to 0 (--unsafe, --dry-run).",
    "version-mapping": "Print the levels of --release-version; default: of the latest.",
    "feature-dependencies": "Print what each --feature NAME=LEVEL needs.",
}
"""For the reference page."""
_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


class _Parser(Parser):
    def error(self, message: str) -> None:  # type: ignore[override]  # it does not return
        raise UsageError(f"Command line error: {message}. Type --help for help.")


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-features is started by its sub-commands")


def main(args: Sequence[str]) -> int:
    """Parse, act and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), args)
    if isinstance(given, int):
        return given
    if given.command == "version-mapping":
        return _version_mapping(given.release_version)
    if given.command == "feature-dependencies":
        return _feature_dependencies(given.feature)
    if given.bootstrap_controller is not None:
        raise UsageError("--bootstrap-controller: ask a broker, --bootstrap-server HOST:PORT")
    if given.bootstrap_server is None:
        raise UsageError(
            "Command line error: You must specify either --bootstrap-controller or --bootstrap-server.."
            " Type --help for help."
        )
    act: Callable[[Admin], Awaitable[int]] = _describe
    if given.command != "describe":
        levels = wanted(given)
        if not levels:
            raise KlammError(f"You must specify at least one feature to {given.command}")
        act = lambda admin: _update(admin, given, levels)  # noqa: E731 - one of two
    return connected(given.bootstrap_server, given.command_config, act)


def _parser() -> Parser:
    parser = _Parser(
        prog="kafka-features", allow_abbrev=False, description="This tool manages feature flags in Kafka."
    )
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="brokers to ask first")
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT,...", help="not here")
    parser.add_argument("--command-config", metavar="FILE", help="client settings")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("describe", help="describe the current levels", allow_abbrev=False)
    for name in ("upgrade", "downgrade", "disable"):
        sub = commands.add_parser(name, help=f"{name} one or more features", allow_abbrev=False)
        sub.add_argument("--feature", action="append", metavar="NAME" if name == "disable" else "NAME=LEVEL")
        sub.add_argument("--dry-run", action="store_true", help="only say what would be")
        if name != "disable":
            sub.add_argument("--metadata", metavar="VERSION", help="the level of metadata.version (old)")
            sub.add_argument("--release-version", metavar="VERSION", help="all levels of this release")
        if name != "upgrade":
            sub.add_argument("--unsafe", action="store_true", help="even if metadata may be lost")
    mapping = commands.add_parser("version-mapping", help="levels of a release", allow_abbrev=False)
    mapping.add_argument("--release-version", metavar="VERSION", help="default: the latest")
    needs = commands.add_parser("feature-dependencies", help="what levels need", allow_abbrev=False)
    needs.add_argument("--feature", action="append", required=True, metavar="NAME=LEVEL")
    return parser


def wanted(given: argparse.Namespace) -> dict[str, int]:
    """Return the levels that a command line asks for. Raises KlammError."""
    if given.command == "disable":
        pairs = [(name, 0) for name in given.feature or ()]
        return _once(pairs)
    if given.release_version is not None:
        if given.metadata is not None or given.feature:
            raise KlammError("Can not specify `release-version` with other feature flags.")
        found = levels_of_release(given.release_version)
        # nobody upgrades to 0
        return {n: level for n, level in found.items() if level or given.command != "upgrade"}
    pairs = []
    if given.metadata is not None:
        sys.stdout.write(" `metadata` flag is deprecated and may be removed in a future release.\n")
        pairs.append((METADATA, metadata_level(given.metadata)))
    return _once(pairs + [name_and_level(text) for text in given.feature or ()])


def _once(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name, level in pairs:
        if name in levels:
            raise KlammError(f"Feature {name} was specified more than once.")
        levels[name] = level
    return levels


def name_and_level(text: str) -> tuple[str, int]:
    """Return the parts of `feature=level`. Raises KlammError."""
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise KlammError(f"Can't parse feature=level string {text}: equals sign not found.")
    if not level.removeprefix("-").isdecimal() or not -32768 <= int(level) <= 32767:
        raise KlammError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name, int(level)


async def _describe(admin: Admin) -> int:
    sys.stdout.write(described(await describe_features(admin)))
    return 0


def described(features: Features) -> str:
    """Return a line for each feature that brokers support."""
    epoch = "-" if features.epoch is None else str(features.epoch)
    lines = []
    for name, (low, high) in sorted(features.supported.items()):
        shown = [
            metadata_name(v) if name == METADATA else str(v)
            for v in (low, high, features.finalized.get(name, 0))
        ]
        lines.append(
            f"Feature: {name:<41} SupportedMinVersion: {shown[0]:<16} SupportedMaxVersion: {shown[1]:<16}"
            f" FinalizedVersionLevel: {shown[2]:<16} Epoch: {epoch}\n"
        )
    return "".join(lines)


async def _update(admin: Admin, given: argparse.Namespace, levels: Mapping[str, int]) -> int:
    kind = _UPGRADE
    if given.command != "upgrade":
        kind = _UNSAFE_DOWNGRADE if given.unsafe else _SAFE_DOWNGRADE
    results = await update_features(admin, levels, upgrade_type=kind, validate_only=given.dry_run)
    failures = 0
    for name, error in sorted(results.items()):
        if error is None:
            done = "disabled" if given.command == "disable" else f"{given.command}d to {levels[name]}"
            sys.stdout.write(f"{name} {'can be' if given.dry_run else 'was'} {done}.\n")
            continue
        failures += 1
        what = f"{given.command} {name}" + ("" if given.command == "disable" else f" to {levels[name]}")
        sys.stdout.write(f"{'Can' if given.dry_run else 'Could'} not {what}. {reason(error)}\n")
    if failures:
        say(f"{failures} out of {len(levels)} operation(s) failed.")
    return 1 if failures else 0


def _version_mapping(release: str | None) -> int:
    name = release or latest()
    for feature, level in levels_of_release(name).items():
        shown = f" ({name})" if feature == METADATA else ""
        sys.stdout.write(f"{feature}={level}{shown}\n")
    return 0


def _feature_dependencies(given: Sequence[str]) -> int:
    for text in given:
        name, level = name_and_level(text)
        needs = dependencies(name, level)
        shown = f"{name}={level}" + (f" ({metadata_name(level)})" if name == METADATA else "")
        if not needs:
            sys.stdout.write(f"{shown} has no dependencies.\n")
            continue
        sys.stdout.write(f"{shown} requires:\n")
        for needed, at in needs.items():
            more = f" ({metadata_name(at)})" if needed == METADATA else ""
            sys.stdout.write(f"    {needed}={at}{more}\n")
    return 0
