"""The `klamm` command."""


def main() -> None:
    """Run the command line."""
    raise SystemExit("not here yet")
