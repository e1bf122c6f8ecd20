"""What handlers find in the aiohttp application."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from klamm.connect.rest.endpoint import Endpoint
from klamm.connect.service import ConnectService

SERVICE: Final = web.AppKey("service", ConnectService)
ADVERTISED: Final = web.AppKey("advertised", str)
"""The worker's own URL, as Location headers name it."""
ENDPOINTS: Final = web.AppKey("endpoints", tuple[Endpoint, ...])
"""What this application serves."""
