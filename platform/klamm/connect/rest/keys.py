"""The keys under which handlers find things in the aiohttp application."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from klamm.connect.service.connectors import ConnectService

SERVICE: Final = web.AppKey("service", ConnectService)
ADVERTISED: Final = web.AppKey("advertised", str)
"""The worker's own URL, as Location headers name it."""
OPEN_ADDRESS: Final = web.AppKey("open_address", str)
"""The address at which the network reaches this worker without credentials; set only where it does (`foreign_code`)."""
