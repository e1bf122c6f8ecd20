"""Compares a flow's source and target while the mirror runs: `klamm mirror verify`."""
