"""`python -m klamm_broker.server [key=value]…`: a broker without the command line around it.

What `klamm.testing` starts; people use `klamm broker start`.
"""

from __future__ import annotations

import logging
import sys

from klamm_base import logs
from klamm_base.errors import KlammError
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.main import run


def main(arguments: list[str]) -> int:
    """Run a broker with these properties; the exit code."""
    logs.configure()
    try:
        run(BrokerConfig.load(dict(argument.split("=", 1) for argument in arguments)))
    except KlammError as e:
        logging.getLogger(__name__).critical("%s", e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
