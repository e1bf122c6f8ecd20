"""An input's way from bytes to record values: the cutter, then the stages. Pure."""
