"""Files that are not what their name says."""

from __future__ import annotations

from klamm_base.errors import KlammError


class DumpError(KlammError):
    """A file cannot be read further. The message names the file and the place."""
