"""`kafka-storage`: prepare the log directories of a broker that does not run, with its first SCRAM users."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.kafka_tools.options import UsageError
from klamm_base.errors import KlammError
from klamm_base.files import make_private_folder

if TYPE_CHECKING:
    from klamm_broker.security.sasl.credentials import Credential, Mechanism
    from klamm_broker.server.config import BrokerConfig

_PROG: Final = "kafka-storage"
SUMMARY: Final = "Prepare the log directories of a broker that does not run."
OPTIONS: Final = ()
COMMANDS: Final = {
    "format": "Give new log directories their cluster id, and the broker its first users (`--add-scram`).",
    "random-uuid": "Print a random cluster id.",
}
_SCRAM: Final = re.compile(r"(SCRAM-SHA-\d+)=\[(.*)\]")
_KEYS: Final = frozenset({"name", "password", "salt", "iterations", "saltedpassword"})


def main(args: Sequence[str]) -> int:
    """Parse, act and return the exit code. Raises UsageError and KlammError."""
    parser = _parser()
    try:
        given = parser.parse_args(list(args))
    except SystemExit as e:  # what there is to say has been printed
        return 1 if e.code else 0
    if given.command == "random-uuid":
        sys.stdout.write(_random_id() + "\n")
        return 0
    return _format(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROG, description=SUMMARY)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("format", help=COMMANDS["format"], description=COMMANDS["format"])
    made.add_argument("--config", "-c", required=True, type=Path, help="The broker's properties.")
    made.add_argument(
        "--cluster-id", "-t", required=True, help="22 characters of URL-safe base64: random-uuid."
    )
    made.add_argument(
        "--add-scram", "-S", action="append", default=[], metavar="'SCRAM-SHA-256=[name=…,password=…]'",
        help="A user; also iterations, and salt and saltedpassword (base64) in place of password.",
    )  # fmt: skip
    made.add_argument(
        "--ignore-formatted", "-g", action="store_true", help="Leave directories alone that are formatted."
    )
    made.add_argument("--standalone", "-s", action="store_true", help="Accepted: there is one node.")
    commands.add_parser("random-uuid", help=COMMANDS["random-uuid"])
    return parser


def _random_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if text[0] != "-":
            return text


def _format(given: argparse.Namespace) -> int:
    from klamm.security.first_users import store
    from klamm_base.properties import layered
    from klamm_broker.log import log_dir
    from klamm_broker.server.config import BrokerConfig

    users: dict[str, dict[Mechanism, Credential]] = {}
    for name, mechanism, credential in map(_user, given.add_scram):
        users.setdefault(name, {})[mechanism] = credential
    config = BrokerConfig.load(layered(given.config, []))
    formatted = {path: log_dir.read_meta(path) is not None for path in config.log_dirs}
    done = [path for path, is_done in formatted.items() if is_done]
    if done and not given.ignore_formatted:
        raise UsageError(
            f"Log directory {done[0]} is already formatted. Use --ignore-formatted to ignore this directory "
            "and format the others."
        )
    if users and formatted[config.log_dir]:
        raise UsageError(
            f"Log directory {config.log_dir} is already formatted: --add-scram is for new ones. "
            "Start the broker and use klamm kafka-configs --entity-type users"
        )
    for path, is_done in formatted.items():
        if is_done:
            continue
        _claim(path, config, given.cluster_id)
        sys.stdout.write(f"Formatting {path}.\n")
    if users:
        store(config.log_dir, users)
    return 0


def _claim(path: Path, config: BrokerConfig, cluster_id: str) -> None:
    from klamm_broker.log.data_directory import DataDirectory

    try:
        make_private_folder(path)
    except OSError as e:
        raise KlammError(f"log directory {path} cannot be made: {e.strerror or e}") from None
    DataDirectory(path, node_id=config.node_id, cluster_id=cluster_id).release()


def _user(text: str) -> tuple[str, Mechanism, Credential]:
    """Returns (name, mechanism, credential) of an `--add-scram`. Errors never repeat its secrets."""
    from klamm.security.first_users import new_credential
    from klamm_broker.security.sasl.credentials import ITERATIONS, Mechanism, derive, of_password

    match = _SCRAM.fullmatch(text)
    if match is None:
        raise UsageError("--add-scram must look like SCRAM-SHA-256=[name=alice,password=…]")
    mechanism = next((m for m in Mechanism if m.sasl_name == match[1]), None)
    if mechanism is None:
        known = ", ".join(m.sasl_name for m in Mechanism)
        raise UsageError(f"--add-scram {match[1]}: there are {known}")
    pairs = dict(part.strip().partition("=")[::2] for part in match[2].split(","))
    values = {key: value.strip('"') for key, value in pairs.items()}
    if unknown := set(values) - _KEYS:
        raise UsageError(
            f"--add-scram: unknown keys beside {', '.join(sorted(_KEYS))}: {len(unknown)} of them. "
            "A password with a comma cannot be given here"
        )
    if not values.get("name"):
        raise UsageError("You must supply 'name' to add-scram")
    if ("password" in values) == ("saltedpassword" in values):
        raise UsageError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "saltedpassword" in values and "salt" not in values:
        raise UsageError("You must supply 'salt' with 'saltedpassword' to add-scram")
    least, most = ITERATIONS
    count = values.get("iterations", str(least))
    if not count.isdigit() or not least <= int(count) <= most:
        raise UsageError(f"The 'iterations' of add-scram must be {least} to {most}, not {count}")
    iterations = int(count)
    if "saltedpassword" in values:
        salt, salted = (_base64(key, values[key]) for key in ("salt", "saltedpassword"))
        made = derive(mechanism, salt=salt, salted_password=salted, iterations=iterations)
    elif "salt" in values:
        salt = _base64("salt", values["salt"])
        made = of_password(mechanism, values["password"], salt=salt, iterations=iterations)
    else:
        made = new_credential(mechanism, values["password"], iterations)
    return values["name"], mechanism, made


def _base64(key: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise UsageError(f"The '{key}' of add-scram is not base64") from None
