"""A host without a server, for the tests of `support.shared`: says its process id."""

from __future__ import annotations

import os

from support import shared

if __name__ == "__main__":
    shared.serve(pid=os.getpid())
