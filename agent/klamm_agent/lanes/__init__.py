"""One input's way from bytes to record values: cutter, then stages. Pure."""
