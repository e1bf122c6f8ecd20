"""`kafka-delegation-tokens`: create, renew, expire and describe delegation tokens."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from klamm.admin.errors import AdminError
from klamm.admin.tokens import Principal, Token, create_token, describe_tokens, expire_token, renew_token
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.run import with_admin

SUMMARY = "create, renew, expire, or describe delegation tokens."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    replace(COMMAND_CONFIG, help="REQUIRED: A .properties file with client settings: tokens need a login."),
    Option("create", "Create a token; --renewer-principal names who may renew it."),
    Option("renew", "Renew a token for --renew-time-period."),
    Option("expire", "Expire a token after --expiry-time-period."),
    Option("describe", "Describe the tokens of --owner-principal; without it, all that the user may see."),
    Option(
        "owner-principal", "An owner, like User:ann; may be given several times.", "TYPE:NAME", optional=True
    ),
    Option(
        "renewer-principal",
        "Who may renew the token; may be given several times.",
        "TYPE:NAME",
        optional=True,
    ),
    Option("max-life-time-period", "The longest life in ms; -1: the broker's.", "MS"),
    Option("renew-time-period", "The time to live from now in ms; -1: the broker's.", "MS"),
    Option("expiry-time-period", "The time to its end in ms; -1: none.", "MS"),
    Option("hmac", "The HMAC of the token, as --create printed it.", "BASE64"),
)
_ROW: Final = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEAD: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_NEEDS: Final = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
_OF_ONE: Final = {
    "owner-principal": ("create", "describe"),
    "renewer-principal": ("create",),
    "max-life-time-period": ("create",),
    "renew-time-period": ("renew",),
    "expiry-time-period": ("expire",),
    "hmac": ("renew", "expire"),
}


def run(options: Options) -> int:
    options.require("bootstrap-server", "command-config")
    actions = [name for name in _NEEDS if options.has(name)]
    if len(actions) != 1:
        raise UsageError("Command must include exactly one action: --create, --renew, --expire or --describe")
    (action,) = actions
    options.require(*_NEEDS[action])
    for name, takers in _OF_ONE.items():
        if options.has(name) and action not in takers:
            raise UsageError(f'Option "[{action}]" can\'t be used with option "[{name}]"')
    try:
        _ACTIONS[action](options)
    except AdminError as e:
        say(with_class(e))
        return 1
    return 0


def _create(options: Options) -> None:
    owners, renewers = (_principals(options.all(f"{who}-principal")) for who in ("owner", "renewer"))
    period = _number(options, "max-life-time-period")
    sys.stdout.write(
        f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{period}\n"
    )
    if len(owners) > 1:
        raise UsageError("--create takes one --owner-principal")
    owner = owners[0] if owners else None
    token = with_admin(
        options, lambda a: create_token(a, owner=owner, renewers=renewers, max_lifetime_ms=period)
    )
    sys.stdout.write(f"Created delegation token with tokenId : {token.id}\n")
    _print([token])


def _renew(options: Options) -> None:
    hmac, period = _hmac(options), _number(options, "renew-time-period")
    sys.stdout.write(
        f"Calling renew token operation with hmac :{options.text('hmac')} , renew-time-period :{period}\n"
    )
    ends = with_admin(options, lambda a: renew_token(a, hmac, period))
    sys.stdout.write(f"Completed renew operation. New expiry date : {_date(ends)}")


def _expire(options: Options) -> None:
    hmac, period = _hmac(options), _number(options, "expiry-time-period")
    sys.stdout.write(
        f"Calling expire token operation with hmac :{options.text('hmac')} , expire-time-period :{period}\n"
    )
    ends = with_admin(options, lambda a: expire_token(a, hmac, period))
    sys.stdout.write(f"Completed expire operation. New expiry date : {_date(ends)}")


def _describe(options: Options) -> None:
    owners = _principals(options.all("owner-principal"))
    whose = f"owners: {_listed(owners)}" if owners else "current user."
    sys.stdout.write(f"Calling describe token operation for {whose}\n")
    tokens = with_admin(options, lambda a: describe_tokens(a, owners))
    sys.stdout.write(f"Total number of tokens : {len(tokens)}")
    _print(tokens)


_ACTIONS: Final = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}


def _print(tokens: Iterable[Token]) -> None:
    sys.stdout.write("\n" + _ROW.format(*_HEAD) + "\n")
    for token in tokens:
        cells = (
            token.id,
            base64.b64encode(token.hmac).decode(),
            ":".join(token.owner),
            ":".join(token.requester),
            _listed(token.renewers),
            *map(_date, (token.issued_ms, token.expires_ms, token.max_ms)),
        )
        sys.stdout.write("\n" + _ROW.format(*cells) + "\n")


def _principals(words: Sequence[str]) -> list[Principal]:
    found = []
    for word in words:
        kind, colon, name = word.strip().partition(":")
        if not (kind and colon and name):
            raise UsageError(f"expected a string in format principalType:principalName but got {word}")
        found.append((kind, name))
    return found


def _listed(principals: Iterable[Principal]) -> str:
    return f"[{', '.join(map(':'.join, principals))}]"


def _hmac(options: Options) -> bytes:
    try:
        return base64.b64decode(options.text("hmac"), validate=True)
    except binascii.Error:
        raise UsageError("--hmac is not base64") from None


def _number(options: Options, name: str) -> int:
    options.text(name)
    number = options.number(name)
    assert number is not None, "it has a text"
    return number


def _date(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000).astimezone().strftime("%Y-%m-%dT%H:%M")
