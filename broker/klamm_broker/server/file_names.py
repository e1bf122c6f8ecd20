"""Names of files in the first log directory whose modules are imported only where there is such a file."""

from __future__ import annotations

from typing import Final

USERS: Final = "klamm-users.json"
TOKENS: Final = "klamm-tokens.json"
