"""/admin/loggers: the worker's log levels, read and set while it runs.

Names are Python's loggers, with `root`; levels are Log4j's, which Kafka's API speaks. `last_modified` is when a
level was set here (epoch ms). Children keep their own levels.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from aiohttp import web

from klamm.connect.errors import BadRequest, NotFound
from klamm.connect.rest.keys import SERVICE
from klamm.connect.topics.config_topic import LoggerLevel, logger_record
from klamm.web.http import empty, json_response, read_json

log = logging.getLogger(__name__)

_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
LAST_MODIFIED: Final = web.AppKey("loggers_last_modified", dict[str, int])


def _known() -> dict[str, logging.Logger]:
    found = {n: x for n, x in logging.root.manager.loggerDict.items() if isinstance(x, logging.Logger)}
    return {"root": logging.root, **found}


def _shown(request: web.Request, name: str, logger: logging.Logger) -> dict[str, Any]:
    number = logger.getEffectiveLevel()
    level = next((text for text, value in _LEVELS.items() if number <= value), "OFF")
    return {"level": level, "last_modified": request.app[LAST_MODIFIED].get(name)}


async def list_loggers(request: web.Request) -> web.Response:
    """List the worker's loggers with their levels."""
    return json_response({name: _shown(request, name, x) for name, x in sorted(_known().items())})


async def get_logger(request: web.Request) -> web.Response:
    """Show a logger's level."""
    name = request.match_info["logger"]
    logger = _known().get(name)
    if logger is None:
        raise NotFound(f"Logger {name} not found.")
    return json_response(_shown(request, name, logger))


async def put_logger(request: web.Request) -> web.Response:
    """Set the level of a logger and of all below it.

    The answer has their names (scope=cluster: no body).
    """
    body = await read_json(request)
    level = body.get("level") if isinstance(body, dict) else None
    if level is None:
        raise BadRequest("Desired 'level' parameter was not specified in request.")
    if str(level).upper() not in _LEVELS:
        raise NotFound(f"invalid log level '{level}'.")
    name = request.match_info["logger"]
    told = LoggerLevel(logger=name, level=str(level).upper())
    if request.query.get("scope") == "cluster":
        # Every worker, this one included, sets the level when it reads this from the topic.
        await request.app[SERVICE].runtime.write_config([logger_record(told)], by_leader=False)
        return empty(204)
    return json_response(_set(request.app, told))


def obey(app: web.Application, told: LoggerLevel) -> None:
    """Sets a level that some worker was told with scope=cluster."""
    if told.level.upper() not in _LEVELS:
        log.warning("logger %s: this worker does not know the level %r", told.logger, told.level)
        return
    _set(app, told)


def _set(app: web.Application, told: LoggerLevel) -> list[str]:
    if told.logger != "root":
        logging.getLogger(told.logger)  # Kafka, too, makes a logger by setting its level
    changed = [n for n in sorted(_known()) if told.logger in {"root", n} or n.startswith(f"{told.logger}.")]
    for each in changed:
        _known()[each].setLevel(_LEVELS[told.level.upper()])
        app[LAST_MODIFIED][each] = time.time_ns() // 1_000_000
    return changed
