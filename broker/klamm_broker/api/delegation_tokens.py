"""Delegation tokens as the four requests about them see them: who may ask, and changes on the disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext
from klamm_broker.security.principal import ANONYMOUS
from klamm_broker.server import audit
from klamm_broker.server.few_lines import FewLines
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

_refusals = FewLines(log, "delegation tokens were refused")


def may_ask(broker: BrokerState, ctx: RequestContext) -> bool:
    """Returns whether the sender has logged in, and not with a token, which could beget others for ever."""
    protocol = next(item.protocol for item in broker.config.listeners if item.name == ctx.listener)
    known = protocol.sasl or (protocol.tls and ctx.principal != ANONYMOUS)
    return known and not ctx.principal.token_authenticated


def refusal(broker: BrokerState, ctx: RequestContext, change: Callable[[], None]) -> ErrorCode:
    """Makes a change of tokens; returns NONE, or why it was not made."""
    if not may_ask(broker, ctx):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    from klamm_broker.security.tokens import TokenRefused

    try:
        change()
    except TokenRefused as e:
        if e.why:
            level = _refusals.level(asyncio.get_running_loop())
            log.log(
                level, "no delegation token for %s at %s: %s", audit.cut(str(ctx.principal)), ctx.host, e.why
            )
        return e.code
    except OSError as e:
        log.error("delegation tokens could not be stored: %s", e)  # noqa: TRY400
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
